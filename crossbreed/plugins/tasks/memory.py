"""Memory: copying, copying what stands among noise, needles in a haystack, and facts kept in weights."""

from __future__ import annotations

import itertools
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from crossbreed.core.contracts.task import IGNORE, Batch, TokenClasses
from crossbreed.plugins.tasks.counter import generator
from crossbreed.plugins.tasks.scores import most_frequent
from crossbreed.plugins.tasks.synthetic import (
    Floats,
    Ints,
    Rows,
    Synthetic,
    below,
    first_places,
    numbered,
    solved,
    unlabelled,
)
from crossbreed.plugins.tasks.synthetic_configs import (
    CompressionConfig,
    CopyConfig,
    FactsConfig,
    NeedleConfig,
    SelectiveCopyConfig,
)


class Copying(Synthetic):
    """``a b c | · · ·``: at each blank the next symbol is due, in order (Arjovsky et al. 2016, section 4.1).

    Blanks tell nothing, so a position's answer must be found by its place.
    """

    name = "copy"
    config: CopyConfig

    @property
    def chance(self) -> float:
        return 1.0 / self.config.symbols

    @property
    def numbers(self) -> int:
        return self.config.items

    def write(self, u: Floats, judged: bool) -> Rows:
        c = self.config
        symbols = below(u, c.symbols)
        tokens = np.full((len(u), c.length), c.symbols, dtype=np.int64)
        tokens[:, : c.items], tokens[:, c.items] = symbols, c.symbols + 1
        labels = unlabelled(tokens)
        labels[:, c.items + 1 : 2 * c.items + 1] = symbols
        return Rows(tokens, labels)

    def solve(self, tokens_BT: Tensor) -> Tensor:
        """What stands as far from the row's start as a blank stands from the marker."""
        return tokens_BT.roll(self.config.items + 1, dims=1)

    def classes(self, batch: Batch) -> TokenClasses:
        return _symbols_and_blanks(batch, self.config.symbols)

    def spelling(self) -> list[str]:
        return _symbols(self.config.symbols)


class SelectiveCopying(Synthetic):
    """``· a · · b · · ·``: symbols anywhere among noise, then a blank for each, in order (Gu & Dao 2023, section 4.1.1).

    Blanks at the end are markers, noise before them is another token: what to keep is told by what it is, not by where.
    """

    name = "selective_copy"
    config: SelectiveCopyConfig

    @property
    def chance(self) -> float:
        return 1.0 / self.config.symbols

    @property
    def numbers(self) -> int:
        return self.config.length

    def write(self, u: Floats, judged: bool) -> Rows:
        c = self.config
        u_symbols, u_places = u[:, : c.items], u[:, c.items :]
        symbols = below(u_symbols, c.symbols)
        places = np.sort(np.argsort(u_places, axis=1)[:, : c.items], axis=1)
        tokens = np.full((len(u), c.length), c.symbols, dtype=np.int64)
        tokens[:, c.length - c.items :] = c.symbols + 1
        np.put_along_axis(tokens, places, symbols, axis=1)
        labels = unlabelled(tokens)
        labels[:, c.length - c.items :] = symbols
        return Rows(tokens, labels)

    def solve(self, tokens_BT: Tensor) -> Tensor:
        """The symbols in their order, one for each of the last tokens."""
        c = self.config
        answers_BT = torch.zeros_like(tokens_BT)
        answers_BT[:, c.length - c.items :] = tokens_BT[tokens_BT < c.symbols].view(-1, c.items)
        return answers_BT

    def classes(self, batch: Batch) -> TokenClasses:
        return _symbols_and_blanks(batch, self.config.symbols)

    def spelling(self) -> list[str]:
        return _symbols(self.config.symbols)


class Needles(Synthetic):
    """``n n k3 v1 n n k0 v7 n ... | k0 k3``: keys are asked for at the end, their pairs stand anywhere among noise.

    Noise is uniform, so no filler can be predicted (AMOR v1's needle task). Keys are asked for in random order, and again
    where there are more queries than needles.
    """

    name = "needle"
    config: NeedleConfig

    @property
    def chance(self) -> float:
        return 1.0 / self.config.values

    @property
    def numbers(self) -> int:
        c = self.config
        return c.keys + c.needles + (c.hay + c.needles) + c.needles + c.hay

    def write(self, u: Floats, judged: bool) -> Rows:
        c = self.config
        u_keys, u_values, u_places, u_order, u_noise = np.split(
            u, np.cumsum([c.keys, c.needles, c.hay + c.needles, c.needles]), axis=1
        )
        keys = c.noise + np.argsort(u_keys, axis=1)[:, : c.needles]
        values = c.noise + c.keys + below(u_values, c.values)
        # A pair takes one place among those of the hay, and one more behind it.
        places = np.sort(np.argsort(u_places, axis=1)[:, : c.needles], axis=1) + np.arange(c.needles)
        tokens = np.full((len(u), c.length), c.vocab - 1, dtype=np.int64)
        end = c.hay + 2 * c.needles
        is_hay = np.ones((len(u), end), dtype=np.bool_)
        for offset in (0, 1):
            np.put_along_axis(is_hay, places + offset, False, axis=1)
        front = np.empty((len(u), end), dtype=np.int64)
        front[is_hay] = below(u_noise, c.noise).ravel()
        np.put_along_axis(front, places, keys, axis=1)
        np.put_along_axis(front, places + 1, values, axis=1)
        tokens[:, :end] = front
        asked = np.argsort(u_order, axis=1)[:, np.arange(c.queries) % c.needles]
        tokens[:, end + 1 :] = np.take_along_axis(keys, asked, axis=1)
        labels = unlabelled(tokens)
        labels[:, end + 1 :] = np.take_along_axis(values, asked, axis=1)
        return Rows(tokens, labels)

    def solve(self, tokens_BT: Tensor) -> Tensor:
        """What followed each token where it stood first."""
        return tokens_BT.roll(-1, dims=1).gather(1, first_places(tokens_BT, self.vocab))

    def classes(self, batch: Batch) -> TokenClasses:
        c = self.config
        tokens_BT = batch.tokens_BT
        kind_BT = (tokens_BT >= c.noise).long() + (tokens_BT >= c.noise + c.keys).long()
        kind_BT = torch.where(tokens_BT == c.vocab - 1, 3, kind_BT)
        return TokenClasses(
            ("noise", "key", "value", "marker", "query"), torch.where(batch.labels_BT != IGNORE, 4, kind_BT)
        )

    def spelling(self) -> list[str]:
        c = self.config
        return [*numbered("n", c.noise), *numbered("k", c.keys), *numbered("v", c.values), "|"]


class Facts(Synthetic):
    """``k9 k3 k9 k40 ...``: at every key its value is due, the same in all rows: nothing in the row tells it, weights must.

    The negative control of depth (Dreamer's miniature) and the memorisation task of MAD (Poli et al. 2024).
    """

    name = "facts"
    config: FactsConfig

    @property
    def chance(self) -> float:
        return 1.0 / self.config.values

    def baselines(self) -> dict[str, float]:
        return most_frequent(self._evaluation_rows.labels)

    @cached_property
    def _value_of(self) -> Ints:
        c = self.config
        shuffled = generator("facts", "world", c.world, c.facts).permutation(c.facts)
        return np.asarray(c.facts + shuffled % c.values, dtype=np.int64)

    @property
    def numbers(self) -> int:
        return self.config.length

    def write(self, u: Floats, judged: bool) -> Rows:
        tokens = below(u, self.config.facts)
        return Rows(tokens, self._value_of[tokens])

    def solve(self, tokens_BT: Tensor) -> Tensor:
        """Look every key up in the world's facts."""
        return torch.from_numpy(self._value_of).to(tokens_BT.device)[tokens_BT]

    def spelling(self) -> list[str]:
        return [*numbered("k", self.config.facts), *numbered("v", self.config.values)]


class Compression(Synthetic):
    """``· b · a c | a · · c a | ...``: at each marker the one token that names all symbols of its window, in order, is due.

    The compression task of MAD (Poli et al. 2024) for models of tokens: the one state at the marker must hold the whole window,
    since the head reads the answer from it alone.
    """

    name = "compression"
    config: CompressionConfig

    @property
    def chance(self) -> float:
        return 1.0 / self.config.names

    @property
    def numbers(self) -> int:
        c = self.config
        return c.windows * (c.items + c.span)

    def write(self, u: Floats, judged: bool) -> Rows:
        c = self.config
        u_symbols, u_places = np.split(u.reshape(len(u), c.windows, c.items + c.span), [c.items], axis=2)
        symbols = below(u_symbols, c.symbols)
        places = np.sort(np.argsort(u_places, axis=2)[:, :, : c.items], axis=2)
        windows = np.full((len(u), c.windows, c.span + 1), c.symbols, dtype=np.int64)
        windows[:, :, c.span] = c.symbols + 1
        np.put_along_axis(windows, places, symbols, axis=2)
        tokens = np.full((len(u), c.length), c.symbols, dtype=np.int64)
        end = c.windows * (c.span + 1)
        tokens[:, :end] = windows.reshape(len(u), end)
        labels = unlabelled(tokens)
        labels[:, c.span : end : c.span + 1] = self._names(symbols)
        return Rows(tokens, labels)

    def _names(self, symbols: Ints) -> Ints:
        """The token of each window: its symbols as the digits of a number, the first one leading."""
        c = self.config
        digits = c.symbols ** np.arange(c.items - 1, -1, -1)
        named: Ints = c.symbols + 2 + (symbols * digits).sum(axis=-1)
        return named

    def solve(self, tokens_BT: Tensor) -> Tensor:
        """Read the symbols of each window."""
        c = self.config
        end = c.windows * (c.span + 1)
        windows = tokens_BT[:, :end].reshape(-1, c.span + 1)
        symbols = windows[windows < c.symbols].view(len(tokens_BT), c.windows, c.items)
        answers_BT = torch.zeros_like(tokens_BT)
        answers_BT[:, c.span : end : c.span + 1] = solved(self._names(symbols.cpu().numpy()))
        return answers_BT

    def classes(self, batch: Batch) -> TokenClasses:
        return _symbols_and_blanks(batch, self.config.symbols)

    def spelling(self) -> list[str]:
        c = self.config
        windows = itertools.product(range(c.symbols), repeat=c.items)
        return [*_symbols(c.symbols), *(".".join(map(str, window)) for window in windows)]


def _symbols_and_blanks(batch: Batch, symbols: int) -> TokenClasses:
    kind_BT = torch.where(batch.labels_BT != IGNORE, 2, (batch.tokens_BT >= symbols).long())
    return TokenClasses(("symbol", "other", "answer due"), kind_BT)


def _symbols(count: int) -> list[str]:
    """How symbols are read, what stands between them, and the marker."""
    return [*numbered("s", count), "·", "|"]
