"""The families of a search space, each brought to one budget from its starting points."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from crossbreed.core.budget.budget import Budget
from crossbreed.core.budget.matcher import Match, match
from crossbreed.core.budget.solvers import Solver
from crossbreed.core.contracts.cost import CostModel
from crossbreed.core.contracts.space import SearchSpace, Setting
from crossbreed.core.errors import CrossbreedError
from crossbreed.core.genome import Architecture
from crossbreed.core.host import Registry
from crossbreed.core.search.proposals import Proposer


@dataclass(frozen=True)
class FamilyMatch:
    """How close a family comes: its best match, or why none of its starting points could be costed."""

    family: str
    match: Match | None
    reason: str | None

    @property
    def feasible(self) -> bool:
        return self.match is not None and self.match.certificate.feasible


def families(space: SearchSpace, setting: Setting) -> dict[str, list[Architecture]]:
    """The starting points of a space by family, in order of appearance."""
    found: dict[str, list[Architecture]] = {}
    for start in Proposer(space, setting, ["max"]).starting_points():
        found.setdefault(space.family(start.architecture), []).append(start.architecture)
    return found


def match_families(
    starts: dict[str, list[Architecture]],
    budget: Budget,
    registry: Registry,
    cost_model: CostModel,
    solver: Solver = "auto",
) -> Iterator[FamilyMatch]:
    """Each family's first starting point that meets the budget, or else the one that comes nearest."""
    for family, architectures in starts.items():
        matches, reasons = [], []
        for architecture in architectures:
            try:
                found = match(architecture, budget, registry, cost_model, solver=solver)
            except CrossbreedError as error:
                reasons.append(str(error))
                continue
            matches.append(found)
            if found.certificate.feasible:
                break
        best = nearest_match(matches)
        why = best.certificate.reason if best is not None else "; ".join(dict.fromkeys(reasons))
        yield FamilyMatch(family, best, why)


def nearest_match(matches: Iterable[Match]) -> Match | None:
    """The match whose worst quantity lies least outside its tolerance."""
    return min(matches, key=lambda m: m.certificate.excess(), default=None)
