"""One matching problem: a grid of integers, what every point of it costs, and how far that is from a budget."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

from crossbreed.core.budget.budget import Budget
from crossbreed.core.budget.dimensions import Layout
from crossbreed.core.contracts.cost import CostModel
from crossbreed.core.errors import ConfigError
from crossbreed.core.ledger import Ledger

Point = tuple[int, ...]
Score = tuple[float, float, float]

FINEST = 1e-3
"""Scale of residuals whose tolerance is smaller than this, so that a tolerance of 0 can be searched."""
REACH = 16
"""Grid steps within which a legal neighbour is looked for, where settings must divide one another."""
NOTHING = 1e-9
"""What a quantity of 0 counts as where it is divided by or a logarithm is taken; every other is at least a byte or so."""
NOWHERE = (math.inf, math.inf, math.inf)


class Rule(NamedTuple):
    """One budgeted quantity; a matched one is ``two_sided``, a capped one is not."""

    quantity: str
    target: float
    tolerance: float
    two_sided: bool

    def excess(self, residual: float) -> float:
        """How far outside the tolerance a signed residual lies; negative inside."""
        return (abs(residual) if self.two_sided else residual) - self.tolerance


class Costed(NamedTuple):
    """What a point costs: its quantities and their signed relative residuals, in the order of the problem's rules."""

    values: tuple[float, ...]
    residuals: tuple[float, ...]

    def changes(self, other: Costed) -> tuple[float, ...]:
        """Relative changes of the quantities from here to there, whatever their targets."""
        pairs = zip(self.values, other.values, strict=True)
        return tuple((there - here) / max(here, NOTHING) for here, there in pairs)

    def logs(self) -> tuple[float, ...]:
        return tuple(math.log(max(value, NOTHING)) for value in self.values)


class Problem:
    """The points of a layout's grid against a budget. Remembers every point asked; deterministic."""

    def __init__(self, layout: Layout, budget: Budget, cost_model: CostModel) -> None:
        self.layout, self.budget, self.cost_model = layout, budget, cost_model
        self.shape = budget.shape.as_shape()
        self.grids = [d.grid for d in layout.dimensions]
        self.rules = [Rule(q, budget.target(q), t, True) for q, t in budget.match.items()]
        self.rules += [Rule(q, budget.target(q), t, False) for q, t in budget.cap.items()]
        self._costed: dict[Point, Costed | None] = {}
        self._scores: dict[Point, Score] = {}

    @property
    def start(self) -> Point:
        return self.layout.start()

    @property
    def size(self) -> int:
        """Points of the grid."""
        return math.prod(map(len, self.grids))

    def ledger(self, point: Point) -> Ledger:
        return self.cost_model.estimate(self.layout.at(point), self.shape)

    def costed(self, point: Point) -> Costed | None:
        """What a point costs; None where dimensions legal alone are not legal together."""
        if point not in self._costed:
            try:
                ledger = self.ledger(point)
            except ConfigError:
                self._costed[point] = None
            else:
                values = tuple(ledger.quantity(rule.quantity) for rule in self.rules)
                off = tuple(
                    (v - rule.target) / rule.target for v, rule in zip(values, self.rules, strict=True)
                )
                self._costed[point] = Costed(values, off)
        return self._costed[point]

    def residuals(self, point: Point) -> tuple[float, ...] | None:
        """Signed relative residuals in the order of ``rules``; None where ``costed`` is."""
        found = self.costed(point)
        return None if found is None else found.residuals

    def score(self, point: Point) -> Score:
        """Minimised in this order: how far outside tolerances, how far outside half of them, how far from the proposal.

        Half a tolerance is close enough to prefer the proposed shape over a closer fit, and leaves the other half to the
        rates that training will realise.
        """
        score = self._scores.get(point)
        if score is None:
            score = self._scores[point] = self._score(point)
        return score

    def _score(self, point: Point) -> Score:
        found = self.residuals(point)
        if found is None:
            return NOWHERE
        outside = off = 0.0
        for residual, rule in zip(found, self.rules, strict=True):
            scale = max(rule.tolerance, FINEST)
            outside += (max(0.0, rule.excess(residual)) / scale) ** 2
            if rule.two_sided:
                off += (max(0.0, abs(residual) - rule.tolerance / 2) / scale) ** 2
        moved = sum(
            abs(math.log(value / d.start)) for value, d in zip(point, self.layout.dimensions, strict=True)
        )
        return (outside, off, moved)

    def feasible(self, point: Point) -> bool:
        return self.score(point)[0] == 0

    def along(self, point: Point, axis: int, value: int) -> Point:
        """``point`` with one dimension set."""
        return (*point[:axis], value, *point[axis + 1 :])

    def neighbours(self, point: Point, axis: int) -> Iterator[Point]:
        """The nearest legal points down and up along one dimension, at most ``REACH`` grid steps away."""
        grid = self.grids[axis]
        at = grid.index(point[axis])
        for way in (-1, 1):
            for i in range(at + way, at + way * (REACH + 1), way):
                if not 0 <= i < len(grid):
                    break
                other = self.along(point, axis, grid[i])
                if self.residuals(other) is not None:
                    yield other
                    break

    def best(self, count: int) -> list[Point]:
        """The best points asked so far."""
        return sorted(self._scores, key=lambda p: (self._scores[p], p))[:count]
