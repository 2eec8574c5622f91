"""The cross: hybrids of the three papers that nobody published, beside the three, on the same tasks at equal parameters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from crossbreed.claims.claim import Arm, Claim, Experiment, Measure, Paper, Scale, Test, difference
from crossbreed.claims.judge import Direction
from crossbreed.core.genome import Architecture, Block, OutputScale, Router, Stage
from crossbreed.presets.amor import stack
from crossbreed.presets.cells import SEQUENCE, with_router
from crossbreed.presets.dreamer import DreamerSizes, recurrent
from crossbreed.presets.parts import attention, gated_deltanet, layer, multi_mixer, swiglu

PINNED = (
    "attention.head_size",
    "depth_attention.head_size",
    "multi_mixer.head_size",
    "gated_deltanet.key_size",
    "gated_deltanet.value_size",
)
"""Dimensions that stay; what meets the budget is the width of SwiGLU, or experts and theirs."""


@dataclass(frozen=True)
class Size:
    """One scale. ``hidden``: of SwiGLU; ``experts``: of Dreamer's, who holds its parameters there."""

    d_model: int
    head_size: int
    layers: int
    hidden: int
    depth: int
    experts: int
    expert_hidden: int
    segment: int
    recipe: dict[str, Any]
    lrs: tuple[float, ...]
    tasks: dict[str, dict[str, Any]]


SIZES: dict[Scale, Size] = {
    "cpu": Size(
        48,
        16,
        2,
        192,
        4,
        16,
        32,
        4,
        {"tokens": 300_000, "batch": 16},
        (2e-3, 4e-3),
        {
            "recall": {
                "name": "recall",
                "params": {"vocab": 36, "pairs": 8, "length": 28, "queries": 8, "eval_items": 256},
            },
            "permutations": {
                "name": "permutations",
                "params": {"points": 3, "length": 10, "eval_items": 256},
            },
        },
    ),
    "gpu": Size(
        128,
        32,
        4,
        640,
        8,
        48,
        96,
        16,
        {"tokens": 30_000_000, "batch": 128},
        (1e-3, 3e-3, 6e-3),
        {
            "recall": {"name": "recall", "params": {"vocab": 260, "pairs": 48, "length": 160, "queries": 48}},
            "permutations": {"name": "permutations", "params": {"points": 5, "length": 32}},
        },
    ),
}
CONV = {"width": 4, "on": "kv"}
ENTROPY = Router(name="entropy_gate")
HALT = Router(name="learned", params={"target_rate": 0.6, "loss_weight": 0.1})


def architecture(s: Size, *stages: Stage) -> Architecture:
    return Architecture(vocab=2, d_model=s.d_model, stages=stages)


def refined(s: Size) -> Stage:
    """AMOR's two gated blocks after a body."""
    mixer = attention(s.d_model, s.head_size)
    return Stage(
        blocks=tuple(
            Block(sublayers=(mixer,), norm=norm, output_scale=OutputScale(), output_init="zero", gate=ENTROPY)
            for norm in ("none", "pre")
        ),
        entry_norm=True,
    )


def oryx(s: Size) -> Architecture:
    mixer = multi_mixer(s.d_model, s.head_size, ("gated_deltanet", "attention"))
    drawn = Router(name="segment_random", params={"segment": s.segment, "probability": 0.25})
    body = architecture(s, stack(layer(mixer, swiglu(s.hidden)), s.layers))
    return body.model_copy(update={"mode_router": drawn})


def dreamer(s: Size) -> Architecture:
    sizes = DreamerSizes(
        2,
        s.d_model,
        s.depth,
        s.d_model // s.head_size,
        s.head_size,
        2,
        s.experts,
        s.expert_hidden,
        2,
        router_key=8,
    )
    return recurrent(sizes)


def dreamer_gdn(s: Size) -> Architecture:
    """Dreamer whose mixer over the sequence is Gated DeltaNet, its projections light experts as attention's are."""
    body = dreamer(s)
    (block,) = body.stages[0].blocks
    over_depth, over_tokens, experts = block.sublayers
    heads = s.d_model // s.head_size
    mixed = over_tokens.model_copy(
        update={
            "mixer": "gated_deltanet",
            "params": {
                "heads": heads,
                "key_size": s.head_size,
                "value_size": s.head_size,
                "projection_experts": over_tokens.params["projection_experts"],
            },
        }
    )
    made = block.model_copy(update={"sublayers": (over_depth, mixed, experts)})
    return body.model_copy(update={"stages": (body.stages[0].model_copy(update={"blocks": (made,)}),)})


def convolved(body: Architecture) -> Architecture:
    """``body`` with the same short convolution in every mixer over the sequence: recall needs the look one token back that it gives."""
    for where, sublayer in list(body.sublayers()):
        if sublayer.mixer in SEQUENCE:
            body = body.with_params(where, short_conv=CONV)
    return body


def bodies(s: Size) -> dict[str, Architecture]:
    """Every arm: the Transformer that sets the budget, the three published, and the hybrids."""
    gdn = layer(gated_deltanet(s.d_model, s.head_size), swiglu(s.hidden))
    transformer = architecture(
        s, stack(layer(attention(s.d_model, s.head_size), swiglu(s.hidden)), s.layers + 1)
    )
    plain = {
        "transformer": transformer,
        "amor": architecture(s, stack(gdn, s.layers), refined(s)),
        "oryx": oryx(s),
        "dreamer": dreamer(s),
        "oryx-entropy": with_router(
            oryx(s), "mode", Router(name="entropy_gate", params={"segment": s.segment})
        ),
        "dreamer-halt-entropy": with_router(dreamer(s), "halt", ENTROPY),
        "dreamer-halt-learned": with_router(dreamer(s), "halt", HALT),
        "dreamer-gdn": dreamer_gdn(s),
        "oryx-amor": oryx(s).model_copy(update={"stages": (*oryx(s).stages, refined(s))}),
    }
    return {name: convolved(body) for name, body in plain.items()}


PUBLISHED = ("amor", "oryx", "dreamer")
TASKS = ("recall", "permutations")


def experiments(scale: Scale) -> tuple[Experiment, ...]:
    s = SIZES[scale]
    budget = {
        "match": {"parameters": 0.02},
        "cap": {"memory_bytes": 0.1},
        "free": dict.fromkeys(PINNED, str(s.head_size)),
    }
    arms = tuple(Arm(name, body) for name, body in bodies(s).items())
    return tuple(Experiment(name, s.tasks[name], arms, budget, s.recipe, s.lrs) for name in TASKS)


SCORE, ACCURACY = "score", "accuracy"


def against(task: str, hybrid: str, parent: str, direction: Direction, margin: float) -> Test:
    words = {"more": "over", "at_least": "against", "equal": "less"}[direction]
    terms = difference(task, hybrid, parent, SCORE)
    return Test(f"{task}: {hybrid} {words} {parent}", terms, direction, margin, unit=ACCURACY)


def saved(task: str, arm: str) -> Test:
    """How much of the depth its tokens leave out."""
    terms = ((-1.0, Measure(task, arm, "rate")),)
    return Test(f"{task}: share of halts at which {arm} stops", terms, "more", 0.1, -1.0, "of decisions")


NONE = "nobody's: a question, with the answer that its authors' reasoning would give"

CLAIMS = (
    Claim(
        "X1",
        "An entropy gate chooses Oryx's modes better than a draw.",
        NONE,
        (
            against("recall", "oryx-entropy", "oryx", "more", 0.02),
            against("permutations", "oryx-entropy", "oryx", "at_least", 0.05),
        ),
        note="Its rate is its own and not the draw's; both stand in the table of the front.",
    ),
    Claim(
        "X2",
        "Dreamer halted by its own entropy keeps its accuracy at less depth.",
        NONE,
        (
            against("permutations", "dreamer-halt-entropy", "dreamer", "at_least", 0.05),
            saved("permutations", "dreamer-halt-entropy"),
        ),
    ),
    Claim(
        "X3",
        "Dreamer halted by a learned router keeps its accuracy at less depth.",
        NONE,
        (
            against("permutations", "dreamer-halt-learned", "dreamer", "at_least", 0.05),
            saved("permutations", "dreamer-halt-learned"),
        ),
    ),
    Claim(
        "X4",
        "Gated DeltaNet serves inside Dreamer as attention does.",
        NONE,
        (
            against("permutations", "dreamer-gdn", "dreamer", "at_least", 0.05),
            against("recall", "dreamer-gdn", "dreamer", "at_least", 0.05),
        ),
    ),
    Claim(
        "X5",
        "AMOR's gated blocks lift Oryx, most of whose tokens are read by the recurrence.",
        NONE,
        (against("recall", "oryx-amor", "oryx", "more", 0.02),),
    ),
)

CROSS = Paper(
    "cross",
    "The cross of the three",
    "no paper",
    CLAIMS,
    {"cpu": experiments("cpu"), "gpu": experiments("gpu")},
    __file__,
)
