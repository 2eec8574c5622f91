"""Multi-query associative recall: the memory test that separates attention from fixed-size states."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from crossbreed.core.contracts.task import IGNORE, Batch, Score, Task, TokenClasses, Totals
from crossbreed.plugins.tasks.configs import RecallConfig
from crossbreed.plugins.tasks.counter import digest, generator, row_hashes
from crossbreed.plugins.tasks.scores import Overlap, accuracy

Ints = NDArray[np.int64]

EVALUATION_SHARE = 16
"""One row in so many, by its hash, may only be an evaluation item; all others only train."""


class Rows(NamedTuple):
    """Token ids and labels, both (N, T)."""

    tokens: Ints
    labels: Ints


class Recall(Task):
    """``k1 v1 k2 v2 ... f f k2 f k1 ...``: at each later key the answer is the value that followed it at the start.

    Training and evaluation are disjoint by construction: the hash of a row's tokens alone says which of the two it may
    belong to, whatever the seed, and rows of the wrong kind are drawn again. Values are drawn with replacement, so knowing
    the other pairs' values tells nothing; query positions are uniform (zoology's power law is near it at its default).
    """

    config: RecallConfig

    @property
    def vocab(self) -> int:
        return self.config.vocab

    @property
    def length(self) -> int:
        return self.config.length

    @property
    def score(self) -> Score:
        return Score("accuracy", "max", 1.0)

    @property
    def chance(self) -> float:
        return 1.0 / self.config.values

    def train_batch(self, seed: int, step: int, size: int) -> Batch:
        """Row r depends on (seed, step, r) only, not on ``size``."""
        return _batch(self._train_rows(seed, step, size))

    def evaluation(self, size: int) -> Iterator[Batch]:
        tokens, labels = self._evaluation_rows
        for start in range(0, len(tokens), size):
            yield _batch(Rows(tokens[start : start + size], labels[start : start + size]))

    def evaluation_hash(self) -> str:
        return digest(self._evaluation_rows)

    def solve(self, tokens_BT: Tensor) -> Tensor:
        """Look every token up among the row's keys; 0 where it is none of them."""
        context = 2 * self.config.pairs
        keys_BP, values_BP = tokens_BT[:, 0:context:2], tokens_BT[:, 1:context:2]
        hits_BTP = tokens_BT[:, :, None] == keys_BP[:, None, :]
        return (hits_BTP * values_BP[:, None, :]).sum(-1)

    def classes(self, batch: Batch) -> TokenClasses:
        """Keys and values at a row's start, then fillers and queries; an answer is due at its query's own position."""
        at_T = torch.arange(batch.tokens_BT.shape[1], device=batch.tokens_BT.device)
        pair_T = torch.where(at_T < 2 * self.config.pairs, at_T % 2, 2)
        return TokenClasses(("key", "value", "filler", "query"), pair_T + (batch.labels_BT != IGNORE))

    def words(self, tokens: Sequence[int]) -> list[str]:
        """Fillers are dots, keys ``k0`` ..., values ``v0`` ..., so that an answer is seen to be one."""
        c = self.config

        def word(token: int) -> str:
            if token < c.fillers:
                return "·"
            key = token - c.fillers
            return f"k{key}" if key < c.keys else f"v{key - c.keys}"

        return [word(token) for token in tokens]

    def metrics(self, totals: Totals) -> dict[str, float]:
        return accuracy("recall", totals)

    def overlap(self, seed: int, steps: int, size: int) -> Overlap:
        """How many distinct rows training over ``steps`` steps shares with evaluation."""
        rows = {row.tobytes() for step in range(steps) for row in self._train_rows(seed, step, size).tokens}
        items = {row.tobytes() for row in self._evaluation_rows.tokens}
        return Overlap(training=len(rows), evaluation=len(items), shared=len(rows & items))

    @cached_property
    def _evaluation_rows(self) -> Rows:
        found: list[Rows] = []
        missing, attempt = self.config.eval_items, 0
        while missing > 0:
            # Twice what should do, but not more random numbers at a time than 32 MiB.
            rows = min(2 * EVALUATION_SHARE * missing, max(1, (1 << 22) // self._numbers))
            tokens, labels = self._draw(generator("recall", "evaluation", attempt), rows)
            mine = _for_evaluation(tokens)
            found.append(Rows(tokens[mine][:missing], labels[mine][:missing]))
            missing, attempt = missing - len(found[-1].tokens), attempt + 1
        return Rows(*(np.concatenate(part) for part in zip(*found, strict=True)))

    def _train_rows(self, seed: int, step: int, size: int) -> Rows:
        tokens, labels = self._draw(generator("recall", "training", seed, step, 0), size)
        attempt = 1
        while (wrong := _for_evaluation(tokens)).any():
            # Whole batches are drawn again, so that row r never depends on its neighbours.
            again = self._draw(generator("recall", "training", seed, step, attempt), size)
            tokens[wrong], labels[wrong] = again.tokens[wrong], again.labels[wrong]
            attempt += 1
        return Rows(tokens, labels)

    @property
    def _numbers(self) -> int:
        """Random numbers that one row takes: for its keys, values, places, order of queries and fillers."""
        c = self.config
        return c.keys + 2 * c.pairs + 2 * (c.length - 2 * c.pairs)

    def _draw(self, random: np.random.Generator, rows: int) -> Rows:
        """``rows`` rows; each consumes a fixed count of random numbers, so a larger draw begins with a smaller one."""
        c = self.config
        tail, first_key, first_value = c.length - 2 * c.pairs, c.fillers, c.fillers + c.keys
        u = random.random((rows, self._numbers))
        u_keys, u_values, u_places, u_order, u_filler = np.split(
            u, np.cumsum([c.keys, c.pairs, tail, c.pairs]), axis=1
        )
        # The order of random numbers is a random order without repeats.
        keys = first_key + np.argsort(u_keys, axis=1)[:, : c.pairs]
        values = first_value + (u_values * c.values).astype(np.int64)
        places = 2 * c.pairs + np.argsort(u_places, axis=1)[:, : c.asked]
        pair = np.argsort(u_order, axis=1)[:, np.arange(c.asked) % c.pairs]
        tokens = np.empty((rows, c.length), dtype=np.int64)
        tokens[:, 0 : 2 * c.pairs : 2], tokens[:, 1 : 2 * c.pairs : 2] = keys, values
        tokens[:, 2 * c.pairs :] = (u_filler * c.fillers).astype(np.int64)
        labels = np.full_like(tokens, IGNORE)
        np.put_along_axis(tokens, places, np.take_along_axis(keys, pair, axis=1), axis=1)
        np.put_along_axis(labels, places, np.take_along_axis(values, pair, axis=1), axis=1)
        return Rows(tokens, labels)


def _for_evaluation(tokens: Ints) -> NDArray[np.bool_]:
    mine: NDArray[np.bool_] = row_hashes(tokens) % np.uint64(EVALUATION_SHARE) == 0
    return mine


def _batch(rows: Rows) -> Batch:
    # Copies: a caller may not change the evaluation items.
    return Batch(torch.tensor(rows.tokens), torch.tensor(rows.labels))
