"""Tasks whose rows are made from random numbers: what they all share, so that each says only what a row is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from crossbreed.core.contracts.task import IGNORE, Batch, Overlap, Score, Task, Totals
from crossbreed.plugins.tasks.counter import digest, generator, row_hashes
from crossbreed.plugins.tasks.scores import accuracy

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

EVALUATION_SHARE = 16
"""One row in so many, by its hash, may only be an evaluation item; all others only train."""


class Rows(NamedTuple):
    """Token ids and labels, both (N, T)."""

    tokens: Ints
    labels: Ints


class Synthetic(Task):
    """A solvable task judged by accuracy. A subclass has a ``name``, ``numbers`` and ``write``, and a solver.

    Training and evaluation are disjoint by construction: the hash of a row's tokens alone says which of the two it may
    belong to, whatever the seed, and rows of the wrong kind are drawn again.
    """

    name: ClassVar[str]
    config: Any

    @property
    def numbers(self) -> int:
        """Random numbers that one row takes; the same for all, so that a larger draw begins with a smaller one."""
        raise NotImplementedError(f"{type(self).__name__} must define numbers")

    def write(self, u: Floats, judged: bool) -> Rows:
        """Rows made of uniform random numbers (N, ``numbers``) in [0, 1); ``judged``: for evaluation."""
        raise NotImplementedError(f"{type(self).__name__} must define write(u, judged)")

    @property
    def vocab(self) -> int:
        return int(self.config.vocab)

    @property
    def length(self) -> int:
        return int(self.config.length)

    @property
    def score(self) -> Score:
        return Score("accuracy", "max", 1.0)

    def train_batch(self, seed: int, step: int, size: int) -> Batch:
        """Row r depends on (seed, step, r) only, not on ``size``."""
        return _batch(self._train_rows(seed, step, size))

    def evaluation(self, size: int) -> Iterator[Batch]:
        tokens, labels = self._evaluation_rows
        for start in range(0, len(tokens), size):
            yield _batch(Rows(tokens[start : start + size], labels[start : start + size]))

    def evaluation_hash(self) -> str:
        return digest(self._evaluation_rows)

    def spelling(self) -> list[str]:
        """Every token as people read it, in order of ids; the ids themselves unless a task says more."""
        return [str(token) for token in range(self.vocab)]

    def words(self, tokens: Sequence[int]) -> list[str]:
        spelt = dict(enumerate(self.spelling()))
        return [spelt.get(token, str(token)) for token in tokens]

    def metrics(self, totals: Totals) -> dict[str, float]:
        return accuracy(self.name, totals)

    def overlap(self, seed: int = 0, steps: int = 16, size: int = 64) -> Overlap:
        rows = {row.tobytes() for step in range(steps) for row in self._train_rows(seed, step, size).tokens}
        items = {row.tobytes() for row in self._evaluation_rows.tokens}
        return Overlap(training=len(rows), evaluation=len(items), shared=len(rows & items))

    @cached_property
    def _evaluation_rows(self) -> Rows:
        found: list[Rows] = []
        missing, attempt = int(self.config.eval_items), 0
        while missing > 0:
            # Twice what should do, but not more random numbers at a time than 32 MiB.
            rows = min(2 * EVALUATION_SHARE * missing, max(1, (1 << 22) // self.numbers))
            tokens, labels = self._draw(generator(self.name, "evaluation", attempt), rows, judged=True)
            mine = _for_evaluation(tokens)
            found.append(Rows(tokens[mine][:missing], labels[mine][:missing]))
            missing, attempt = missing - len(found[-1].tokens), attempt + 1
        return Rows(*(np.concatenate(part) for part in zip(*found, strict=True)))

    def _train_rows(self, seed: int, step: int, size: int) -> Rows:
        tokens, labels = self._draw(generator(self.name, "training", seed, step, 0), size)
        wrong, attempt = np.flatnonzero(_for_evaluation(tokens)), 1
        while len(wrong):
            # Numbers are drawn for whole batches, so that row r never depends on its neighbours.
            u = generator(self.name, "training", seed, step, attempt).random((size, self.numbers))
            tokens[wrong], labels[wrong] = self.write(u[wrong], False)
            wrong, attempt = wrong[_for_evaluation(tokens[wrong])], attempt + 1
        return Rows(tokens, labels)

    def _draw(self, random: np.random.Generator, rows: int, judged: bool = False) -> Rows:
        return self.write(random.random((rows, self.numbers)), judged)


def numbered(letter: str, count: int) -> list[str]:
    """Words for a range of tokens: a letter, and the place in the range."""
    return [f"{letter}{place}" for place in range(count)]


def unlabelled(tokens: Ints) -> Ints:
    """Labels for these tokens of which nothing is scored yet."""
    return np.full_like(tokens, IGNORE)


def below(u: Floats, count: int) -> Ints:
    """Whole numbers in [0, ``count``) from uniform numbers in [0, 1)."""
    return (u * count).astype(np.int64)


def first_places(tokens_BT: Tensor, vocab: int) -> Tensor:
    """int64 BT: where each token stands first in its row."""
    at_BT = torch.arange(tokens_BT.shape[1], device=tokens_BT.device).expand_as(tokens_BT)
    first_BV = at_BT.new_full((len(tokens_BT), vocab), tokens_BT.shape[1])
    return first_BV.scatter_reduce(1, tokens_BT, at_BT, "amin").gather(1, tokens_BT)


def solved(rows_of: Ints) -> Tensor:
    """A solver's answers as a tensor."""
    return torch.from_numpy(np.ascontiguousarray(rows_of))


def _for_evaluation(tokens: Ints) -> NDArray[np.bool_]:
    mine: NDArray[np.bool_] = row_hashes(tokens) % np.uint64(EVALUATION_SHARE) == 0
    return mine


def _batch(rows: Rows) -> Batch:
    # Copies: a caller may not change the evaluation items.
    return Batch(torch.tensor(rows.tokens), torch.tensor(rows.labels))
