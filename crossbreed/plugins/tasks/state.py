"""State: what must be carried from step to step and cannot be looked up, from one bit to a permutation group and registers."""

from __future__ import annotations

from functools import cached_property
from itertools import permutations

import numpy as np
import torch
from torch import Tensor

from crossbreed.core.contracts.task import IGNORE, Batch, TokenClasses
from crossbreed.plugins.tasks.scores import most_frequent
from crossbreed.plugins.tasks.synthetic import Floats, Ints, Rows, Synthetic, below, numbered, solved
from crossbreed.plugins.tasks.synthetic_configs import (
    ArithmeticConfig,
    ParityConfig,
    PermutationsConfig,
    RegistersConfig,
    Scored,
)


class Parity(Synthetic):
    """``1 0 1 1 ...``: at each bit whether the count of ones so far is odd."""

    name = "parity"
    config: ParityConfig

    @property
    def chance(self) -> float:
        return 0.5

    @property
    def numbers(self) -> int:
        return self.config.length

    def write(self, u: Floats, judged: bool) -> Rows:
        bits = below(u, 2)
        return Rows(bits, _asked(_parity(bits), self.config.scored))

    def solve(self, tokens_BT: Tensor) -> Tensor:
        """Count the ones."""
        return tokens_BT.cumsum(dim=1) % 2


def _parity(bits: Ints) -> Ints:
    found: Ints = np.cumsum(bits, axis=1) % 2
    return found


class Permutations(Synthetic):
    """``p q r ...``: at each permutation the product of all so far, applied from left to right (Liu et al. 2023; Merrill et al.
    2024). Tokens are the permutations in lexical order, 0 leaves everything in its place."""

    name = "permutations"
    config: PermutationsConfig

    @property
    def chance(self) -> float:
        return 1.0 / self.config.vocab

    @cached_property
    def table(self) -> Ints:
        """(V, V) number of the permutation that applies the row's first and the column's then."""
        every = np.array(list(permutations(range(self.config.points))), dtype=np.int64)
        number = {tuple(p): i for i, p in enumerate(every.tolist())}
        return np.array([[number[tuple(then[first])] for then in every] for first in every], dtype=np.int64)

    @property
    def numbers(self) -> int:
        return self.config.length

    def write(self, u: Floats, judged: bool) -> Rows:
        drawn = self.config.drawn
        tokens = np.array(drawn, dtype=np.int64)[below(u, len(drawn))]
        return Rows(tokens, _asked(self._products(tokens), self.config.scored))

    def _products(self, tokens: Ints) -> Ints:
        found = np.empty_like(tokens)
        now = np.zeros(len(tokens), dtype=np.int64)
        for at in range(tokens.shape[1]):
            now = found[:, at] = self.table[now, tokens[:, at]]
        return found

    def solve(self, tokens_BT: Tensor) -> Tensor:
        """Multiply from left to right."""
        return solved(self._products(tokens_BT.cpu().numpy()))


class Arithmetic(Synthetic):
    """``3 + 5 x 2 - 6 ...``: at each number the value so far, modulo a prime, strictly from left to right.

    Factors are not 0 and the modulus is prime, so that every value stays equally likely however long the chain.
    """

    name = "arithmetic"
    config: ArithmeticConfig
    OPERATIONS = "+-x"

    @property
    def chance(self) -> float:
        return 1.0 / self.config.modulus

    @property
    def numbers(self) -> int:
        return 1 + 2 * self.config.steps

    def write(self, u: Floats, judged: bool) -> Rows:
        c = self.config
        u_number, u_operation = u[:, 0::2], u[:, 1::2]
        operation = below(u_operation, 3)
        number = below(u_number, c.modulus)
        factor = 1 + below(u_number[:, 1:], c.modulus - 1)
        number[:, 1:] = np.where(operation == 2, factor, number[:, 1:])
        tokens = np.full((len(u), c.length), c.vocab - 1, dtype=np.int64)
        end = 2 * c.steps + 1
        tokens[:, 0:end:2], tokens[:, 1:end:2] = number, c.modulus + operation
        return Rows(tokens, _asked(self._values(tokens), c.scored))

    def _values(self, tokens: Ints) -> Ints:
        """The value at each number, IGNORE elsewhere."""
        c = self.config
        found = np.full_like(tokens, IGNORE)
        now = found[:, 0] = tokens[:, 0]
        for at in range(2, 2 * c.steps + 1, 2):
            operation, number = tokens[:, at - 1] - c.modulus, tokens[:, at]
            now = found[:, at] = np.choose(operation, (now + number, now - number, now * number)) % c.modulus
        return found

    def solve(self, tokens_BT: Tensor) -> Tensor:
        """Calculate."""
        return solved(self._values(tokens_BT.cpu().numpy())).clamp(min=0)

    def classes(self, batch: Batch) -> TokenClasses:
        c = self.config
        operation_BT = (batch.tokens_BT >= c.modulus).long()
        return TokenClasses(
            ("number", "operation", "end"), torch.where(batch.tokens_BT == c.vocab - 1, 2, operation_BT)
        )

    def spelling(self) -> list[str]:
        return [*map(str, range(self.config.modulus)), *self.OPERATIONS, "·"]


class Registers(Synthetic):
    """``a = 3  b = 5  a + b  c = a ...``: at each operand the changed register's new value, modulo ``modulus``."""

    name = "registers"
    config: RegistersConfig
    OPERATIONS = "=+-"

    @property
    def chance(self) -> float:
        return 1.0 / self.config.modulus

    def baselines(self) -> dict[str, float]:
        """Values are not equally likely: what is copied and then subtracted is 0."""
        return most_frequent(self._evaluation_rows.labels)

    @property
    def numbers(self) -> int:
        c = self.config
        return 2 * c.registers + 4 * (c.steps - c.registers)

    def write(self, u: Floats, judged: bool) -> Rows:
        c = self.config
        u_order, u_first, u_rest = np.split(u, [c.registers, 2 * c.registers], axis=1)
        tokens = np.full((len(u), c.length), c.vocab - 1, dtype=np.int64)
        first = tokens[:, : 3 * c.registers]
        first[:, 0::3] = c.modulus + np.argsort(u_order, axis=1)
        first[:, 1::3] = c.modulus + c.registers
        first[:, 2::3] = below(u_first, c.modulus)
        changed = below(u_rest[:, 0::4], c.registers)
        operation = below(u_rest[:, 1::4], 3)
        # Another register than the changed one, so that nothing is subtracted from itself.
        other = (changed + 1 + below(u_rest[:, 2::4], c.registers - 1)) % c.registers
        # Half of the plain assignments are of numbers.
        share = u_rest[:, 3::4]
        number = below(2 * np.minimum(share, 0.5 - 1e-12), c.modulus)
        rest = tokens[:, 3 * c.registers : 3 * c.steps]
        rest[:, 0::3] = c.modulus + changed
        rest[:, 1::3] = c.modulus + c.registers + operation
        rest[:, 2::3] = np.where((operation == 0) & (share < 0.5), number, c.modulus + other)
        return Rows(tokens, _asked(self._values(tokens), c.scored))

    def _values(self, tokens: Ints) -> Ints:
        """The changed register's value at each operand, IGNORE elsewhere."""
        c = self.config
        found = np.full_like(tokens, IGNORE)
        every = np.arange(len(tokens))
        held = np.zeros((len(tokens), c.registers), dtype=np.int64)
        for at in range(0, 3 * c.steps, 3):
            changed = tokens[:, at] - c.modulus
            operation, operand = tokens[:, at + 1] - c.modulus - c.registers, tokens[:, at + 2]
            value = np.where(operand < c.modulus, operand, held[every, np.maximum(operand - c.modulus, 0)])
            before = held[every, changed]
            now = np.choose(operation, (value, before + value, before - value)) % c.modulus
            held[every, changed] = found[:, at + 2] = now
        return found

    def solve(self, tokens_BT: Tensor) -> Tensor:
        """Run the program."""
        return solved(self._values(tokens_BT.cpu().numpy())).clamp(min=0)

    def classes(self, batch: Batch) -> TokenClasses:
        at_T = torch.arange(batch.tokens_BT.shape[1], device=batch.tokens_BT.device)
        kind_T = torch.where(at_T < 3 * self.config.steps, at_T % 3, 3)
        return TokenClasses(
            ("register", "operation", "operand", "end"), kind_T.expand_as(batch.tokens_BT).clone()
        )

    def spelling(self) -> list[str]:
        c = self.config
        return [*map(str, range(c.modulus)), *numbered("r", c.registers), *self.OPERATIONS, "·"]


def _asked(states: Ints, scored: Scored) -> Ints:
    """Labels from the states after each step: all of them, or each row's last."""
    if scored == "every":
        return states
    last = states.shape[1] - 1 - np.argmax(states[:, ::-1] != IGNORE, axis=1)[:, None]
    labels = np.full_like(states, IGNORE)
    np.put_along_axis(labels, last, np.take_along_axis(states, last, axis=1), axis=1)
    return labels
