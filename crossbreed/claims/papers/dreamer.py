"""Dreamer's claims (arXiv 2601.21582), as section 10 of its fact sheet lists them, and the runs that would show them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from crossbreed.claims.claim import Arm, Claim, Exact, Experiment, Paper, Scale, Test, difference, minus, of
from crossbreed.claims.papers import ledgers
from crossbreed.presets.dreamer import DreamerSizes, layered, recurrent

MATCH = {"parameters": 0.02, "training_flops_per_token": 0.02, "memory_bytes": 0.02}
"""Of Dreamer, the model with the most parts: its rivals gain experts (section 5, step 1)."""
SIZES: dict[Scale, DreamerSizes] = {
    "cpu": DreamerSizes(2, 32, 4, 2, 16, 1, 28, 64, 2, router_key=8),
    "gpu": DreamerSizes(2, 128, 8, 4, 32, 2, 102, 128, 2),
}
RECIPES: dict[Scale, dict[str, Any]] = {
    "cpu": {"tokens": 200_000, "batch": 64, "rungs": tuple(n / 10 for n in range(1, 11))},
    "gpu": {"tokens": 40_000_000, "batch": 128, "rungs": tuple(n / 40 for n in range(1, 41))},
}
LRS: dict[Scale, tuple[float, ...]] = {"cpu": (2e-3, 6e-3), "gpu": (5e-4, 1.5e-3, 4e-3)}
TASKS: dict[Scale, dict[str, dict[str, Any]]] = {
    "cpu": {
        "permutations": {"name": "permutations", "params": {"points": 3, "length": 8, "eval_items": 512}},
        "facts": {"name": "facts", "params": {"facts": 64, "values": 16, "length": 16, "eval_items": 256}},
    },
    "gpu": {
        "permutations": {"name": "permutations", "params": {"points": 5, "length": 32}},
        "pointers": {"name": "pointers", "params": {"places": 16, "hops": 8, "length": 64}},
        "held-out": {
            "name": "pointers",
            "params": {"places": 16, "hops": 8, "length": 64, "held_out": [3, 5, 6]},
        },
        "registers": {"name": "registers", "params": {"registers": 6, "modulus": 7, "length": 96}},
        "facts": {"name": "facts", "params": {"facts": 512, "values": 32, "length": 32}},
    },
}
LEVEL = "0.4"
"""Accuracy to which tokens are counted."""


def shallow(sizes: DreamerSizes) -> DreamerSizes:
    """Half the depth; experts by the same share, which matching then moves."""
    return replace(sizes, depth=sizes.depth // 2, experts=max(sizes.top_k + 1, sizes.experts // 2))


def layers(sizes: DreamerSizes) -> DreamerSizes:
    """A layered model's start: each layer has its share of the experts."""
    return replace(sizes, experts=max(sizes.top_k + 1, sizes.experts // sizes.depth))


def experiments(scale: Scale) -> tuple[Experiment, ...]:
    sizes, recipe, lrs = SIZES[scale], RECIPES[scale], LRS[scale]
    half, narrow = shallow(sizes), replace(sizes, d_model=sizes.d_model // 2)
    kept = str(sizes.head_size)
    budget = {"match": MATCH, "free": {"attention.head_size": kept, "depth_attention.head_size": kept}}

    def made(name: str, task: str, *arms: Arm) -> Experiment:
        return Experiment(name, TASKS[scale][task], arms, budget, recipe, lrs)

    def both(of: DreamerSizes) -> tuple[Arm, Arm]:
        return Arm("dreamer", recurrent(of)), Arm("dr", recurrent(of, depth_attention=False))

    wide = Arm("layered", layered(layers(sizes)))
    first = (
        made("permutations", "permutations", *both(sizes), wide),
        made("permutations-half", "permutations", *both(half)),
        made("facts", "facts", Arm("dreamer", recurrent(sizes)), wide),
    )
    if scale == "cpu":
        return first
    return (
        *first,
        made("pointers", "pointers", *both(sizes), wide),
        made("held-out", "held-out", *both(sizes), wide),
        made("registers", "registers", *both(sizes)),
        made("registers-narrow", "registers", *both(narrow)),
    )


SCORE = "score"
ACCURACY = "accuracy"
TOKENS = f"log2_tokens_to:{LEVEL}"

CLAIMS = (
    Claim(
        "1",
        "Recurrent and layered models meet in parameters, FLOPs and memory at once, and the depth cache does not grow with the text.",
        "matched in all three; tolerance not stated",
        (
            Exact(
                "largest difference of the small rows' rivals to Dreamer",
                ledgers.dreamer_budgets,
                "equal",
                0.01,
            ),
            Exact(
                "growth of the depth cache from 64 to 4096 tokens",
                ledgers.dreamer_cache_growth,
                "equal",
                0.0,
                unit="bytes",
            ),
        ),
        learned=False,
    ),
    Claim(
        "2",
        "Depth recurrence reaches an accuracy in fewer tokens than matched layers.",
        "2 to 8 times fewer at 1 to 2B parameters",
        (
            Test(
                "permutations: tokens of layers over those of DR, log2",
                difference("permutations", "layered", "dr", TOKENS),
                "more",
                0.25,
                unit="octaves",
            ),
            Test(
                "permutations: tokens of layers over those of Dreamer, log2",
                difference("permutations", "layered", "dreamer", TOKENS),
                "more",
                0.25,
                unit="octaves",
            ),
            Test(
                "pointers: tokens of layers over those of DR, log2",
                difference("pointers", "layered", "dr", TOKENS),
                "more",
                0.25,
                unit="octaves",
            ),
            Test(
                "pointers: tokens of layers over those of Dreamer, log2",
                difference("pointers", "layered", "dreamer", TOKENS),
                "more",
                0.25,
                unit="octaves",
            ),
        ),
        note="A model that never reaches the level counts with all of its tokens, so the factor of one that does is a lower bound; tokens "
        "are counted at the ends of ten rungs at scale cpu, of forty at gpu.",
    ),
    Claim(
        "3",
        "At half the depth and about half the budget, Dreamer does as well as layers.",
        "depth 16 beats layers of depth 32 on all reasoning benchmarks",
        (
            Exact(
                "training FLOPs of 1B over 2B, less 0.5",
                lambda p: ledgers.dreamer_half(p) - 0.5,
                "equal",
                0.05,
            ),
            Test(
                "permutations: Dreamer at half the depth against layers",
                (
                    (1.0, of("permutations-half", "dreamer", SCORE)[0][1]),
                    (-1.0, of("permutations", "layered", SCORE)[0][1]),
                ),
                "at_least",
                0.05,
                unit=ACCURACY,
            ),
        ),
    ),
    Claim(
        "4",
        "Depth attention helps more at larger depth and at smaller width.",
        "clearest at depth 32",
        (
            Test(
                "permutations: Dreamer over DR",
                difference("permutations", "dreamer", "dr", SCORE),
                "more",
                0.02,
                unit=ACCURACY,
            ),
            Test(
                "permutations: that gain less the gain at half the depth",
                minus(
                    difference("permutations", "dreamer", "dr", SCORE),
                    difference("permutations-half", "dreamer", "dr", SCORE),
                ),
                "more",
                0.02,
                unit=ACCURACY,
            ),
            Test(
                "registers: the gain at half the width less the gain at the whole",
                minus(
                    difference("registers-narrow", "dreamer", "dr", SCORE),
                    difference("registers", "dreamer", "dr", SCORE),
                ),
                "more",
                0.02,
                unit=ACCURACY,
            ),
        ),
    ),
    Claim(
        "5",
        "Recurrent models use many more experts at each depth than matched layers, and reuse them over depths.",
        "diversity 2 to 11 times as large; about 50 % of experts used at 7 depths or more",
        (
            Test(
                "experts in use at a depth, DR less layers",
                difference("permutations", "dr", "layered", "experts.diversity"),
                "more",
                0.5,
                unit="experts",
            ),
            Test(
                "share of DR's experts used at 0.4 L depths or more, less a half",
                of("permutations", "dr", "experts.reuse"),
                "at_least",
                0.1,
                0.5,
                "of experts",
            ),
        ),
    ),
    Claim(
        "6",
        "Recurrence composes where layers do not: numbers of hops that training never asked for.",
        "aim of the paper; no number was found",
        (
            Test(
                "held-out hops: DR over layers",
                difference("held-out", "dr", "layered", SCORE),
                "more",
                0.05,
                unit=ACCURACY,
            ),
            Test(
                "held-out hops: Dreamer over layers",
                difference("held-out", "dreamer", "layered", SCORE),
                "more",
                0.05,
                unit=ACCURACY,
            ),
        ),
    ),
    Claim(
        "0",
        "Where no operator repeats, recurrence has no advantage (the sheet's negative control).",
        "none",
        (
            Test(
                "facts: Dreamer less layers",
                difference("facts", "dreamer", "layered", SCORE),
                "equal",
                0.05,
                unit=ACCURACY,
            ),
        ),
    ),
)

DREAMER = Paper(
    "dreamer",
    "Dreamer: depth-recurrent attention mixtures",
    "arXiv 2601.21582",
    CLAIMS,
    {"cpu": experiments("cpu"), "gpu": experiments("gpu")},
    __file__,
)
