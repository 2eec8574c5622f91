"""What a mixer says it costs, against what is built and what is dispatched."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args

import torch
from torch import nn

from crossbreed.core.conformance.case import Case, Sizes
from crossbreed.core.conformance.mixers.counting import flops
from crossbreed.core.conformance.mixers.subject import MixerSubject
from crossbreed.core.conformance.rule import require, rule
from crossbreed.core.contracts.router import Decision
from crossbreed.core.ledger import CHUNK, DTYPE_BYTES, Cost, Phase
from crossbreed.core.model.state import tensor_bytes


@rule(
    "mixer",
    "parameters",
    says="Its cost counts the parameters that are built.",
    measured="The numbers in all parameters against ``Cost.parameters``, exactly; small ones are no more than those, nor are active ones, "
    "which are no fewer than the numbers that one token gives a gradient.",
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
    for mode in range(subject.choices(case.settings)):
        took_part = sum(map(_took_part, _after_one_token(subject, case.settings, mode)))
        require(
            took_part <= cost.active_parameters,
            "more parameters take part in one token than are stated active",
            took_part=took_part,
            active=cost.active_parameters,
        )


def _after_one_token(subject: MixerSubject, settings: Mapping[str, Any], mode: int) -> list[nn.Parameter]:
    """All parameters, with the gradients that one token gives them."""
    mixer, x = subject.build(settings), subject.input(1, 1).requires_grad_()
    at = subject.context(settings, 1, 1).at(mode=Decision(torch.full((1, 1), mode)))
    y = subject.forward(mixer, x, at)
    if y.requires_grad:
        y.square().sum().backward()
    return list(mixer.parameters())


def _took_part(parameter: nn.Parameter) -> int:
    return 0 if parameter.grad is None else int(parameter.grad.count_nonzero())


@rule(
    "mixer",
    "state-bytes",
    says="Its cost states the bytes of the real state.",
    measured="State of one row after 1, 6, 64, 128 and 300 tokens in every declared dtype, room reserved, against ``Cost.state_bytes`` exactly; "
    "what lives for a pass against ``Cost.scratch_bytes``.",
    faults=("D10",),
    sizes=Sizes({"tokens": (1, 6, 64, 128, 300)}, {"tokens": (1, 64)}),
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


ENDS = 0.3
"""Work at the ends of a sequence that no cost a token states, in tokens."""


@rule(
    "mixer",
    "executed-flops",
    says="Its cost states the FLOPs that it executes.",
    measured="Operations as PyTorch dispatches them for 5, 32, 64 and 100 tokens, with every token reading, by each reader, in training, prefill and "
    "decode, against ``executed_*`` within 1%, of 5 tokens 6%, since work at a sequence's ends weighs more there; see "
    "``flop_count``.",
    faults=("F1", "F9"),
    sizes=Sizes({"tokens": (5, 32, 64, 100)}, {"tokens": (5, 64)}),
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
                abs(found - wanted) <= max(0.01, ENDS / case["tokens"]) * wanted + 1e-9,
                f"{phase}: other FLOPs a token are dispatched than the cost states",
                dispatched=found,
                cost=wanted,
            )


SPREAD = 2.0
"""How far training may stand from forward otherwise than it does as executed: some scores are computed again, some by halves."""


@rule(
    "mixer",
    "algorithmic-flops",
    says="The FLOPs that budgets are made of are those of its mathematics, and hang together.",
    measured="For 5, 64 and 100 tokens, by each reader: in decode no more than are executed, and at least one for each number of a matrix "
    "that one token gives a gradient; in prefill no less than decode's mean over the tokens, where that many are executed; in training "
    "of 64 as many times those of forward as executed, within a factor of 2.",
    faults=("F9",),
    sizes=Sizes({"tokens": (5, 64, 100)}, {"tokens": (64,)}),
    after=("parameters", "executed-flops"),
)
def algorithmic_flops(subject: MixerSubject, case: Case) -> None:
    tokens, settings = case["tokens"], case.settings
    steps = [subject.cost(settings, "decode", t) for t in range(1, tokens + 1)]
    prefill = subject.cost(settings, "prefill", tokens)
    for mode in range(subject.choices(settings)):
        step, executed = _forward(steps[-1], mode)
        require(
            step <= 1.01 * executed + 1e-9,
            "decode: more FLOPs are stated for budgets than are executed",
            stated=step,
            executed=executed,
        )
        matrices = (p for p in _after_one_token(subject, settings, mode) if p.dim() > 1)
        took_part = sum(map(_took_part, matrices)) / subject.depths
        require(
            _forward(steps[0], mode)[0] >= took_part,
            "decode: fewer FLOPs are stated for budgets than numbers of matrices take part",
            stated=_forward(steps[0], mode)[0],
            took_part=took_part,
        )
        mean = sum(_forward(cost, mode)[0] for cost in steps) / tokens
        stated, executed = _forward(prefill, mode)
        require(
            stated >= 0.99 * min(mean, executed) - 1e-9,
            "prefill: fewer FLOPs a token are stated for budgets than decode takes in the mean",
            stated=stated,
            decode=mean,
        )
    if tokens != CHUNK:
        return
    # At whole chunks, where padding is out of the matter.
    train = subject.cost(settings, "train", tokens)
    work = [train.write, *train.reads]
    wanted, executed = sum(one.training for one in work), sum(one.executed_training for one in work)
    share = sum(one.forward for one in work) / max(1e-9, sum(one.executed_forward for one in work))
    require(
        share * executed / SPREAD - 1e-9 <= wanted <= share * executed * SPREAD + 1e-9,
        "train: forward and backward do not stand as they do when executed",
        stated=wanted,
        expected=share * executed,
    )


def _forward(cost: Cost, mode: int) -> tuple[float, float]:
    """FLOPs a token that reads by one reader: (as budgets count, as executed)."""
    read = cost.reads[mode]
    return cost.write.forward + read.forward, cost.write.executed_forward + read.executed_forward
