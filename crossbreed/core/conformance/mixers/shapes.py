"""Shapes and numbers: any length, finite whatever comes in."""

from __future__ import annotations

import torch

from crossbreed.core.conformance.case import Case, Sizes
from crossbreed.core.conformance.mixers.subject import MixerSubject
from crossbreed.core.conformance.rule import require, rule

ODD = (1, 2, 63, 64, 65)


@rule(
    "mixer",
    "shapes",
    says="The output has the input's shape and dtype at any length, with one row and with several.",
    measured="Lengths 1, 2, 63, 64, 65 with 1 and 3 rows, with a state and without.",
    faults=("S6", "S8"),
    sizes=Sizes({"rows": (1, 3), "tokens": ODD}, {"rows": (1, 3), "tokens": (1, 2, 65)}),
)
def shapes(subject: MixerSubject, case: Case) -> None:
    mixer, x = subject.build(case.settings), subject.input(case["rows"], case["tokens"])
    at = subject.context(case.settings, case["rows"], case["tokens"])
    with torch.no_grad():
        with_state, _ = subject.run(mixer, x, at)
        without = subject.forward(mixer, x, at)
    wanted = (*x.shape[:2], x.shape[2] * subject.depths)
    for y in (with_state, without):
        require(tuple(y.shape) == wanted, f"the output is {tuple(y.shape)}, the input {tuple(x.shape)}")
        require(y.dtype == x.dtype, f"the output is {y.dtype}, the input {x.dtype}")
