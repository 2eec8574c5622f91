"""Hops: the same step taken several times, along a cycle of places or along variables that copy one another."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from crossbreed.core.contracts.task import IGNORE, Batch, TokenClasses
from crossbreed.plugins.tasks.synthetic import Floats, Rows, Synthetic, below, numbered, unlabelled
from crossbreed.plugins.tasks.synthetic_configs import PointersConfig, VariablesConfig


class Pointers(Synthetic):
    """``p3 p0  p0 p5 ... p3 +2 ...``: after ``start hops`` the place that many steps along the row's own cycle is due.

    The table is one random cycle, so no number of hops below ``places`` leads back to the start. With ``held_out`` training
    never asks for those numbers of hops and evaluation asks for them alone (held-out composition).
    """

    name = "pointers"
    config: PointersConfig

    @property
    def chance(self) -> float:
        return 1.0 / self.config.places

    @property
    def numbers(self) -> int:
        c = self.config
        return 2 * c.places + 2 * c.queries

    def write(self, u: Floats, judged: bool) -> Rows:
        c = self.config
        u_cycle, u_order, u_query = np.split(u, [c.places, 2 * c.places], axis=1)
        cycle = np.argsort(u_cycle, axis=1)
        order = np.argsort(u_order, axis=1)
        tokens = np.full((len(u), c.length), c.vocab - 1, dtype=np.int64)
        tokens[:, 0 : 2 * c.places : 2] = np.take_along_axis(cycle, order, axis=1)
        tokens[:, 1 : 2 * c.places : 2] = np.take_along_axis(cycle, (order + 1) % c.places, axis=1)
        asked = np.array(c.held_out if judged and c.held_out else c.trained_hops, dtype=np.int64)
        start = below(u_query[:, 0::2], c.places)
        hops = asked[below(u_query[:, 1::2], len(asked))]
        end = 2 * c.places + 2 * c.queries
        tokens[:, 2 * c.places : end : 2] = np.take_along_axis(cycle, start, axis=1)
        tokens[:, 2 * c.places + 1 : end : 2] = c.places + hops - 1
        labels = unlabelled(tokens)
        labels[:, 2 * c.places + 1 : end : 2] = np.take_along_axis(cycle, (start + hops) % c.places, axis=1)
        return Rows(tokens, labels)

    def solve(self, tokens_BT: Tensor) -> Tensor:
        """Follow the pairs as often as was asked."""
        c = self.config
        table = tokens_BT[:, : 2 * c.places]
        next_BP = torch.empty_like(table[:, ::2]).scatter_(1, table[:, ::2], table[:, 1::2])
        answers_BT = torch.zeros_like(tokens_BT)
        at = torch.arange(2 * c.places + 1, 2 * c.places + 2 * c.queries, 2)
        place_BQ, left_BQ = tokens_BT[:, at - 1], tokens_BT[:, at] - c.places + 1
        for hop in range(c.hops):
            place_BQ = torch.where(left_BQ > hop, next_BP.gather(1, place_BQ), place_BQ)
        answers_BT[:, at] = place_BQ
        return answers_BT

    def classes(self, batch: Batch) -> TokenClasses:
        """Queries by their number of hops, so that reports tell them apart."""
        c = self.config
        names = ("table", "start", "end", *(f"{h} hops" for h in range(1, c.hops + 1)))
        at_T = torch.arange(batch.tokens_BT.shape[1], device=batch.tokens_BT.device)
        kind_BT = (at_T >= 2 * c.places).long().expand_as(batch.tokens_BT)
        kind_BT = torch.where(batch.tokens_BT == c.vocab - 1, 2, kind_BT)
        return TokenClasses(
            names, torch.where(batch.labels_BT != IGNORE, batch.tokens_BT - c.places + 3, kind_BT)
        )

    def spelling(self) -> list[str]:
        c = self.config
        return [*numbered("p", c.places), *(f"+{hop}" for hop in range(1, c.hops + 1)), "·"]


class Variables(Synthetic):
    """``x4 v2  x1 x4  x7 v0 ... | x1 x7 ...``: each variable copies a value or an earlier variable; at a name asked for its
    value is due (RULER's variable tracking, Hsieh et al. 2024)."""

    name = "variables"
    config: VariablesConfig

    @property
    def chance(self) -> float:
        return 1.0 / self.config.values

    @property
    def numbers(self) -> int:
        c = self.config
        return 2 * c.variables + c.chains + c.queries

    def write(self, u: Floats, judged: bool) -> Rows:
        c = self.config
        u_names, u_order, u_values, u_query = np.split(
            u, np.cumsum([c.variables, c.variables, c.chains]), axis=1
        )
        names = np.argsort(u_names, axis=1)
        # Statement s of the mixed order belongs to a chain; its place in that chain is how many of it stand before.
        chain = np.argsort(u_order, axis=1) % c.chains
        values = c.variables + below(u_values, c.values)
        every = np.arange(len(u))
        source = values.copy()
        held = np.empty((len(u), c.vocab), dtype=np.int64)
        tokens = np.full((len(u), c.length), c.vocab - 1, dtype=np.int64)
        for s in range(c.variables):
            name, of = names[:, s], chain[:, s]
            tokens[:, 2 * s], tokens[:, 2 * s + 1] = name, source[every, of]
            held[every, name] = values[every, of]
            source[every, of] = name
        asked = below(u_query, c.variables)
        tokens[:, 2 * c.variables + 1 :] = asked
        labels = unlabelled(tokens)
        labels[:, 2 * c.variables + 1 :] = np.take_along_axis(held, asked, axis=1)
        return Rows(tokens, labels)

    def solve(self, tokens_BT: Tensor) -> Tensor:
        """Read the statements in order."""
        c = self.config
        held_BV = torch.arange(c.vocab, device=tokens_BT.device).repeat(len(tokens_BT), 1)
        for s in range(0, 2 * c.variables, 2):
            value_B1 = held_BV.gather(1, tokens_BT[:, s + 1 : s + 2])
            held_BV = held_BV.scatter(1, tokens_BT[:, s : s + 1], value_B1)
        return held_BV.gather(1, tokens_BT)

    def classes(self, batch: Batch) -> TokenClasses:
        c = self.config
        at_T = torch.arange(batch.tokens_BT.shape[1], device=batch.tokens_BT.device)
        kind_T = torch.where(at_T < 2 * c.variables, at_T % 2, 2)
        return TokenClasses(
            ("name", "source", "marker", "query"), kind_T + (batch.labels_BT != IGNORE).long()
        )

    def spelling(self) -> list[str]:
        c = self.config
        return [*numbered("x", c.variables), *numbered("v", c.values), "|"]
