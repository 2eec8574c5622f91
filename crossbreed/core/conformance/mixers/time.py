"""Along time: nothing looks ahead, any split is the whole, a fresh state remembers nothing."""

from __future__ import annotations

import torch

from crossbreed.core.conformance.case import Case, Sizes
from crossbreed.core.conformance.mixers.subject import MixerSubject, distance
from crossbreed.core.conformance.rule import require, rule

PREFIXES = (1, 3, 7, 15, 31, 32, 63)
"""Of 64 tokens: leaks that are aligned with blocks of 2 to 64 all show."""


def _not_causal(subject: MixerSubject) -> str:
    return "" if subject.able.causal else "it states that it is not causal"


@rule(
    "mixer",
    "causal",
    says="No output depends on a later token.",
    measured="Everything after the prefix is replaced, in training, prefill and with half of the tokens reading, by every "
    "backend; outputs of the prefix may differ as much as those of unperturbed runs whose last bits differ.",
    faults=("C1", "C4", "C5"),
    sizes=Sizes({"prefix": PREFIXES}, {"prefix": (1, 15, 31, 32)}),
    unless=_not_causal,
)
def causal(subject: MixerSubject, case: Case) -> None:
    tokens, prefix = 64, case["prefix"]
    x, other = subject.input(2, tokens), subject.input(2, tokens, seed=prefix + 100)
    changed = torch.cat((x[:, :prefix], 3 * other[:, prefix:]), 1)
    some = torch.arange(tokens).expand(2, tokens) % 2 == (prefix + 1) % 2
    at = subject.context(case.settings, 2, tokens)
    for backend in subject.backends(case.settings):
        mixer = subject.build(case.settings, backend=backend)
        allowed = subject.tolerance(mixer, x, at)
        for name, here, read in (
            ("prefill", at, None),
            ("prefill, half of the tokens reading", at, some),
            ("training", at.at(phase="train"), None),
        ):
            with torch.no_grad():
                before, after = (subject.forward(mixer, y, here, read)[:, :prefix] for y in (x, changed))
            moved = distance(before, after)
            require(
                moved <= allowed,
                f"{name} by {backend}: outputs of the first {prefix} of {tokens} tokens change with later tokens",
                change=moved,
                allowed=allowed,
            )
