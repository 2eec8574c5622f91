"""The search of the matcher: one problem on a grid of integers, solved by steps of rising cost."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator

import numpy as np

from crossbreed.core.budget.budget import Budget
from crossbreed.core.budget.certificate import Path
from crossbreed.core.budget.dimensions import Layout
from crossbreed.core.contracts.cost import CostModel
from crossbreed.core.errors import ConfigError
from crossbreed.core.ledger import Ledger

Point = tuple[int, ...]
Score = tuple[float, float, float]

ENUMERATE_UP_TO = 4_000
"""Points of a grid small enough to be searched exactly where descent stalls."""
FINEST = 1e-3
"""Scale of residuals whose tolerance is smaller than this, so that a tolerance of 0 can be searched."""
SECANT_STEPS = 8
PROBES = 9
"""Values tried at once along a dimension."""
REACH = 3
"""Grid steps to each side in which descent moves two dimensions at once."""
OPTUNA_TRIALS = 160
OPTUNA_SEED = 0

NOWHERE = (math.inf, math.inf, math.inf)


class GridSearch:
    """Finds the point of a layout's grid closest to a budget. Remembers every point tried; deterministic."""

    def __init__(self, plan: Layout, budget: Budget, cost_model: CostModel) -> None:
        self.plan, self.cost_model = plan, cost_model
        self.shape = budget.shape.as_shape()
        self.grids = [d.grid for d in plan.dimensions]
        # (quantity, target, tolerance, two-sided)
        self.rules = [(q, budget.target(q), t, True) for q, t in budget.match.items()]
        self.rules += [(q, budget.target(q), t, False) for q, t in budget.cap.items()]
        self._residuals: dict[Point, tuple[float, ...] | None] = {}
        self._scores: dict[Point, Score] = {}

    def ledger(self, point: Point) -> Ledger:
        return self.cost_model.estimate(self.plan.at(point), self.shape)

    def residuals(self, point: Point) -> tuple[float, ...] | None:
        """Signed relative residuals in the order of ``rules``; None where dimensions legal alone are not legal together."""
        if point not in self._residuals:
            try:
                ledger = self.ledger(point)
            except ConfigError:
                self._residuals[point] = None
            else:
                self._residuals[point] = tuple(
                    (ledger.quantity(name) - target) / target for name, target, _, _ in self.rules
                )
        return self._residuals[point]

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
        for residual, (_, _, tolerance, two_sided) in zip(found, self.rules, strict=True):
            scale = max(tolerance, FINEST)
            distance = abs(residual) if two_sided else residual
            outside += (max(0.0, distance - tolerance) / scale) ** 2
            off += (max(0.0, distance - tolerance / 2) / scale) ** 2 if two_sided else 0.0
        moved = sum(
            abs(math.log(value / d.start)) for value, d in zip(point, self.plan.dimensions, strict=True)
        )
        return (outside, off, moved)

    def feasible(self, point: Point) -> bool:
        return self.score(point)[0] == 0

    def solve(self) -> tuple[Point, Path]:
        """The best point found, and the step that found it.

        Secant steps from the proposal, then descent; where that stalls outside the budget, every point of a small grid, or
        Optuna and descent again on a large one.
        """
        best, path = self._better((self.plan.start(), "given"), self._secant(), "closed_form")
        best, path = self._better((best, path), self._descent(best), "coordinate_descent")
        if self.feasible(best) or not self.grids:
            return best, path
        if math.prod(map(len, self.grids)) <= ENUMERATE_UP_TO:
            return self._better((best, path), itertools.product(*self.grids), "enumeration")
        best, path = self._better((best, path), self._sampled(best), "optuna")
        return self._better((best, path), self._descent(best), path)

    def neighbours(self, point: Point, axis: int) -> Iterator[Point]:
        """The points one grid step down and up along one dimension."""
        grid = self.grids[axis]
        at = grid.index(point[axis])
        for i in (at - 1, at + 1):
            if 0 <= i < len(grid):
                yield (*point[:axis], grid[i], *point[axis + 1 :])

    def _better(self, best: tuple[Point, Path], points: Iterable[Point], name: Path) -> tuple[Point, Path]:
        for point in points:
            if self.score(point) < self.score(best[0]):
                best = (point, name)
        return best

    def _secant(self) -> Iterator[Point]:
        """Newton steps in the logarithms of the dimensions, with slopes from grid neighbours, rounded to the grid.

        Quantities are nearly products of powers of the dimensions, so that few steps reach the answer. Of all steps that
        meet the targets the shortest is taken.
        """
        point = self.plan.start()
        for _ in range(SECANT_STEPS if self.grids else 0):
            aim_Q, slopes_QN = self._linearised(point)
            if not len(aim_Q):
                return
            step_N = np.linalg.lstsq(slopes_QN, aim_Q, rcond=1e-6)[0]
            wanted = [v * math.exp(min(max(s, -1.0), 1.0)) for v, s in zip(point, step_N, strict=True)]
            moved = tuple(
                min(grid, key=lambda g: (abs(g - w), g)) for grid, w in zip(self.grids, wanted, strict=True)
            )
            if moved == point or self.residuals(moved) is None:
                return
            point = moved
            yield point

    def _linearised(self, point: Point) -> tuple[np.ndarray, np.ndarray]:
        """Changes wanted in the log of each quantity, and their slopes along the log of each dimension."""
        here = self.residuals(point)
        if here is None:
            return np.zeros(0), np.zeros((0, len(point)))
        rows = [
            q for q, (_, _, tolerance, two_sided) in enumerate(self.rules) if two_sided or here[q] > tolerance
        ]
        # A cap that is broken is aimed at its middle; everything else at its target.
        aims = [0.0 if self.rules[q][3] else self.rules[q][2] / 2 for q in rows]
        aim_Q = np.array([math.log1p(a) - math.log1p(here[q]) for a, q in zip(aims, rows, strict=True)])
        slopes_QN = np.zeros((len(rows), len(point)))
        for axis in range(len(point)):
            for other in self.neighbours(point, axis):
                there = self.residuals(other)
                if there is None:
                    continue
                run = math.log(other[axis] / point[axis])
                slopes_QN[:, axis] = [(math.log1p(there[q]) - math.log1p(here[q])) / run for q in rows]
        return aim_Q, slopes_QN

    def _descent(self, point: Point) -> Iterator[Point]:
        """Lines through the best point, one dimension at a time; where they stall, planes of two nearby."""
        while True:
            before = point
            # Planes are for reaching the budget, not for coming closer to the proposal within it.
            for moves in (self._lines, self._planes) if self.score(point)[1] else (self._lines,):
                for candidate in moves(point):
                    if self.score(candidate) < self.score(point):
                        point = candidate
                        yield point
                if point != before:
                    break
            if point == before:
                return

    def _lines(self, point: Point) -> Iterator[Point]:
        """Along each dimension: evenly spaced values, then ever closer ones around the best, then all near it."""
        for axis, grid in enumerate(self.grids):
            line = [(*point[:axis], value, *point[axis + 1 :]) for value in grid]
            low, high = 0, len(line) - 1
            while high - low > 2 * PROBES:
                gap = (high - low) / (PROBES - 1)
                probes = [low + round(i * gap) for i in range(PROBES)]
                yield from (line[i] for i in probes)
                best = min(range(PROBES), key=lambda i: self.score(line[probes[i]]))
                low, high = probes[max(best - 1, 0)], probes[min(best + 1, PROBES - 1)]
            yield from line[low : high + 1]

    def _planes(self, point: Point) -> Iterator[Point]:
        for a, b in itertools.combinations(range(len(self.grids)), 2):
            near_a, near_b = self._near(point, a), self._near(point, b)
            for x, y in itertools.product(near_a, near_b):
                moved = list(point)
                moved[a], moved[b] = x, y
                yield tuple(moved)

    def _near(self, point: Point, axis: int) -> tuple[int, ...]:
        at = self.grids[axis].index(point[axis])
        return self.grids[axis][max(0, at - REACH) : at + REACH + 1]

    def _sampled(self, best: Point) -> Iterator[Point]:
        """Points proposed by Optuna's tree-structured Parzen estimator with a fixed seed."""
        # Imported here, since most searches end before it and it is slow to import.
        import optuna

        before = optuna.logging.get_verbosity()
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        try:
            study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=OPTUNA_SEED))
        finally:
            optuna.logging.set_verbosity(before)
        names = [d.name for d in self.plan.dimensions]
        study.enqueue_trial({n: g.index(v) for n, g, v in zip(names, self.grids, best, strict=True)})
        for _ in range(OPTUNA_TRIALS):
            trial = study.ask()
            point = tuple(
                g[trial.suggest_int(n, 0, len(g) - 1)] for n, g in zip(names, self.grids, strict=True)
            )
            outside = self.score(point)[0]
            if math.isfinite(outside):
                study.tell(trial, outside)
                yield point
                if outside == 0:
                    return
            else:
                study.tell(trial, state=optuna.trial.TrialState.FAIL)
