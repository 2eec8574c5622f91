"""What a mixer says it costs, against what is built and what is dispatched."""

from __future__ import annotations

from typing import get_args

import torch

from crossbreed.core.conformance.case import Case, Sizes
from crossbreed.core.conformance.mixers.counting import flops
from crossbreed.core.conformance.mixers.subject import MixerSubject
from crossbreed.core.conformance.rule import require, rule
from crossbreed.core.ledger import DTYPE_BYTES, Phase
from crossbreed.core.model.state import tensor_bytes


@rule(
    "mixer",
    "parameters",
    says="Its cost counts the parameters that are built.",
    measured="The numbers in all parameters against ``Cost.parameters``, exactly; active ones are no more than those, small ones no more.",
)
def parameters(subject: MixerSubject, case: Case) -> None:
    built = sum(p.numel() for p in subject.bare(case.settings).parameters())
    cost = subject.cost(case.settings, "prefill", 64)
    require(
        built == cost.parameters,
        "the cost counts other parameters than are built",
        built=built,
        cost=cost.parameters,
    )
    for name in ("active_parameters", "small_parameters"):
        part = getattr(cost, name)
        require(0 <= part <= built, f"{name} are more than all or less than none", part=part, built=built)


@rule(
    "mixer",
    "state-bytes",
    says="Its cost states the bytes of the real state.",
    measured="State of one row after 1, 6, 64 and 128 tokens in every declared dtype, room reserved, against ``Cost.state_bytes`` exactly; "
    "what lives for a pass against ``Cost.scratch_bytes``.",
    faults=("D10",),
    sizes=Sizes({"tokens": (1, 6, 64, 128)}, {"tokens": (1, 64)}),
    after=("shapes", "state-structure"),
)
def state_bytes(subject: MixerSubject, case: Case) -> None:
    tokens = case["tokens"]
    at = subject.context(case.settings, 1, tokens)
    for dtype in (name for name in subject.able.dtypes if name in DTYPE_BYTES):
        mixer, x = subject.build(case.settings, dtype=dtype), subject.input(1, tokens, dtype=dtype)
        cost = subject.cost(case.settings, "prefill", tokens, dtype)
        if subject.scratch:
            state = mixer.init_state(1, slots=subject.depths, dtype=x.dtype)
            measured, stated = sum(map(tensor_bytes, state.values())) / subject.depths, cost.scratch_bytes
        else:
            with torch.no_grad():
                _, states = subject.run(mixer, x, at, states=subject.begin(mixer, x, slots=tokens))
            measured, stated = sum(map(tensor_bytes, states[0].values())), cost.state_bytes
        require(
            measured == stated,
            f"in {dtype} a state has other bytes than its cost states",
            measured=measured,
            cost=stated,
        )


@rule(
    "mixer",
    "executed-flops",
    says="Its cost states the FLOPs that it executes.",
    measured="Operations as PyTorch dispatches them for 32, 64 and 100 tokens, with every token reading, by each reader, in training, prefill and "
    "decode, against ``executed_*`` within 1%; see ``flop_count``.",
    faults=("F1", "F9"),
    sizes=Sizes({"tokens": (32, 64, 100)}, {"tokens": (64,)}),
    after=("shapes",),
)
def executed_flops(subject: MixerSubject, case: Case) -> None:
    for phase in get_args(Phase):
        cost = subject.cost(case.settings, phase, case["tokens"])
        count = subject.choices(case.settings)
        require(len(cost.reads) == count, f"the cost has {len(cost.reads)} readers, the settings {count}")
        if phase == "train":
            # Training computes every reader, whoever reads.
            stated = [cost.write.executed_training + sum(work.executed_training for work in cost.reads)]
        else:
            stated = [cost.write.executed_forward + work.executed_forward for work in cost.reads]
        for mode, wanted in enumerate(stated):
            found = flops(subject, case.settings, phase, 1.0, mode=mode, tokens=case["tokens"])
            require(
                abs(found - wanted) <= 0.01 * wanted + 1e-9,
                f"{phase}: other FLOPs a token are dispatched than the cost states",
                dispatched=found,
                cost=wanted,
            )
