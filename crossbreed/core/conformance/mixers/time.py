"""Along time: nothing looks ahead, a fresh state remembers nothing, any split is the whole."""

from __future__ import annotations

from itertools import accumulate, cycle, takewhile
from typing import Any

import torch
from torch import Tensor

from crossbreed.core.conformance.case import Case, Sizes
from crossbreed.core.conformance.mixers.subject import MixerSubject, distance, structure
from crossbreed.core.conformance.rule import require, rule
from crossbreed.core.contracts.context import Context
from crossbreed.core.model.seeding import seeded

PREFIXES, TOKENS = (1, 3, 7, 15, 31, 32, 63), 64
"""Leaks that are aligned with blocks of 2 to 64 all show."""
LATER, MORE = (65, 127), 130
"""Prefixes of a longer row: leaks from one chunk of 64 into the one before it."""
STEPS = 16
"""Tokens up to which a piece is also decoded one by one, and run with gradients."""


@rule(
    "mixer",
    "fresh-state",
    says="A fresh state remembers nothing, and position 0 forgets what a used one holds.",
    measured="A sequence after another one, with a new state and with the used one, against a mixer that has seen neither; also in pieces "
    "of which the first is one token. Up to rounding.",
    faults=("D6",),
    sizes=Sizes({"tokens": (1, 2, 5, 12)}, {"tokens": (1, 12)}),
    after=("shapes",),
)
def fresh_state(subject: MixerSubject, case: Case) -> None:
    tokens = case["tokens"]
    x, at = subject.input(2, tokens), subject.context(case.settings, 2, tokens)
    earlier, before = subject.input(2, 17, seed=9), subject.context(case.settings, 2, 17)
    allowed = subject.allowed(case.settings, tokens)
    with torch.no_grad():
        alone, _ = subject.run(subject.build(case.settings), x, at)
        mixer = subject.build(case.settings)
        _, used = subject.run(mixer, earlier, before)
        anew, _ = subject.run(mixer, x, at)
        over, _ = subject.run(mixer, x, at, states=used)
        _, used = subject.run(mixer, earlier, before)
        first = [1] if tokens > 1 else []
        by_step, _ = subject.run(mixer, x, at, cuts=first, states=used)
        alone_by_step, _ = subject.run(subject.build(case.settings), x, at, cuts=first)
    for y, wanted, name in (
        (anew, alone, "with a new state, the sequence before it still shows"),
        (over, alone, "from position 0 on, what the state held before still shows"),
        (
            by_step,
            alone_by_step,
            "after a first token decoded at position 0, what the state held before still shows",
        ),
    ):
        moved = distance(wanted, y)
        require(moved <= allowed, name, change=moved, allowed=allowed)


@rule(
    "mixer",
    "causal",
    says="No output depends on a later token.",
    measured="Everything after the first 1, 3, 7, 15, 31, 32 or 63 of 64 tokens, or 65 or 127 of 130, is replaced; in training (with "
    "gradients on), in prefill and with half of the tokens reading, by every backend. Outputs of the prefix may differ as those of "
    "unperturbed runs do.",
    faults=("C1", "C4", "C5"),
    sizes=Sizes({"prefix": (*PREFIXES, *LATER)}, {"prefix": (1, 65)}),
    unless=lambda subject: "" if subject.able.causal else "it states that it is not causal",
    after=("fresh-state",),
)
def causal(subject: MixerSubject, case: Case) -> None:
    prefix = case["prefix"]
    tokens = TOKENS if prefix < TOKENS else MORE
    x, other = subject.input(2, tokens), subject.input(2, tokens, seed=prefix + 100)
    changed = torch.cat((x[:, :prefix], 3 * other[:, prefix:]), 1)
    some = torch.arange(tokens).expand(2, tokens) % 2 == (prefix + 1) % 2
    at = subject.context(case.settings, 2, tokens)
    for backend in subject.backends(case.settings):
        dtype = subject.dtypes(case.settings, backend)[0]
        mixer = subject.build(case.settings, backend=backend, dtype=dtype)
        allowed = subject.allowed(case.settings, tokens, backend=backend, dtype=dtype)
        for name, here, read in (
            ("prefill", at, None),
            ("prefill, half of the tokens reading", at, some),
            ("training", at.at(phase="train"), None),
        ):
            mixer.train(here.training)
            before, after = (
                drawn_alike(subject, mixer, y.to(getattr(torch, dtype)), here, read)[:, :prefix]
                for y in (x, changed)
            )
            moved = distance(before, after)
            require(
                moved <= allowed,
                f"{name} by {backend}: outputs of the first {prefix} of {tokens} tokens change with later tokens",
                change=moved,
                allowed=allowed,
            )


def drawn_alike(
    subject: MixerSubject, mixer: Any, x_BTD: Tensor, at: Context, read_BT: Tensor | None = None
) -> Tensor:
    """A pass that draws the same noise each time, such as dropout's; in training as it is trained, with gradients on."""
    with seeded(0), torch.set_grad_enabled(at.training):
        return subject.forward(mixer, x_BTD, at, read_BT).detach()


@rule(
    "mixer",
    "repeatable",
    says="Equal inputs give equal bits, whatever the global generators hold.",
    measured="Two runs of two mixers built alike, with torch's global generator at two seeds: equal exactly.",
    sizes=Sizes({"tokens": (1, 5, 65)}, {"tokens": (65,)}),
    unless=lambda subject: "" if subject.able.deterministic else "it states that it is not deterministic",
    after=("fresh-state",),
)
def repeatable(subject: MixerSubject, case: Case) -> None:
    x, at = subject.input(2, case["tokens"]), subject.context(case.settings, 2, case["tokens"])
    found = []
    for seed in (0, 1):
        mixer = subject.build(case.settings)
        with seeded(seed), torch.no_grad():
            found.append(subject.run(mixer, x, at)[0])
    require(torch.equal(*found), "two equal runs differ", change=distance(*found))


@rule(
    "mixer",
    "splits",
    says="Any split of a sequence gives the outputs of the whole: two pieces, ragged pieces, single steps, with gradients or without.",
    measured="Splits of up to 130 tokens at 1, 3, 4, 8, 63, 64, 65, the rest in one piece or token by token, and ragged pieces, "
    "against the forward without a state; modes are forced from the whole. Up to rounding.",
    faults=("D1", "D2", "D3", "D5", "S6"),
    sizes=Sizes(
        {"tokens": (2, 5, 9, 66, 80, 130), "split": (1, 3, 4, 8, 63, 64, 65)},
        {"tokens": (5, 66), "split": (1, 3, 64)},
        lambda sizes: sizes["split"] < sizes["tokens"],
    ),
    unless=lambda subject: "" if subject.able.causal else "it states that it is not causal",
    after=("causal", "fresh-state"),
)
def splits(subject: MixerSubject, case: Case) -> None:
    tokens, split = case["tokens"], case["split"]
    mixer, x = subject.build(case.settings), subject.input(2, tokens)
    at = subject.context(case.settings, 2, tokens)
    ways: dict[str, list[int]] = {f"two pieces, {split} and {tokens - split}": [split]}
    if tokens - split <= STEPS:
        ways[f"{split} and then token by token"] = list(range(split, tokens))
    if split == 1:
        ways["one piece with a state"] = []
    if split == 3:
        ways["pieces of 3, 1 and 8"] = list(takewhile(lambda at: at < tokens, accumulate(cycle((3, 1, 8)))))
    allowed = subject.allowed(case.settings, tokens)
    for grad in (False, True) if tokens <= STEPS and split == 1 else (False,):
        with torch.set_grad_enabled(grad):
            whole = subject.forward(mixer, x, at)
            for name, cuts in ways.items():
                moved = distance(whole, subject.run(mixer, x, at, cuts=cuts)[0])
                require(
                    moved <= allowed, f"{name}: not the outputs of the whole", change=moved, allowed=allowed
                )


@rule(
    "mixer",
    "state-structure",
    says="A state has the tensors of its specs, the same before, after prefill and after decode.",
    measured="Names, dtypes and sizes (but along the axis that grows) of the state at the start, after a piece and after one token.",
    faults=("D4",),
    sizes=Sizes({"tokens": (2, 5, 65)}, {"tokens": (2, 65)}),
    unless=lambda subject: "" if subject.build({}).state_specs() else "its default settings keep no state",
    after=("shapes",),
)
def state_structure(subject: MixerSubject, case: Case) -> None:
    tokens = case["tokens"]
    mixer, x = subject.build(case.settings), subject.input(2, tokens)
    at, specs = subject.context(case.settings, 2, tokens), mixer.state_specs()
    start = subject.begin(mixer, x)
    found = {"at the start": start[0]}
    names = [spec.name for spec in specs]
    require(list(start[0]) == names, f"a state has the tensors {list(start[0])}, its specs name {names}")
    for spec in specs:
        kept = start[0][spec.name].dtype
        require(
            kept in _legal_dtypes(spec.dtype, x.dtype),
            f"state {spec.name!r} is {kept}, its spec says {spec.dtype}",
        )
    if not subject.scratch:
        with torch.no_grad():
            _, prefilled = subject.run(mixer, x[:, :-1], at.slice(0, tokens - 1).at(phase="prefill"))
            _, decoded = subject.run(mixer, x[:, -1:], at.slice(tokens - 1, tokens), states=prefilled)
        found |= {"after a piece": prefilled[0], "after a decoded token": decoded[0]}
    wanted = structure(specs, start[0])
    for when, state in found.items():
        now = structure(specs, state)
        require(now == wanted, f"{when} a state is {now}, at the start it was {wanted}")


def _legal_dtypes(stated: str, activation: torch.dtype) -> set[torch.dtype]:
    """The dtypes a state may have: a float that is stated fixed is as wide as the activations where those are wider."""
    if stated == "activation":
        return {activation}
    fixed: torch.dtype = getattr(torch, stated)
    return {fixed, torch.promote_types(fixed, activation)} if fixed.is_floating_point else {fixed}
