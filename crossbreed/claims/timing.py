"""Seconds a token of models too large to train here, with random weights and forced decisions, on a GPU."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from crossbreed.claims.claim import Timing
from crossbreed.core import genome
from crossbreed.core.contracts.task import Batch, Task
from crossbreed.core.host import Registry
from crossbreed.core.lab import lease
from crossbreed.core.lab.environment import describe, pick_device
from crossbreed.core.lab.operating_points import OperatingPoint
from crossbreed.core.lab.profile import profile
from crossbreed.core.model.language_model import LanguageModel


class Noise(Task):
    """Rows of random tokens: something to time on."""

    def __init__(self, vocab: int, length: int) -> None:
        super().__init__(None)
        self._vocab, self._length = vocab, length

    @property
    def vocab(self) -> int:
        return self._vocab

    @property
    def length(self) -> int:
        return self._length

    def evaluation(self, size: int) -> Iterator[Batch]:
        drawn = torch.Generator().manual_seed(0)
        tokens_BT = torch.randint(self._vocab, (size, self._length), generator=drawn)
        yield Batch(tokens_BT, tokens_BT)


def timed(timing: Timing, registry: Registry, device: str) -> dict[str, Any]:
    """Median seconds a token with quartiles, and where they were taken; or ``failed`` with the cause where memory ran out."""
    place = pick_device(device)
    architecture = registry.canonical(timing.architecture)
    dtype = "bfloat16" if place.type == "cuda" else "float32"
    head = {
        "hash": genome.digest(architecture),
        "tokens": timing.tokens,
        "point": timing.point,
        "dtype": dtype,
    }
    try:
        # Made where it runs: drawing a billion weights on a CPU takes longer than timing them.
        with place:
            model = LanguageModel(architecture, registry, seed=0)
        task = Noise(architecture.vocab, timing.tokens)
        with lease.alone(place, f"claims {timing.name}"):
            found = profile(model, task, OperatingPoint.parse(timing.point), dtype=dtype)
    except torch.OutOfMemoryError as error:
        return {**head, "failed": str(error).splitlines()[0]}
    best = next(m for m in found.measurements if m.metric == timing.metric)
    return {
        **head,
        "metric": timing.metric,
        "median": 1 / best.median,
        "q1": 1 / best.q3,
        "q3": 1 / best.q1,
        "repeats": best.repeats,
        "stable": best.stable,
        "neighbours": best.neighbours,
        "device": best.device,
        "torch": describe(place)["torch"],
        "backends": sorted(set(best.backends.values())),
    }
