"""Why a budget cannot be met: read from how the quantities move around the nearest point, not from names."""

from __future__ import annotations

from typing import NamedTuple

from crossbreed.core.budget.certificate import percents
from crossbreed.core.budget.hints import STILL, coarse, fixed_parts, requests, unit
from crossbreed.core.budget.problem import Costed, Point, Problem
from crossbreed.core.contracts.parts import Parts
from crossbreed.core.genome import Architecture
from crossbreed.core.ledger import Ledger


class Step(NamedTuple):
    """One grid step along one dimension and the relative change of every budgeted quantity."""

    dimension: str
    changes: tuple[float, ...]


def reason(problem: Problem, point: Point, ledger: Ledger, parts: Parts) -> str:
    """A sentence naming the quantity that cannot move and what holds it, then the nearest point."""
    costed = problem.costed(point)
    assert costed is not None, "the nearest point of a search is legal"
    here = costed.residuals
    outside = [rule.excess(r) for r, rule in zip(here, problem.rules, strict=True)]
    # A parameter count that lags behind FLOPs explains more than the FLOPs do, so stored quantities win ties.
    stuck = max(
        range(len(outside)), key=lambda q: (round(outside[q], 3), not _is_flops(problem.rules[q].quantity))
    )
    name, _, tolerance, _ = problem.rules[stuck]
    rises = here[stuck] < 0
    verb = "rise" if rises else "fall"
    off, allowed = percents(here[stuck], tolerance)
    text = (
        f"{name} is {off} from its target (tolerance {allowed}) and cannot {verb}"
        f"{_hold(problem, point, costed, stuck, rises)}"
    )
    text += coarse(problem, point)
    text += unit(problem, stuck)
    text += fixed_parts(problem, point, ledger, stuck) if not rises else ""
    text += _reuse(problem.layout.at(point), name, rises, ledger, parts)
    text += requests(problem, point, stuck, rises, parts)
    dimensions = ", ".join(f"{d.name}={v}" for d, v in zip(problem.layout.dimensions, point, strict=True))
    others = ", ".join(
        f"{rule.quantity} {percents(r, rule.tolerance)[0]}"
        for rule, r in zip(problem.rules, here, strict=True)
    )
    return f"{text} Nearest point: {dimensions or 'the proposal itself'} ({others})."


def _hold(problem: Problem, point: Point, here: Costed, stuck: int, rises: bool) -> str:
    """What keeps the stuck quantity: no dimension moves it, bounds stop it, or another quantity goes with it."""
    if not problem.grids:
        return ": the architecture has no free dimension."
    wanted = 1.0 if rises else -1.0
    steps, blocked = _steps(problem, point, here), []
    towards = [s for s in steps if s.changes[stuck] * wanted > STILL]
    away = [s for s in steps if s.changes[stuck] * wanted < -STILL]
    for step in away:
        if not any(s.dimension == step.dimension for s in towards):
            blocked.append(step.dimension)
    if not towards and not blocked:
        return ": no free dimension moves it."
    grids = {d.name: d.grid for d in problem.layout.dimensions}
    values = {d.name: v for d, v in zip(problem.layout.dimensions, point, strict=True)}
    limits = ", ".join(f"{d} at {values[d]} of {grids[d][0]}..{grids[d][-1]}" for d in dict.fromkeys(blocked))
    bound = f"the bounds stop {limits}" if limits else ""
    if not towards:
        return f": {bound}."
    tied = _tied(problem, here.residuals, towards, stuck)
    if tied is None:
        held = "no single legal step brings it closer within the other quantities"
    else:
        other, ratios = tied
        held = f"every free dimension that moves it moves {other} too ({ratios})"
        return f" without {other}: {held}{', and ' + bound if bound else ''}."
    return f": {held}{', and ' + bound if bound else ''}."


def _steps(problem: Problem, point: Point, here: Costed) -> list[Step]:
    found = []
    for axis, dimension in enumerate(problem.layout.dimensions):
        for other in problem.neighbours(point, axis):
            there = problem.costed(other)
            if there is not None:
                found.append(Step(dimension.name, here.changes(there)))
    return found


def _tied(
    problem: Problem, here: tuple[float, ...], towards: list[Step], stuck: int
) -> tuple[str, str] | None:
    """Another quantity that every helpful step pushes the wrong way, with its change per 1% of the stuck one."""
    candidates = []
    for q, (name, _, tolerance, two_sided) in enumerate(problem.rules):
        if q == stuck or (not two_sided and here[q] < -tolerance):
            continue
        # A quantity above its target is hurt by rising; one below by falling; one on target by either.
        hurt = [s for s in towards if abs(s.changes[q]) > STILL and s.changes[q] * here[q] >= 0]
        if len(hurt) == len(towards):
            ratios = ", ".join(
                f"{s.dimension}: {s.changes[q] / s.changes[stuck]:+.3g}% per 1%" for s in towards
            )
            pressure = abs(here[q]) / max(tolerance, STILL)
            candidates.append((pressure, name, ratios))
    if not candidates:
        return None
    _, name, ratios = max(candidates)
    return name, ratios


def _reuse(architecture: Architecture, stuck: str, rises: bool, ledger: Ledger, parts: Parts) -> str:
    """Say when weights run several times a token: each then costs that many times the FLOPs of one that runs once."""
    if not (rises and stuck.endswith("parameters")):
        return ""
    texts = []
    for index, stage in enumerate(architecture.stages):
        config = parts.config("depth", stage.depth.name, stage.depth.params)
        policy = parts.factory("depth", stage.depth.name)(config)
        runs, sets = stage.depth.repeats, policy.weight_sets(stage.depth.repeats)
        if runs > sets:
            texts.append(f"stage {index} runs {sets} set of weights {runs} times a token")
    if not texts:
        return ""
    text = f" Here {'; '.join(texts)}, so that a weight costs FLOPs at every run."
    if ledger.active_parameters == ledger.parameters:
        text += " Every token uses every weight; sparse experts store weights that a token does not use."
    return text


def _is_flops(quantity: str) -> bool:
    return "flops" in quantity
