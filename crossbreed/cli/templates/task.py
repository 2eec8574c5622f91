"""my_task: at each position say the token that was read some positions before."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, Field, model_validator

from crossbreed import IGNORE, Batch, ConfigError, Score, Task, TaskDescriptor, Totals, hookimpl

if TYPE_CHECKING:
    from torch import Tensor

EVALUATION_SHARE = 16
"""One row in so many, by its hash, may only be evaluated; all others only train."""

Ints = NDArray[np.int64]


class MyTaskConfig(BaseModel, frozen=True, extra="forbid"):
    """vocab: token ids. length: tokens in a row. lag: how far back the answer lies. eval_items: rows that are evaluated."""

    vocab: int = Field(default=16, ge=2)
    length: int = Field(default=32, ge=2)
    lag: int = Field(default=4, ge=1)
    eval_items: int = Field(default=256, ge=1)

    @model_validator(mode="after")
    def _something_is_scored(self) -> MyTaskConfig:
        # Bad settings are refused here, before any data is drawn, by a sentence with the values and the rule.
        if self.lag >= self.length:
            raise ValueError(f"lag {self.lag} leaves nothing to score in rows of {self.length} tokens")
        if self.vocab**self.length < 64 * self.eval_items:
            raise ValueError(f"too few different rows for {self.eval_items} items apart from training")
        return self


class MyTask(Task):
    """Vocabulary and length of a study's models come from here."""

    config: MyTaskConfig

    @property
    def vocab(self) -> int:
        return self.config.vocab

    @property
    def length(self) -> int:
        return self.config.length

    @property
    def score(self) -> Score:
        """Its name, its direction, and the best that can be reached (None where nobody knows)."""
        return Score("accuracy", "max", 1.0)

    @property
    def chance(self) -> float:
        return 1.0 / self.config.vocab

    def solve(self, tokens_BT: Tensor) -> Tensor:
        """The right answer at every scored position: a task that can be solved proves it."""
        return tokens_BT.roll(self.config.lag, dims=1)

    def train_batch(self, seed: int, step: int, size: int) -> Batch:
        """A function of (seed, step): the same on every worker and after a resume."""
        return self._batch(self._rows(("training", seed, step), size, evaluation=False))

    def evaluation(self, size: int) -> Iterator[Batch]:
        for start in range(0, self.config.eval_items, size):
            yield self._batch(self._items[start : start + size])

    def evaluation_hash(self) -> str:
        """Of everything that is evaluated, labels too: scores pool only where it is equal."""
        return hashlib.sha256(
            f"{self.config.lag}/".encode() + self._items.astype("<i8").tobytes()
        ).hexdigest()

    def metrics(self, totals: Totals) -> dict[str, float]:
        if totals.scored == 0:
            raise ConfigError(
                "task 'my_task' was evaluated on 0 scored positions; an accuracy needs at least 1."
            )
        return {"accuracy": totals.correct / totals.scored, "loss_nats": totals.loss_nats / totals.scored}

    @cached_property
    def _items(self) -> Ints:
        return self._rows(("evaluation",), self.config.eval_items, evaluation=True)

    def _rows(self, name: tuple[Any, ...], count: int, *, evaluation: bool) -> Ints:
        """The first different rows of one kind in an endless stream keyed by ``name``: training and evaluation never meet."""
        key = hashlib.sha256("/".join(map(str, ("my_task", *name))).encode()).digest()[:16]
        random = np.random.Generator(np.random.Philox(key=int.from_bytes(key, "big")))
        found: dict[bytes, Ints] = {}
        while len(found) < count:
            for row in random.integers(self.config.vocab, size=(64, self.config.length)):
                if len(found) < count and _is_for_evaluation(row) == evaluation:
                    found.setdefault(row.tobytes(), row)
        return np.stack(list(found.values()))

    def _batch(self, tokens: Ints) -> Batch:
        # Late, so that listing plugins imports no torch.
        import torch

        labels = np.roll(tokens, self.config.lag, axis=1)
        labels[:, : self.config.lag] = IGNORE
        return Batch(torch.tensor(tokens), torch.tensor(labels))


def _is_for_evaluation(row: Ints) -> bool:
    return hashlib.blake2b(row.astype("<i8").tobytes(), digest_size=1).digest()[0] % EVALUATION_SHARE == 0


@hookimpl
def register_tasks() -> list[TaskDescriptor]:
    return [
        TaskDescriptor(
            name="my_task",
            factory=MyTask,
            config=MyTaskConfig,
            summary="say the token that was read some positions before",
        )
    ]
