"""Built-in tasks. Importing this imports no torch; the classes load when a task is built."""

from __future__ import annotations

from pathlib import Path

from crossbreed.core.contracts.hookspecs import hookimpl
from crossbreed.core.contracts.space import Choices, Floats, Range
from crossbreed.core.contracts.task import TaskDescriptor
from crossbreed.plugins.tasks.configs import BytesConfig, RecallConfig, TextConfig
from crossbreed.plugins.tasks.proven import PROVEN
from crossbreed.plugins.tasks.recall_configs import FillerRecallConfig, FuzzyRecallConfig, NoisyRecallConfig
from crossbreed.plugins.tasks.synthetic_configs import (
    ArithmeticConfig,
    CompressionConfig,
    CopyConfig,
    FactsConfig,
    NeedleConfig,
    ParityConfig,
    PermutationsConfig,
    PointersConfig,
    RegistersConfig,
    SelectiveCopyConfig,
    SyntheticConfig,
    VariablesConfig,
)

SYNTHETIC: tuple[tuple[str, str, type[SyntheticConfig], str], ...] = (
    ("copy", "memory:Copying", CopyConfig, "copying: symbols, then blanks at which they are due in order"),
    (
        "selective_copy",
        "memory:SelectiveCopying",
        SelectiveCopyConfig,
        "selective copying: symbols among noise, due in order at the end",
    ),
    (
        "needle",
        "memory:Needles",
        NeedleConfig,
        "one needle or several in a haystack: key-value pairs among noise that cannot be predicted",
    ),
    (
        "noisy_recall",
        "streams:NoisyRecall",
        NoisyRecallConfig,
        "noisy in-context recall: keys that come again, noise between the pairs",
    ),
    (
        "fuzzy_recall",
        "streams:FuzzyRecall",
        FuzzyRecallConfig,
        "fuzzy in-context recall: keys and values of several tokens",
    ),
    (
        "filler_recall",
        "streams:FillerRecall",
        FillerRecallConfig,
        "recall in a text that can be predicted, with a share of noise that cannot",
    ),
    (
        "compression",
        "memory:Compression",
        CompressionConfig,
        "compression: one token is to name all symbols of a window",
    ),
    (
        "facts",
        "memory:Facts",
        FactsConfig,
        "memorisation: facts kept in weights, the same in every row: a negative control",
    ),
    ("parity", "state:Parity", ParityConfig, "the parity of all bits so far"),
    (
        "permutations",
        "state:Permutations",
        PermutationsConfig,
        "the word problem of S5: the product of all permutations so far",
    ),
    ("arithmetic", "state:Arithmetic", ArithmeticConfig, "a chain of operations modulo a prime"),
    ("registers", "state:Registers", RegistersConfig, "straight-line programs on a few registers"),
    (
        "pointers",
        "hops:Pointers",
        PointersConfig,
        "pointer chasing: some hops along a random cycle, held-out numbers of hops too",
    ),
    ("variables", "hops:Variables", VariablesConfig, "variable tracking: names that copy earlier ones"),
)
"""(name, module and class, settings, summary) of the tasks made from random numbers."""

EXAMPLE = Path(__file__).with_name("example")
"""A small corpus and a tokenizer made from it, so that the task can be checked wherever it is installed."""

RANGES: dict[str, dict[str, Range]] = {
    "pointers": {"held_out": Choices(((2,), (1, 3)))},
    "filler_recall": {"likely": Floats(0.6, 1.0), "noise": Floats(0.0, 0.9)},
}


@hookimpl
def register_tasks() -> list[TaskDescriptor]:
    made = [
        TaskDescriptor(
            name,
            f"crossbreed.plugins.tasks.{factory}",
            config,
            summary,
            ranges=RANGES.get(name, {}),
            proven=PROVEN.get(name),
        )
        for name, factory, config, summary in SYNTHETIC
    ]
    return [
        TaskDescriptor(
            name="recall",
            factory="crossbreed.plugins.tasks.recall:Recall",
            config=RecallConfig,
            summary="multi-query associative recall: look up the value that followed a key",
            proven=PROVEN.get("recall"),
        ),
        TaskDescriptor(
            name="bytes",
            factory="crossbreed.plugins.tasks.text_bytes:TextBytes",
            config=BytesConfig,
            summary="next-byte prediction on a text file or folder",
            # Any text does: this package's longest module.
            example={"path": str(Path(__file__).with_name("text_bytes.py"))},
        ),
        TaskDescriptor(
            name="text",
            factory="crossbreed.plugins.tasks.text:Text",
            config=TextConfig,
            summary="language modelling of documents, in bytes or any tokenizer's tokens",
            ranges={
                "field": Choices(("text", "retold")),
                "tokenizer": Choices((None, str(EXAMPLE / "tokenizer.json"))),
                "vocab": Choices((768, 1024)),
            },
            example={"path": str(EXAMPLE / "fables.jsonl"), "length": 96, "eval_fraction": 0.25},
        ),
        *made,
    ]
