"""Recall inside a stream: pairs among noise, keys and values of several tokens, and pairs in a text that can be predicted."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from crossbreed.core.contracts.task import IGNORE, Batch, Score, TokenClasses
from crossbreed.plugins.tasks.counter import generator
from crossbreed.plugins.tasks.recall_configs import FillerRecallConfig, FuzzyRecallConfig, NoisyRecallConfig
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


class NoisyRecall(Synthetic):
    """``n2 k1 v4 n0 n2 k3 v0 k1 ...``: at a key that comes again the value that followed it before is due (MAD's in-context and
    noisy in-context recall, Poli et al. 2024)."""

    name = "noisy_recall"
    config: NoisyRecallConfig

    @property
    def chance(self) -> float:
        return 1.0 / self.config.values

    def baselines(self) -> dict[str, float]:
        """A row asks for the same values again and again, so that finitely many rows favour one."""
        return most_frequent(self._evaluation_rows.labels)

    @property
    def numbers(self) -> int:
        c = self.config
        return c.keys + 2 * c.pairs + 2 * c.hay

    def write(self, u: Floats, judged: bool) -> Rows:
        c = self.config
        u_values, u_keys, u_places, u_noise = np.split(
            u, np.cumsum([c.keys, c.pairs, c.hay + c.pairs]), axis=1
        )
        key = below(u_keys, c.keys)
        value = np.take_along_axis(below(u_values, c.values), key, axis=1)
        places = mark_places(u_places, c.pairs)
        tokens = filled(below(u_noise, c.noises), places)
        np.put_along_axis(tokens, places, c.noises + key, axis=1)
        np.put_along_axis(tokens, places + 1, c.noises + c.keys + value, axis=1)
        labels = unlabelled(tokens)
        seen = _seen_before(key)
        np.put_along_axis(labels, places, np.where(seen, c.noises + c.keys + value, IGNORE), axis=1)
        return Rows(tokens, labels)

    def solve(self, tokens_BT: Tensor) -> Tensor:
        """What followed each token where it stood first."""
        return tokens_BT.roll(-1, dims=1).gather(1, first_places(tokens_BT, self.vocab))

    def classes(self, batch: Batch) -> TokenClasses:
        c = self.config
        kind_BT = (batch.tokens_BT >= c.noises).long() + (batch.tokens_BT >= c.noises + c.keys).long()
        names = ("noise", "new key", "value", "key again")
        return TokenClasses(names, torch.where(batch.labels_BT != IGNORE, 3, kind_BT))

    def spelling(self) -> list[str]:
        c = self.config
        return [*numbered("n", c.noises), *numbered("k", c.keys), *numbered("v", c.values)]


class FuzzyRecall(Synthetic):
    """``a3 a1 b2 | a0 b4 b4 | a3 a1 ...`` (without the bars): at the last token of a key that comes again the first token of its
    value is due, there the second, and so on (MAD's fuzzy in-context recall, Poli et al. 2024)."""

    name = "fuzzy_recall"
    config: FuzzyRecallConfig

    @property
    def chance(self) -> float:
        return 1.0 / self.config.value_tokens

    def baselines(self) -> dict[str, float]:
        """A row asks for the same values again and again, so that finitely many rows favour one."""
        return most_frequent(self._evaluation_rows.labels)

    @property
    def numbers(self) -> int:
        c = self.config
        return c.pairs * (2 + c.value_length) + c.most_pairs

    def write(self, u: Floats, judged: bool) -> Rows:
        c = self.config
        u_keys, u_order, u_values, u_picks = np.split(
            u, np.cumsum([c.pairs, c.pairs, c.pairs * c.value_length]), axis=1
        )
        keys, values = self._keys(u_keys), c.key_tokens + below(u_values, c.value_tokens)
        key_sizes = 1 + np.arange(c.pairs) % c.key_length
        # Lengths of values go round in another order in each row.
        value_sizes = 1 + np.argsort(u_order, axis=1) % c.value_length
        pick = below(u_picks, c.pairs)
        key_size, value_size = key_sizes[pick], np.take_along_axis(value_sizes, pick, axis=1)
        end = np.cumsum(key_size + value_size, axis=1)
        start, fits = end - key_size - value_size, end <= c.length
        asked = _seen_before(pick) & fits
        # One more column for whatever does not fit; it is cut off.
        tokens = np.full((len(u), c.length + 1), c.vocab - 1, dtype=np.int64)
        labels = np.full_like(tokens, IGNORE)

        def put(into: Ints, at: Ints, what: Ints, where: np.ndarray) -> None:
            np.put_along_axis(into, np.where(where, at, c.length), what, axis=1)

        for n in range(c.key_length):
            put(tokens, start + n, np.take_along_axis(keys[:, :, n], pick, axis=1), fits & (n < key_size))
        values = values.reshape(len(u), c.pairs, c.value_length)
        for n in range(c.value_length):
            token = np.take_along_axis(values[:, :, n], pick, axis=1)
            at, due = start + key_size + n, n < value_size
            put(tokens, at, token, fits & due)
            put(labels, at - 1, token, asked & due)
        return Rows(tokens[:, :-1].copy(), labels[:, :-1].copy())

    def _keys(self, u: Floats) -> Ints:
        """(N, pairs, key_length) tokens of keys; those of one length, every ``key_length``-th, differ within a row."""
        c = self.config
        keys = np.zeros((*u.shape, c.key_length), dtype=np.int64)
        for size in range(1, c.key_length + 1):
            part = u[:, size - 1 :: c.key_length]
            count = part.shape[1]
            if not count:
                break
            # Sorted numbers below N - count + 1, each raised by its place, are different ones below N.
            number = np.sort(below(part, c.key_tokens**size - count + 1), axis=1) + np.arange(count)
            for n in range(size):
                keys[:, size - 1 :: c.key_length, n] = number // c.key_tokens**n % c.key_tokens
        return keys

    def solve(self, tokens_BT: Tensor) -> Tensor:
        """Cut the row into keys and values, and look every key up."""
        answers = np.zeros(tokens_BT.shape, dtype=np.int64)
        for row, said in zip(tokens_BT.tolist(), answers, strict=True):
            known: dict[tuple[int, ...], list[int]] = {}
            key: tuple[int, ...] = ()
            value: list[int] = []
            for at, token in enumerate(row):
                if token < self.config.key_tokens:
                    key, value = ((*key, token), []) if not value else ((token,), [])
                else:
                    value.append(token)
                    known.setdefault(key, value)
                told = known.get(key, [])
                said[at] = told[len(value)] if len(value) < len(told) else 0
        return solved(answers)

    def classes(self, batch: Batch) -> TokenClasses:
        c = self.config
        kind_BT = (batch.tokens_BT >= c.key_tokens).long()
        kind_BT = torch.where(batch.tokens_BT == c.vocab - 1, 2, kind_BT)
        return TokenClasses(
            ("key", "value", "end", "answer due"), torch.where(batch.labels_BT != IGNORE, 3, kind_BT)
        )

    def spelling(self) -> list[str]:
        c = self.config
        return [*numbered("a", c.key_tokens), *numbered("b", c.value_tokens), "·"]


class FillerRecall(Synthetic):
    """``f3 f1 k2 v7 f1 f0 ... f2 k2 v7 ...``: the value is due at a key that comes again, and unless answers alone are targets
    every next token is (AMOR's miniature T1, and with noise T2).

    Classes tell what comes next: an answer, a value never seen, a key (nobody knows when one comes, or which), noise (a filler
    that the two before it do not lead to), or filler. A gate is to find the answers; those and everything that nobody can
    predict have high entropy, so that both labels are kept.
    """

    name = "filler_recall"
    config: FillerRecallConfig

    @property
    def score(self) -> Score:
        return Score("accuracy", "max", 1.0, on=("answer",))

    @property
    def chance(self) -> float:
        return 1.0 / self.config.values

    @cached_property
    def _followers(self) -> Ints:
        """(fillers * fillers, 2) of a pair of fillers: the likely follower and the other one."""
        F = self.config.fillers
        random = generator(self.name, "world", self.config.world, F)
        first = random.integers(F, size=F * F)
        return np.stack((first, (first + random.integers(1, F, size=F * F)) % F), axis=1)

    @property
    def numbers(self) -> int:
        c = self.config
        return c.keys + c.pairs + c.marks + (c.filler + c.marks) + 2 * c.filler

    def write(self, u: Floats, judged: bool) -> Rows:
        c = self.config
        u_keys, u_values, u_order, u_places, u_filler, u_noise = np.split(
            u, np.cumsum([c.keys, c.pairs, c.marks, c.filler + c.marks, c.filler]), axis=1
        )
        keys = c.fillers + np.argsort(u_keys, axis=1)[:, : c.pairs]
        values = c.fillers + c.keys + below(u_values, c.values)
        # Marks stand in the order of numbers; a query's lies between its pair's and 1, and equal numbers keep the pair first.
        pair = np.concatenate((np.arange(c.pairs), np.arange(c.queries) % c.pairs))
        when = u_order.copy()
        when[:, c.pairs :] = when[:, pair[c.pairs :]] + (1 - when[:, pair[c.pairs :]]) * u_order[:, c.pairs :]
        mark = np.argsort(when, axis=1, kind="stable")
        key, value = (np.take_along_axis(kind, pair[mark], axis=1) for kind in (keys, values))
        places = mark_places(u_places, c.marks)
        tokens = filled(self._text(u_filler, u_noise), places)
        np.put_along_axis(tokens, places, key, axis=1)
        np.put_along_axis(tokens, places + 1, value, axis=1)
        labels = unlabelled(tokens)
        if c.targets == "all":
            labels[:, :-1] = tokens[:, 1:]
        else:
            np.put_along_axis(labels, places, np.where(mark >= c.pairs, value, IGNORE), axis=1)
        return Rows(tokens, labels)

    def _text(self, u_next: Floats, u_noise: Floats) -> Ints:
        """(N, filler) of filler. It goes on from what stands there, so that exactly the share ``noise`` cannot be predicted."""
        c = self.config
        F = c.fillers
        other = (u_next >= c.likely).astype(np.int64)
        # Noise takes its place by one part of its number, and its token by the rest.
        is_noise = u_noise < c.noise
        drawn = below(u_noise / c.noise if c.noise else u_noise, F)
        is_noise[:, :2], drawn[:, :2] = True, below(u_next[:, :2], F)
        # Along time the rows are contiguous, and followers are looked up in one flat table.
        other_t, noise_t, text = (np.ascontiguousarray(x.T) for x in (other, is_noise, drawn))
        flat = self._followers.ravel()
        for t in range(2, len(text)):
            follower = flat[(text[t - 2] * F + text[t - 1]) * 2 + other_t[t]]
            text[t] = np.where(noise_t[t], text[t], follower)
        return np.ascontiguousarray(text.T)

    def solve(self, tokens_BT: Tensor) -> Tensor:
        """What followed each token where it stood first."""
        return tokens_BT.roll(-1, dims=1).gather(1, first_places(tokens_BT, self.vocab))

    def classes(self, batch: Batch) -> TokenClasses:
        c, tokens_BT = self.config, batch.tokens_BT
        next_BT = tokens_BT.roll(-1, dims=1)
        at_BT = torch.arange(tokens_BT.shape[1], device=tokens_BT.device).expand_as(tokens_BT)
        again_BT = first_places(tokens_BT, c.vocab) < at_BT
        kind_BT = torch.where(self._leads(tokens_BT, next_BT), 4, 3)
        is_key_BT = (next_BT >= c.fillers) & (next_BT < c.fillers + c.keys)
        kind_BT = torch.where(is_key_BT, 2, kind_BT)
        kind_BT = torch.where(next_BT >= c.fillers + c.keys, torch.where(again_BT, 0, 1), kind_BT)
        kind_BT[:, -1] = 5
        names = ("answer", "new value", "key", "noise", "filler", "end")
        groups = {
            "recall": ("answer",),
            "irreducible": ("new value", "key", "noise"),
            "recall or irreducible": ("answer", "new value", "key", "noise"),
        }
        return TokenClasses(names, kind_BT, groups)

    def _leads(self, tokens_BT: Tensor, next_BT: Tensor) -> Tensor:
        """bool BT: whether the next token, a filler, is one that the last two fillers lead to. The first two of a row lead from
        nothing and count as noise."""
        F = self.config.fillers
        is_filler_BT = tokens_BT < F
        # Fillers in a row of their own: the number of fillers up to each position is where its last one stands there.
        count_BT = is_filler_BT.long().cumsum(dim=1)
        alone_BT = torch.zeros_like(tokens_BT)
        alone_BT.scatter_(1, torch.where(is_filler_BT, count_BT, 0), torch.where(is_filler_BT, tokens_BT, 0))
        last_BT = alone_BT.gather(1, count_BT)
        before_BT = alone_BT.gather(1, (count_BT - 1).clamp(min=0))
        followers = torch.from_numpy(self._followers).to(tokens_BT.device)
        follows_BT2 = followers[before_BT * F + last_BT] == next_BT[..., None]
        return follows_BT2.any(dim=-1) & (count_BT >= 2)

    def spelling(self) -> list[str]:
        c = self.config
        return [*numbered("f", c.fillers), *numbered("k", c.keys), *numbered("v", c.values)]


def mark_places(u: Floats, marks: int) -> Ints:
    """(N, marks) places of marks of two tokens each, in order, among as many other tokens as there are numbers beside ``marks``."""
    found: Ints = np.sort(np.argsort(u, axis=1)[:, :marks], axis=1) + np.arange(marks)
    return found


def filled(others: Ints, places: Ints) -> Ints:
    """Rows of tokens with ``others`` in their order wherever no mark of two tokens stands; marks are to be written."""
    rows, width = others.shape[0], others.shape[1] + 2 * places.shape[1]
    free = np.ones((rows, width), dtype=np.bool_)
    for offset in (0, 1):
        np.put_along_axis(free, places + offset, False, axis=1)
    tokens = np.zeros((rows, width), dtype=np.int64)
    tokens[free] = others.ravel()
    return tokens


def _seen_before(key: Ints) -> np.ndarray:
    """bool (N, M): whether the same number stands earlier in its row."""
    order = np.argsort(key, axis=1, kind="stable")
    ranked = np.take_along_axis(key, order, axis=1)
    repeats = np.zeros(key.shape, dtype=np.bool_)
    repeats[:, 1:] = ranked[:, 1:] == ranked[:, :-1]
    seen = np.empty_like(repeats)
    np.put_along_axis(seen, order, repeats, axis=1)
    return seen
