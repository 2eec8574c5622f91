"""The copying task. Legend: B rows, T tokens, S symbols of a span."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from copying_task import CopyingConfig
from crossbreed import IGNORE, Batch, ConfigError, Score, Task, Totals

EVALUATION_SHARE = 16
"""One span in so many, by its hash, may only be evaluated; all others only train."""

Ints = NDArray[np.int64]


class Copying(Task):
    """``s1 .. sn ? s1 .. s(n-1)``: from the question on, the label at each position is the symbol that comes next.

    A span's hash says whether it belongs to training or to evaluation, whatever the seed, so the two never meet.
    """

    config: CopyingConfig

    @property
    def vocab(self) -> int:
        return self.config.symbols + 1

    @property
    def length(self) -> int:
        return 2 * self.config.span

    @property
    def score(self) -> Score:
        return Score("accuracy", "max", 1.0)

    @property
    def chance(self) -> float:
        return 1.0 / self.config.symbols

    def solve(self, tokens_BT: Tensor) -> Tensor:
        """The token one span further back; 0 where there is none."""
        n = self.config.span
        return torch.cat((torch.zeros_like(tokens_BT[:, :n]), tokens_BT[:, :n]), 1)

    def train_batch(self, seed: int, step: int, size: int) -> Batch:
        """Row r depends on (seed, step, r) only."""
        return self._batch(self._spans(("training", seed, step), size, evaluation=False))

    def evaluation(self, size: int) -> Iterator[Batch]:
        for start in range(0, self.config.eval_items, size):
            yield self._batch(self._items[start : start + size])

    def evaluation_hash(self) -> str:
        return hashlib.sha256(
            self._items.astype("<i8").tobytes() + repr(self._items.shape).encode()
        ).hexdigest()

    def metrics(self, totals: Totals) -> dict[str, float]:
        if totals.scored == 0:
            raise ConfigError(
                "task 'copying' was evaluated on 0 scored positions; an accuracy needs at least 1."
            )
        return {"accuracy": totals.correct / totals.scored, "loss_nats": totals.loss_nats / totals.scored}

    @cached_property
    def _items(self) -> Ints:
        return self._spans(("evaluation",), self.config.eval_items, evaluation=True)

    def _spans(self, name: tuple[object, ...], rows: int, *, evaluation: bool) -> Ints:
        """The first ``rows`` different spans of one kind in an endless stream that is a function of ``name``."""
        key = hashlib.sha256("/".join(map(str, ("copying", *name))).encode()).digest()[:16]
        # Counter-based: the same on every machine, and nothing is carried from one batch to the next.
        random = np.random.Generator(np.random.Philox(key=int.from_bytes(key, "big")))
        found: dict[bytes, Ints] = {}
        while len(found) < rows:
            for span in random.integers(self.config.symbols, size=(64, self.config.span)):
                if len(found) < rows and _is_for_evaluation(span) == evaluation:
                    found.setdefault(span.tobytes(), span)
        return np.stack(list(found.values()))

    def _batch(self, spans_BS: Ints) -> Batch:
        B, n = spans_BS.shape
        question = np.full((B, 1), self.config.symbols)
        tokens = np.concatenate((spans_BS, question, spans_BS[:, :-1]), 1)
        labels = np.concatenate((np.full((B, n), IGNORE), spans_BS), 1)
        return Batch(torch.tensor(tokens), torch.tensor(labels))


def _is_for_evaluation(span_S: Ints) -> bool:
    return hashlib.blake2b(span_S.astype("<i8").tobytes(), digest_size=1).digest()[0] % EVALUATION_SHARE == 0
