"""What a model does that follows a plan: every depth keeps a state of its own, halting or not."""

from __future__ import annotations

import torch

from crossbreed.core.conformance import probes
from crossbreed.core.conformance.case import Case, Sizes
from crossbreed.core.conformance.depth import plan  # noqa: F401  (its rules stand before these)
from crossbreed.core.conformance.depth.subject import DepthSubject, run
from crossbreed.core.conformance.rule import require, rule
from crossbreed.core.genome import Router

TOKENS = 9
CUTS = (2, 5, 6, 7, 8)
CLOSE = 1e-9
"""Largest difference, relative to the largest output, of two ways of computing in float64."""


@rule(
    "depth",
    "caches-by-depth",
    says="Every run of a block keeps a state of its own, so that decoding equals the whole pass.",
    measured="9 tokens through a stage of one block with a fading and one with a growing state, whole and in pieces of 2, 3 and "
    "single tokens, in float64 within 1e-9.",
    faults=("D1", "D8"),
    sizes=Sizes(
        {"repeats": (1, 2, 3, 4), "blocks": (1, 2, 3)},
        {"repeats": (1, 3), "blocks": (1, 2)},
    ),
    after=("plan", "weights"),
)
def caches_by_depth(subject: DepthSubject, case: Case) -> None:
    _agrees(subject, case, None)


@rule(
    "depth",
    "halting",
    says="Halted tokens stay halted in decode as in the whole pass, and go on writing at every depth.",
    measured="As for caches-by-depth, with tokens that halt at each depth where a feature is negative, one by one and in segments "
    "of 2: outputs and choices of pieces against the whole.",
    faults=("D1", "D8"),
    sizes=Sizes({"repeats": (2, 3, 4), "segment": (1, 2)}, {"repeats": (3,), "segment": (1, 2)}),
    after=("caches-by-depth",),
)
def halting(subject: DepthSubject, case: Case) -> None:
    segment = None if case["segment"] == 1 else case["segment"]
    _agrees(subject, case, Router(name=probes.SIGN, params={"segment": segment}))


def _agrees(subject: DepthSubject, case: Case, halt: Router | None) -> None:
    blocks = case.sizes.get("blocks", 2)
    model = subject.model(case.settings, case["repeats"], blocks, halt)
    tokens = torch.randint(11, (8, TOKENS), generator=torch.Generator().manual_seed(2))
    whole, choices = run(model, tokens)
    pieces, taken = run(model, tokens, CUTS)
    off = float((whole - pieces).abs().max() / whole.abs().max())
    require(off <= CLOSE, "decoding in pieces differs from the whole pass", difference=off)
    for site, choice in choices.items():
        same = torch.equal(choice, taken[site])
        require(same, f"decisions at {site} differ between pieces and the whole pass")
