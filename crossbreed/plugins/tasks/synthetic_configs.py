"""Settings of the tasks that are made from random numbers, apart from recall. Torch-free."""

from __future__ import annotations

import math
from functools import cached_property
from itertools import permutations
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from crossbreed.plugins.tasks.configs import ROWS_PER_ITEM

MOST_NAMES = 1 << 16
"""Token ids of windows at most."""

Scored = Literal["every", "last"]
"""Whether a state is asked for after every step, or only after the last one."""


class SyntheticConfig(BaseModel):
    """What all of them say.

    length:     tokens in a row.
    eval_items: rows of the fixed evaluation set.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    length: int = Field(default=32, ge=2)
    eval_items: int = Field(default=512, ge=1)

    @property
    def vocab(self) -> int:
        """Token ids in all."""
        raise NotImplementedError(f"{type(self).__name__} must define vocab")

    def distinct_rows(self) -> int:
        """How many different rows the settings allow, at least."""
        raise NotImplementedError(f"{type(self).__name__} must define distinct_rows()")

    def needs_length(self, least: int, what: str) -> None:
        """Refuse a length below ``least``. Raises ValueError with the rule."""
        if self.length < least:
            raise ValueError(f"length {self.length} is too short: {what} take {least} tokens")

    @model_validator(mode="after")
    def _rows_exist(self) -> SyntheticConfig:
        self.check()
        if self.distinct_rows() < ROWS_PER_ITEM * self.eval_items:
            raise ValueError(
                f"only {self.distinct_rows()} different rows exist for these settings, and {self.eval_items} evaluation "
                f"items apart from training need at least {ROWS_PER_ITEM * self.eval_items}; raise length, or lower "
                f"eval_items"
            )
        return self

    def check(self) -> None:
        """Refuse settings that do not go together. Raises ValueError with the rule."""


class CopyConfig(SyntheticConfig):
    """The copying memory task: symbols, a marker, then as many blanks, at each of which one symbol is due.

    symbols: different ones. A row holds (length - 1) // 2 of them.
    """

    symbols: int = Field(default=16, ge=2)

    @property
    def vocab(self) -> int:
        return self.symbols + 2

    @property
    def items(self) -> int:
        return (self.length - 1) // 2

    def distinct_rows(self) -> int:
        return int(self.symbols**self.items)

    def check(self) -> None:
        self.needs_length(3, "one symbol, the marker and a blank")


class SelectiveCopyConfig(SyntheticConfig):
    """Copying of what stands among noise: ``items`` symbols anywhere in the first part, then one blank for each.

    symbols: different ones. items: how many a row holds.
    """

    symbols: int = Field(default=16, ge=2)
    items: int = Field(default=8, ge=1)
    length: int = Field(default=48, ge=2)

    @property
    def vocab(self) -> int:
        return self.symbols + 2

    def distinct_rows(self) -> int:
        places = math.comb(self.length - self.items, self.items)
        return int(places * self.symbols**self.items)

    def check(self) -> None:
        self.needs_length(2 * self.items, f"{self.items} symbols and a blank for each")


class CompressionConfig(SyntheticConfig):
    """Compression into one state: windows of ``span`` tokens in which ``items`` symbols stand anywhere among blanks, each closed by
    a marker, at which the one token is due that names all of them.

    symbols: different ones; symbols ** items names exist. items: in a window: what one state must hold. span: tokens of a window.
    A row holds as many windows as there is room for.
    """

    symbols: int = Field(default=4, ge=2)
    items: int = Field(default=3, ge=1)
    span: int = Field(default=7, ge=1)

    @property
    def names(self) -> int:
        """Different windows, blanks apart."""
        return int(self.symbols**self.items)

    @property
    def vocab(self) -> int:
        return self.symbols + 2 + self.names

    @property
    def windows(self) -> int:
        """Windows in a row."""
        return self.length // (self.span + 1)

    def distinct_rows(self) -> int:
        return int((self.names * math.comb(self.span, self.items)) ** self.windows)

    def check(self) -> None:
        if self.items > self.span:
            raise ValueError(f"items {self.items} do not fit into a window of span {self.span}; raise it")
        if self.names > MOST_NAMES:
            raise ValueError(
                f"symbols {self.symbols} and items {self.items} make {self.names} names, each a token id; {MOST_NAMES} is the most"
            )
        self.needs_length(self.span + 1, f"a window of span {self.span} and its marker")


class FactsConfig(SyntheticConfig):
    """Facts kept in weights: every key has one value for ever, and each key of a row asks for it. Nothing repeats an operator, so
    depth does not help: a negative control.

    facts:  keys, each with its value. values: different values, as evenly used as can be.
    world:  which facts are true.
    """

    facts: int = Field(default=64, ge=2)
    values: int = Field(default=16, ge=2)
    world: int = 0

    @property
    def vocab(self) -> int:
        return self.facts + self.values

    def distinct_rows(self) -> int:
        return int(self.facts**self.length)

    def check(self) -> None:
        if self.values > self.facts:
            raise ValueError(
                f"values {self.values} is more than the {self.facts} facts that could have them; lower it"
            )


class ParityConfig(SyntheticConfig):
    """The parity of all bits so far.

    scored: after every bit, or after the last one only.
    """

    scored: Scored = "every"

    @property
    def vocab(self) -> int:
        return 2

    def distinct_rows(self) -> int:
        return int(2**self.length)


class ArithmeticConfig(SyntheticConfig):
    """A chain of operations modulo a prime, from left to right without precedence: ``v0 op v1 op v2 ...``.

    modulus: a prime, so that every result is equally likely. scored: after every number, or after the last one only.
    """

    modulus: int = Field(default=7, ge=2)
    scored: Scored = "every"

    @property
    def vocab(self) -> int:
        return self.modulus + 4

    @property
    def steps(self) -> int:
        """Operations in a row."""
        return (self.length - 1) // 2

    def distinct_rows(self) -> int:
        # A sum, a difference or a product by anything but 0.
        return int(self.modulus * (3 * self.modulus - 1) ** self.steps)

    def check(self) -> None:
        self.needs_length(3, "two numbers and the operation between them")
        prime = self.modulus > 1 and all(self.modulus % n for n in range(2, math.isqrt(self.modulus) + 1))
        if not prime:
            raise ValueError(
                f"modulus {self.modulus} is no prime; only under a prime are all results equally likely"
            )


class PermutationsConfig(SyntheticConfig):
    """The word problem of a symmetric group: the product of all permutations so far.

    points: permuted ones; 5 is the smallest at which the problem is as hard as any regular language (NC1).
    moved:  the most points that one permutation of a row moves; 2: rows are of swaps, whose products are any permutation still
            (Grazzi et al. 2025).
    scored: after every permutation, or after the last one only.
    """

    length: int = Field(default=16, ge=2)
    points: int = Field(default=5, ge=2, le=5)
    moved: int = Field(default=5, ge=2, le=5)
    scored: Scored = "every"

    @property
    def vocab(self) -> int:
        return math.factorial(self.points)

    @cached_property
    def drawn(self) -> tuple[int, ...]:
        """The tokens that rows are made of: numbers of permutations in lexical order."""
        every = enumerate(permutations(range(self.points)))
        return tuple(n for n, to in every if sum(at != place for place, at in enumerate(to)) <= self.moved)

    def distinct_rows(self) -> int:
        return int(len(self.drawn) ** self.length)


class PointersConfig(SyntheticConfig):
    """Pointer chasing: pairs ``place next`` of one random cycle in random order, then queries ``start hops``: where is one after
    so many hops?

    places:   on the cycle. hops: the most that are asked for.
    held_out: numbers of hops that training never asks for, and evaluation asks for alone (none: it asks for all).
    """

    places: int = Field(default=8, ge=3)
    hops: int = Field(default=4, ge=1)
    held_out: tuple[int, ...] = ()

    @property
    def vocab(self) -> int:
        return self.places + self.hops + 1

    @property
    def queries(self) -> int:
        """Queries in a row: as many as there is room for."""
        return (self.length - 2 * self.places) // 2

    @property
    def trained_hops(self) -> tuple[int, ...]:
        return tuple(h for h in range(1, self.hops + 1) if h not in self.held_out)

    def distinct_rows(self) -> int:
        asked = min(len(self.held_out) or self.hops, len(self.trained_hops))
        cycles = math.factorial(self.places - 1) * math.factorial(self.places)
        return int(cycles * (self.places * asked) ** self.queries)

    def check(self) -> None:
        self.needs_length(2 * self.places + 2, f"{self.places} pairs and a query")
        if self.hops >= self.places:
            raise ValueError(
                f"hops {self.hops} leads round the whole cycle of {self.places} places; it must be below places"
            )
        wrong = [h for h in self.held_out if not 1 <= h <= self.hops]
        if wrong or not self.trained_hops:
            raise ValueError(
                f"held_out {list(self.held_out)} must name some, and not all, of the hops 1 to {self.hops}"
            )


class RegistersConfig(SyntheticConfig):
    """Straight-line programs on a few registers, three tokens an instruction: ``register operation operand``.

    Each register is first set to a number; then instructions set one to a number or to another register, or add or subtract
    another register, modulo ``modulus``.
    registers: how many. scored: the changed register's value after every instruction, or after the last one only.
    """

    length: int = Field(default=48, ge=2)
    registers: int = Field(default=4, ge=2)
    modulus: int = Field(default=7, ge=2)
    scored: Scored = "every"

    @property
    def vocab(self) -> int:
        return self.modulus + self.registers + 4

    @property
    def steps(self) -> int:
        """Instructions in a row, those that set registers first among them."""
        return self.length // 3

    def distinct_rows(self) -> int:
        first = math.factorial(self.registers) * self.modulus**self.registers
        each = self.registers * (self.modulus + 3 * (self.registers - 1))
        return int(first * each ** (self.steps - self.registers))

    def check(self) -> None:
        self.needs_length(
            3 * self.registers + 3, f"setting {self.registers} registers and one instruction more"
        )


class VariablesConfig(SyntheticConfig):
    """Variable tracking: ``x1 = value, x2 = x1, x3 = x2 ...`` in chains that are mixed, then variables are asked for.

    chains: values that are handed on. hops: variables along each chain. values: different values.
    A row states every variable once, each after the one it copies, as ``name source``; then it asks for as many as there is
    room for.
    """

    chains: int = Field(default=3, ge=1)
    hops: int = Field(default=3, ge=1)
    values: int = Field(default=12, ge=2)

    @property
    def variables(self) -> int:
        return self.chains * self.hops

    @property
    def vocab(self) -> int:
        return self.variables + self.values + 1

    @property
    def queries(self) -> int:
        return self.length - 2 * self.variables - 1

    def distinct_rows(self) -> int:
        orders = math.factorial(self.variables)
        return int(orders * self.values**self.chains)

    def check(self) -> None:
        self.needs_length(2 * self.variables + 2, f"{self.variables} statements, the marker and a query")


class NeedleConfig(SyntheticConfig):
    """Needles in a haystack: pairs ``key value`` anywhere among noise, then keys are asked for at the row's end.

    needles: pairs, their keys distinct. queries: keys asked for. keys, values: different ones.
    noise:   different noise tokens, drawn evenly: they cannot be predicted.
    """

    length: int = Field(default=64, ge=2)
    needles: int = Field(default=4, ge=1)
    queries: int = Field(default=4, ge=1)
    keys: int = Field(default=16, ge=1)
    values: int = Field(default=16, ge=2)
    noise: int = Field(default=16, ge=1)

    @property
    def vocab(self) -> int:
        return self.noise + self.keys + self.values + 1

    @property
    def hay(self) -> int:
        """Noise tokens in a row."""
        return self.length - 2 * self.needles - 1 - self.queries

    def distinct_rows(self) -> int:
        pairs = math.perm(self.keys, self.needles) * self.values**self.needles
        return int(pairs * math.comb(self.hay + self.needles, self.needles) * self.noise**self.hay)

    def check(self) -> None:
        self.needs_length(
            2 * self.needles + 1 + self.queries,
            f"{self.needles} pairs, the marker and {self.queries} queries",
        )
        if self.needles > self.keys:
            raise ValueError(f"needles {self.needles} need distinct keys, and there are {self.keys}")
