"""A paper of one claim whose runs take a fraction of a second each."""

from __future__ import annotations

from dataclasses import replace

from crossbreed.claims.claim import Arm, Claim, Exact, Experiment, Paper, Test, difference
from crossbreed.core.genome import Architecture, Router, Stage
from crossbreed.presets.amor import stack
from crossbreed.presets.parts import attention, layer, swiglu

TASK = {"name": "recall", "params": {"vocab": 12, "pairs": 2, "length": 8, "eval_items": 32}}


def body(router: Router | None = None) -> Architecture:
    first = stack(layer(attention(16, 8), swiglu(24)), 1)
    second = Stage(blocks=(layer(attention(16, 8), swiglu(8), gate=router),))
    return Architecture(vocab=2, d_model=16, stages=(first, second))


EXPERIMENT = Experiment(
    "tiny",
    TASK,
    (
        Arm("gated", body(Router(name="entropy_gate"))),
        Arm(
            "random",
            body(Router(name="segment_random", params={"segment": 1})),
            rate_of="gated",
            like="gated",
        ),
        Arm("always", body(), points={"open": "forced:1"}),
    ),
    {"match": {"parameters": 0.02}},
    {"tokens": 640, "batch": 8, "rungs": (0.5, 1.0)},
    (1e-3, 1e-2),
)
CLAIM = Claim(
    "T1",
    "A gate does not hurt.",
    "none",
    (
        Test("gated less always on", difference("tiny", "gated", "always", "score"), "at_least", 0.9),
        Exact("nothing", lambda parts: 0.0, "equal", 0.0),
    ),
)
PAPER = Paper("tiny", "A tiny paper", "nowhere", (CLAIM,), {"cpu": (EXPERIMENT,), "gpu": ()}, __file__)


def with_margin(margin: float) -> Paper:
    """The same paper, its margin declared otherwise."""
    parts = (replace(CLAIM.parts[0], margin=margin), CLAIM.parts[1])
    return replace(PAPER, claims=(replace(CLAIM, parts=parts),))
