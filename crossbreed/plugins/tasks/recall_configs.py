"""Settings of the tasks that recall inside a stream of tokens. Torch-free."""

from __future__ import annotations

import math
from typing import Literal

from pydantic import Field

from crossbreed.plugins.tasks.synthetic_configs import SyntheticConfig

Targets = Literal["all", "answers"]
"""Whether every token is a target, as in a language model, or only the answers."""


class NoisyRecallConfig(SyntheticConfig):
    """Noisy in-context recall: pairs ``key value`` one after the other, noise tokens between them; a key that comes again has the
    value it had before.

    keys, values: different ones; a row draws each key's value anew. noise: share of a row's tokens that are noise (0: none, plain
    in-context recall). noises: different noise tokens, drawn evenly.
    """

    length: int = Field(default=64, ge=2)
    keys: int = Field(default=8, ge=1)
    values: int = Field(default=16, ge=2)
    noise: float = Field(default=0.25, ge=0, lt=1)
    noises: int = Field(default=8, ge=1)

    @property
    def vocab(self) -> int:
        return self.noises + self.keys + self.values

    @property
    def pairs(self) -> int:
        """Pairs in a row."""
        return (self.length - round(self.noise * self.length)) // 2

    @property
    def hay(self) -> int:
        """Noise tokens in a row: one more where a pair does not fit evenly."""
        return self.length - 2 * self.pairs

    def distinct_rows(self) -> int:
        # At least: every key once, then keys that are known.
        keys = math.factorial(self.keys) * self.keys ** (self.pairs - self.keys)
        places = math.comb(self.hay + self.pairs, self.pairs) * self.noises**self.hay
        return int(keys * self.values**self.keys * places)

    def check(self) -> None:
        if self.pairs <= self.keys:
            raise ValueError(
                f"length {self.length} is too short: at noise {self.noise:g} it holds {self.pairs} pairs, and one of {self.keys} keys "
                f"comes again for sure only among {self.keys + 1}"
            )


class FuzzyRecallConfig(SyntheticConfig):
    """Fuzzy in-context recall: keys and values are several tokens long, and not all equally; a key that comes again has the value
    it had before, and each of the value's tokens is due.

    key_tokens, value_tokens: different tokens that keys, and values, are made of. key_length, value_length: tokens in the longest
    key, and value; one in so many has each length. pairs: different keys in a row.
    """

    length: int = Field(default=64, ge=2)
    key_tokens: int = Field(default=16, ge=2)
    value_tokens: int = Field(default=16, ge=2)
    key_length: int = Field(default=2, ge=1, le=8)
    value_length: int = Field(default=2, ge=1, le=8)
    pairs: int = Field(default=4, ge=1)

    @property
    def vocab(self) -> int:
        return self.key_tokens + self.value_tokens + 1

    @property
    def most_pairs(self) -> int:
        """Pairs that a row can hold at most."""
        return self.length // 2

    def distinct_rows(self) -> int:
        # At least: every pair once, with a key and a value of one token, then pairs that are known, each as long as can be.
        whole = self.length // (self.key_length + self.value_length)
        return int(self.value_tokens**self.pairs * self.key_tokens * self.pairs ** (whole - self.pairs))

    def check(self) -> None:
        longest = self.key_length + self.value_length
        self.needs_length(
            (self.pairs + 1) * longest,
            f"{self.pairs} pairs of up to {longest} tokens, one of them twice,",
        )
        # Pair i has a key of 1 + i % key_length tokens; keys of one length differ.
        shortest = -(-self.pairs // self.key_length)
        if shortest > self.key_tokens:
            raise ValueError(
                f"pairs {self.pairs} need {shortest} different keys of one token, and key_tokens is {self.key_tokens}; raise it"
            )


class FillerRecallConfig(SyntheticConfig):
    """Recall in predictable filler: pairs ``key value`` scattered in a text of low entropy, asked for later in the same way, and a
    share of the text that nobody can predict.

    pairs:    key-value pairs in a row, their keys distinct: what a state must hold. queries: times that keys come again, each
              behind its pair, keys in turn. keys, values: different ones.
    fillers:  different tokens of the filler. It is a text of order 2: two fillers have two followers, the same in every row, the
              likely one with probability ``likely``.
    noise:    share of the filler that is replaced by a filler drawn evenly, from which the text goes on: irreducible, whatever a
              model holds.
    targets:  every next token, or answers alone. The score counts answers alone.
    world:    which fillers follow which.
    """

    length: int = Field(default=128, ge=2)
    eval_items: int = Field(default=256, ge=1)
    pairs: int = Field(default=8, ge=1)
    queries: int = Field(default=8, ge=1)
    keys: int = Field(default=16, ge=1)
    values: int = Field(default=16, ge=2)
    fillers: int = Field(default=16, ge=3)
    likely: float = Field(default=0.95, gt=0.5, le=1)
    noise: float = Field(default=0.0, ge=0, le=1)
    targets: Targets = "all"
    world: int = 0

    @property
    def vocab(self) -> int:
        return self.fillers + self.keys + self.values

    @property
    def marks(self) -> int:
        """Places in a row where a key and its value stand."""
        return self.pairs + self.queries

    @property
    def filler(self) -> int:
        """Filler tokens in a row."""
        return self.length - 2 * self.marks

    def distinct_rows(self) -> int:
        # At least: the filler may be told by its first two tokens.
        pairs = math.perm(self.keys, self.pairs) * self.values**self.pairs
        return int(
            pairs * math.comb(self.filler + self.marks, self.marks) * self.fillers ** min(self.filler, 2)
        )

    def check(self) -> None:
        self.needs_length(2 * self.marks, f"{self.pairs} pairs and {self.queries} queries with their answers")
        if self.pairs > self.keys:
            raise ValueError(f"pairs {self.pairs} need distinct keys, and there are {self.keys}")
