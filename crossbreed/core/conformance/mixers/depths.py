"""Depths: a mixer that states that it does not look at its depth is one mixer at all of them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from crossbreed.core.conformance.case import Case, Sizes
from crossbreed.core.conformance.mixers.subject import D_MODEL, DEPTHS, MixerSubject, distance
from crossbreed.core.conformance.rule import require, rule
from crossbreed.core.contracts.context import Context
from crossbreed.core.ledger import Phase, Shape

PHASES: tuple[Phase, ...] = ("train", "prefill", "decode")


@rule(
    "mixer",
    "depths",
    says="A mixer that states that it does not look at its depth is the same at every depth of a stage.",
    measured="Where ``sees_depth`` is false: a mixer built for one depth, at that depth, against one with equal weights built for three, "
    "at each of them; outputs in two pieces up to rounding, costs exactly.",
    sizes=Sizes({"tokens": (5, 20)}, {"tokens": (5,)}),
    after=("splits",),
)
def one_at_all_depths(subject: MixerSubject, case: Case) -> None:
    config, looks = subject.config(case.settings), subject.descriptor.sees_depth
    if looks is None or looks(config):
        return
    tokens = case["tokens"]
    require(not subject.scratch, "it keeps state that the depths of a pass share, and so sees its depth")
    x, at = subject.input(2, tokens), subject.context(case.settings, 2, tokens)
    alone, among = subject.build(case.settings, depths=1), subject.build(case.settings, depths=DEPTHS)
    allowed = subject.allowed(case.settings, tokens)
    with torch.no_grad():
        y = _at(alone, x, at, 0, 1)
        for depth in range(DEPTHS):
            moved = distance(y, _at(among, x, at, depth, DEPTHS))
            require(
                moved <= allowed,
                f"at depth {depth} of {DEPTHS} it has other outputs",
                change=moved,
                allowed=allowed,
            )
    for phase in PHASES:
        one, other = (
            subject.cls.cost(config, D_MODEL, Shape(2, tokens, "float32", phase), depths, subject.registry)
            for depths in (1, DEPTHS)
        )
        require(one == other, f"its cost in {phase} is another one among {DEPTHS} depths")


def _at(mixer: Any, x_BTD: Tensor, at: Context, depth: int, depths: int) -> Tensor:
    """y_BTD of two pieces at one depth."""
    rows, tokens, _ = x_BTD.shape
    state, outputs = mixer.init_state(rows, dtype=x_BTD.dtype), []
    for start, stop in ((0, tokens // 2), (tokens // 2, tokens)):
        piece = at.slice(start, stop).at(depth=depth, depths=depths, site=f"0.0.{depth}.0")
        y_BTD, state = mixer(x_BTD[:, start:stop], piece, state)
        outputs.append(y_BTD)
    return torch.cat(outputs, 1)
