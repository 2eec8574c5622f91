"""Solvers of a matching problem, from the cheapest to the dearest. Each yields points worth a look; the best is kept."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Set
from typing import Literal, get_args

import numpy as np

from crossbreed.core.budget.certificate import Path
from crossbreed.core.budget.problem import Point, Problem
from crossbreed.core.errors import ConfigError, UnknownName

Solver = Literal["auto", "descent", "optuna", "enumeration"]
SOLVERS: tuple[Solver, ...] = get_args(Solver)

ENUMERATE_UP_TO = 4_000
"""Points of a grid small enough to be searched exactly where descent stalls."""
ENUMERATE_AT_MOST = 200_000
"""Points of the largest grid that is searched exactly on request."""
SECANT_STEPS = 8
SWEEPS = 32
RIVALS = 3
"""Dimensions per quantity among which coordinate descent looks for the one that solves it."""
PROBES = 9
"""Values tried at once along a dimension."""
PLANE = 3
"""Grid steps to each side in which descent moves two dimensions at once."""
FEW = 24
"""Values of a dimension so coarse that the others are solved anew for each of them."""
OPTUNA_TRIALS = 100
OPTUNA_SEED = 0
OPTUNA_STARTS = 8
"""Best points so far that Optuna begins with."""

Found = tuple[Point, Path]


def solve(problem: Problem, solver: Solver = "auto") -> Found:
    """The best point found, and the step that found it.

    ``auto``: secant steps from the proposal, coordinate descent, and where that stalls outside the budget every point of
    a small grid, or Optuna and descent again on a large one. ``descent`` and ``optuna`` stop after their own step;
    ``enumeration`` tries every point. Raises UnknownName for another solver, and ConfigError where a grid is too large
    to be enumerated.
    """
    if solver not in SOLVERS:
        raise UnknownName("solver", solver, SOLVERS)
    found: Found = (problem.start, "given")
    if not problem.grids:
        return found
    if solver == "enumeration":
        return _better(problem, found, "enumeration", enumeration(problem))
    if solver == "auto":
        found = _better(problem, found, "closed_form", secant(problem, found[0]))
    if solver != "optuna":
        # From the proposal, as published; then from the best point, by ever smaller steps.
        found = _descended(problem, found, "coordinate_descent", problem.start)
    if problem.feasible(found[0]) or solver == "descent":
        return found
    if solver == "auto" and problem.size <= ENUMERATE_UP_TO:
        return _better(problem, found, "enumeration", enumeration(problem))
    found = _better(problem, found, "optuna", sampled(problem, found[0]))
    return found if problem.feasible(found[0]) else _descended(problem, found, "optuna", found[0])


def _descended(problem: Problem, found: Found, path: Path, start: Point) -> Found:
    found = _better(problem, found, path, alternating(problem, start))
    found = _better(problem, found, path, descent(problem, found[0]))
    if problem.feasible(found[0]):
        return found
    found = _better(problem, found, path, nested(problem, found[0]))
    return _better(problem, found, path, descent(problem, found[0]))


def _better(problem: Problem, best: Found, path: Path, points: Iterable[Point]) -> Found:
    for point in points:
        if problem.score(point) < problem.score(best[0]):
            best = (point, path)
    return best


def secant(problem: Problem, point: Point, still: Set[int] = frozenset()) -> Iterator[Point]:
    """Newton steps in the logarithms of the dimensions, with slopes from grid neighbours, rounded to the grid.

    Quantities are nearly products of powers of the dimensions, so that few steps reach the answer. Of all steps that meet
    the targets the shortest is taken. Dimensions in ``still`` stay.
    """
    for _ in range(SECANT_STEPS):
        here = problem.costed(point)
        if here is None:
            return
        off, logs = here.residuals, here.logs()
        rows = [q for q, rule in enumerate(problem.rules) if rule.two_sided or rule.excess(off[q]) > 0]
        if not rows:
            return
        # A cap that is broken is aimed at its middle; everything else at its target.
        aims = [0.0 if problem.rules[q].two_sided else problem.rules[q].tolerance / 2 for q in rows]
        wanted_Q = [
            math.log1p(a) + math.log(problem.rules[q].target) for a, q in zip(aims, rows, strict=True)
        ]
        aim_Q = np.array(wanted_Q) - np.array([logs[q] for q in rows])
        step_N = np.linalg.lstsq(slopes(problem, point, still)[rows], aim_Q, rcond=1e-6)[0]
        wanted = [v * math.exp(min(max(s, -1.0), 1.0)) for v, s in zip(point, step_N, strict=True)]
        moved = tuple(
            min(grid, key=lambda g: (abs(g - w), g)) for grid, w in zip(problem.grids, wanted, strict=True)
        )
        if moved == point or problem.residuals(moved) is None:
            return
        point = moved
        yield point


def slopes(problem: Problem, point: Point, still: Set[int] = frozenset()) -> np.ndarray:
    """Slopes of the log of each quantity (rows) along the log of each dimension (columns), from grid neighbours; 0 for
    dimensions that stand still."""
    here = problem.costed(point)
    slopes_QN = np.zeros((len(problem.rules), len(point)))
    if here is None:
        return slopes_QN
    for axis in set(range(len(point))) - still:
        for other in problem.neighbours(point, axis):
            there = problem.costed(other)
            if there is not None:
                run = math.log(other[axis] / point[axis])
                slopes_QN[:, axis] = [(b - a) / run for a, b in zip(here.logs(), there.logs(), strict=True)]
    return slopes_QN


def alternating(problem: Problem, point: Point, still: Set[int] = frozenset()) -> Iterator[Point]:
    """Coordinate descent as Dreamer matches its baselines (dreamer.md section 5, steps 2 to 4), in n dimensions.

    Each matched quantity is given one dimension, the one that moves it most for what it moves of the others; in turn,
    FLOPs first, each dimension is set to the value that brings its quantity closest to the target, until a whole sweep
    changes nothing. Dimensions without a quantity, and those in ``still``, stay. With two quantities and (E, F) this is the published method.
    """
    pairs = _pairs(problem, point, still)
    seen = {point}
    for _ in range(SWEEPS):
        for q, axis in pairs:
            point = _closest(problem, point, q, axis)
            yield point
        if point in seen:
            return
        seen.add(point)


def _pairs(problem: Problem, point: Point, still: Set[int]) -> list[tuple[int, int]]:
    """(quantity, dimension) for the matched quantities, FLOPs first: the pairing with the steepest slopes."""
    steep_QN = np.abs(slopes(problem, point, still))
    matched = [q for q, rule in enumerate(problem.rules) if rule.two_sided and steep_QN[q].any()]
    matched.sort(key=lambda q: "flops" not in problem.rules[q].quantity)
    rivals = sorted({int(n) for q in matched for n in np.argsort(-steep_QN[q], kind="stable")[:RIVALS]})
    best: tuple[float, list[tuple[int, int]]] = (0.0, [])
    for count in range(min(len(matched), len(rivals)), 0, -1):
        for axes in itertools.permutations(rivals, count):
            pairs = list(zip(matched, axes, strict=False))
            steep = math.prod(float(steep_QN[q, n]) for q, n in pairs)
            if steep > best[0]:
                best = (steep, pairs)
        if best[1]:
            break
    return best[1]


def _closest(problem: Problem, point: Point, q: int, axis: int) -> Point:
    """The point along one dimension whose quantity is closest to its target: by bisection, for one that only rises or
    only falls along it. Of two values equally close the one that is better in all quantities is taken."""
    line = [problem.along(point, axis, value) for value in problem.grids[axis]]

    def off(i: int) -> float:
        found = problem.residuals(line[i])
        return math.inf if found is None else found[q]

    low, high = 0, len(line) - 1
    # Points at an end may be illegal together with the others.
    while low < high and math.isinf(off(low)):
        low += 1
    while low < high and math.isinf(off(high)):
        high -= 1
    rises = off(high) >= off(low)
    while high - low > 1:
        middle = (low + high) // 2
        if (off(middle) < 0) == rises:
            low = middle
        else:
            high = middle
    return min((line[low], line[high]), key=lambda p: (_distance(problem, p, q), problem.score(p)))


def _distance(problem: Problem, point: Point, q: int) -> float:
    """How far a quantity is from its target, to the precision of a ledger's sums."""
    found = problem.residuals(point)
    return math.inf if found is None else round(abs(found[q]), 12)


def descent(problem: Problem, point: Point) -> Iterator[Point]:
    """Lines through the best point, one dimension at a time; where they stall, planes of two nearby."""
    while True:
        before = point
        # Planes are for reaching the budget, not for coming closer to the proposal within it.
        for moves in (_lines, _planes) if problem.score(point)[1] else (_lines,):
            for candidate in moves(problem, point):
                if problem.score(candidate) < problem.score(point):
                    point = candidate
                    yield point
            if point != before:
                break
        if point == before:
            return


def _lines(problem: Problem, point: Point) -> Iterator[Point]:
    """Along each dimension: evenly spaced values, then ever closer ones around the best, then all near it."""
    for axis, grid in enumerate(problem.grids):
        line = [problem.along(point, axis, value) for value in grid]
        low, high = 0, len(line) - 1
        while high - low > 2 * PROBES:
            gap = (high - low) / (PROBES - 1)
            probes = [low + round(i * gap) for i in range(PROBES)]
            yield from (line[i] for i in probes)
            best = min(range(PROBES), key=lambda i: problem.score(line[probes[i]]))
            low, high = probes[max(best - 1, 0)], probes[min(best + 1, PROBES - 1)]
        yield from line[low : high + 1]


def _planes(problem: Problem, point: Point) -> Iterator[Point]:
    for a, b in itertools.combinations(range(len(problem.grids)), 2):
        for x, y in itertools.product(_near(problem, point, a), _near(problem, point, b)):
            yield problem.along(problem.along(point, a, x), b, y)


def _near(problem: Problem, point: Point, axis: int) -> tuple[int, ...]:
    at = problem.grids[axis].index(point[axis])
    return problem.grids[axis][max(0, at - PLANE) : at + PLANE + 1]


def nested(problem: Problem, point: Point) -> Iterator[Point]:
    """For every value of each dimension that has few, the others solved anew: steps of depth or heads are too coarse to
    be taken while the rest stands still. Values near the proposal come first, and the first that fits is taken."""
    for axis, grid in enumerate(problem.grids):
        for value in _nearest_first(grid, problem.start[axis]) if len(grid) <= FEW else ():
            solved, still = problem.along(point, axis, value), frozenset({axis})
            if value == point[axis] or problem.residuals(solved) is None:
                continue
            for solver in (secant, alternating):
                for found in solver(problem, solved, still):
                    yield found
                    if problem.feasible(found):
                        return
                    solved = found


def _nearest_first(grid: tuple[int, ...], start: int) -> list[int]:
    return sorted(grid, key=lambda value: abs(math.log(value / start)))


def enumeration(problem: Problem) -> Iterator[Point]:
    """Every point. Raises ConfigError for a grid of more than ``ENUMERATE_AT_MOST``."""
    if problem.size > ENUMERATE_AT_MOST:
        free = ", ".join(f"{d.name} ({len(d.grid)} values)" for d in problem.layout.dimensions)
        raise ConfigError(
            f"solver 'enumeration' tries every point of the grid, at most {ENUMERATE_AT_MOST:,}, and this one has "
            f"{problem.size:,}: {free}. Give fewer values, such as {problem.layout.dimensions[0].name}=LOW..HIGH:STEP."
        )
    return iter(itertools.product(*problem.grids))


def sampled(problem: Problem, best: Point) -> Iterator[Point]:
    """Points proposed by Optuna's tree-structured Parzen estimator with a fixed seed, from the best points so far."""
    # Imported here, since most searches end before it and it is slow to import.
    import optuna

    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=OPTUNA_SEED))
    finally:
        optuna.logging.set_verbosity(before)
    names = [d.name for d in problem.layout.dimensions]
    for point in dict.fromkeys((best, *problem.best(OPTUNA_STARTS))):
        study.enqueue_trial({n: g.index(v) for n, g, v in zip(names, problem.grids, point, strict=True)})
    for _ in range(OPTUNA_TRIALS):
        trial = study.ask()
        point = tuple(
            g[trial.suggest_int(n, 0, len(g) - 1)] for n, g in zip(names, problem.grids, strict=True)
        )
        outside = problem.score(point)[0]
        if math.isfinite(outside):
            study.tell(trial, outside)
            yield point
            if outside == 0:
                return
        else:
            study.tell(trial, state=optuna.trial.TrialState.FAIL)
