"""A small task that is right, and how to offer it under the name ``small``. Broken ones differ from it in one line."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from pydantic import BaseModel, Field
from torch import Tensor

from crossbreed import IGNORE, Batch, ConfigError, Score, Task, TaskDescriptor, Totals


class Config(BaseModel, frozen=True, extra="forbid"):
    symbols: int = Field(default=5, ge=2, le=50)
    length: int = Field(default=8, ge=4, le=64)
    delay: int = Field(default=2, ge=1, le=3)
    items: int = Field(default=48, ge=1, le=512)


class Echo(Task):
    """Say the symbol that stood ``delay`` positions before. A quarter of all rows may only be evaluated."""

    @property
    def vocab(self) -> int:
        return int(self.config.symbols)

    @property
    def length(self) -> int:
        return int(self.config.length)

    @property
    def score(self) -> Score:
        return Score("accuracy", "max", 1.0)

    @property
    def chance(self) -> float:
        return 1.0 / self.vocab

    def delay(self) -> int:
        return int(self.config.delay)

    def solve(self, tokens_BT: Tensor) -> Tensor | None:
        return tokens_BT.roll(self.delay(), 1)

    def labels(self, tokens_BT: Tensor) -> Tensor:
        labels_BT = tokens_BT.roll(self.delay(), 1)
        labels_BT[:, : self.delay()] = IGNORE
        return labels_BT

    def generator(self, *key: int) -> Any:
        return np.random.default_rng(key)

    def kept(self, tokens_BT: Tensor) -> Tensor:
        """bool B: rows that may only be evaluated."""
        return (tokens_BT * (torch.arange(self.length) + 1)).sum(1) % 4 == 0

    def rows(self, generator: Any, count: int, evaluation: bool) -> Tensor:
        found = torch.empty(0, self.length, dtype=torch.int64)
        while len(found) < count:
            drawn = torch.from_numpy(self.drawn(generator, (4 * count, self.length)))
            found = torch.cat((found, drawn[self.kept(drawn) == evaluation]))
        return found[:count]

    def drawn(self, generator: Any, shape: tuple[int, int]) -> Any:
        return generator.integers(0, self.vocab, shape)

    def train_batch(self, seed: int, step: int, size: int) -> Batch:
        tokens_BT = self.rows(self.generator(1, seed, step), size, False)
        return Batch(tokens_BT, self.labels(tokens_BT))

    def items(self) -> Tensor:
        return self.rows(self.generator(0), self.config.items, True)

    def evaluation(self, size: int) -> Iterator[Batch]:
        for tokens_BT in self.items().split(size):
            yield Batch(tokens_BT, self.labels(tokens_BT))

    def evaluation_hash(self) -> str:
        items = self.items()
        return hashlib.sha256(items.numpy().tobytes() + self.labels(items).numpy().tobytes()).hexdigest()

    def metrics(self, totals: Totals) -> dict[str, float]:
        if not totals.scored:
            raise ConfigError("nothing was scored")
        return {"accuracy": totals.correct / totals.scored}


def offered(cls: Any = Echo, *, config: Any = Config, **named: Any) -> list[TaskDescriptor]:
    return [TaskDescriptor("small", cls, config, "a small task", **named)]
