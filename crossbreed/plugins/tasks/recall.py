"""Multi-query associative recall: the memory test that separates attention from fixed-size states."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from crossbreed.core.contracts.task import IGNORE, Batch, TokenClasses
from crossbreed.plugins.tasks.configs import RecallConfig
from crossbreed.plugins.tasks.synthetic import Floats, Rows, Synthetic, numbered, unlabelled


class Recall(Synthetic):
    """``k1 v1 k2 v2 ... f f k2 f k1 ...``: at each later key the answer is the value that followed it at the start.

    Values are drawn with replacement, so knowing the other pairs' values tells nothing; query positions are uniform
    (zoology's power law is near it at its default).
    """

    name = "recall"

    config: RecallConfig

    @property
    def chance(self) -> float:
        return 1.0 / self.config.values

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

    def spelling(self) -> list[str]:
        """Fillers are dots, keys ``k0`` ..., values ``v0`` ..., so that an answer is seen to be one."""
        c = self.config
        return [*["·"] * c.fillers, *numbered("k", c.keys), *numbered("v", c.values)]

    @property
    def numbers(self) -> int:
        """For a row's keys, values, places, order of queries and fillers."""
        c = self.config
        return c.keys + 2 * c.pairs + 2 * (c.length - 2 * c.pairs)

    def write(self, u: Floats, judged: bool) -> Rows:
        c = self.config
        rows, tail = len(u), c.length - 2 * c.pairs
        first_key, first_value = c.fillers, c.fillers + c.keys
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
        labels = unlabelled(tokens)
        np.put_along_axis(tokens, places, np.take_along_axis(keys, pair, axis=1), axis=1)
        np.put_along_axis(labels, places, np.take_along_axis(values, pair, axis=1), axis=1)
        return Rows(tokens, labels)
