"""The matcher: moves an architecture's free dimensions until it meets a budget, and certifies the result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from crossbreed.core.budget.budget import Budget
from crossbreed.core.budget.certificate import Certificate, excess, percents, residuals
from crossbreed.core.budget.dimensions import Free, layout
from crossbreed.core.budget.problem import Problem
from crossbreed.core.budget.reason import reason
from crossbreed.core.budget.solvers import Solver, solve
from crossbreed.core.contracts.cost import CostModel
from crossbreed.core.contracts.parts import Parts
from crossbreed.core.genome import Architecture
from crossbreed.core.ledger import Ledger


@dataclass(frozen=True)
class Match:
    """A matched architecture in canonical form, its certificate and its ledger (of the nearest point when infeasible)."""

    architecture: Architecture
    certificate: Certificate
    ledger: Ledger


def match(
    architecture: Architecture,
    budget: Budget,
    parts: Parts,
    cost_model: CostModel,
    *,
    free: Free | None = None,
    solver: Solver = "auto",
) -> Match:
    """Move the free dimensions of ``architecture`` to meet ``budget``.

    Sublayers of one mixer with equal params share their dimensions. ``free`` adds to what the budget frees, and names
    dimensions of this architecture only: ``{"swiglu.hidden": (64, 256), "d_model": None}`` (None: half to twice the
    proposed value). An unmet budget is not an error: the certificate says infeasible, why, and the nearest point. Raises
    ConfigError for an architecture, a budget, dimensions or a solver that are wrong in themselves.
    """
    free = free or {}
    plan = layout(parts.canonical(architecture), parts, {**budget.free, **free}, asked=free)
    problem = Problem(plan, budget, cost_model)
    # Before the search, which takes errors for illegal points: errors of the proposal itself are the caller's to see.
    problem.ledger(problem.start)
    point, path = solve(problem, solver)
    ledger = problem.ledger(point)
    found = residuals(ledger, budget)
    feasible = all(r.ok for r in found)
    certificate = Certificate(
        feasible=feasible,
        quantities=found,
        dimensions={d.name: v for d, v in zip(plan.dimensions, point, strict=True)},
        path=path,
        reason=None if feasible else reason(problem, point, ledger, parts),
    )
    return Match(parts.canonical(plan.at(point)), certificate, ledger)


def certify(
    architecture: Architecture,
    budget: Budget,
    cost_model: CostModel,
    rates: Mapping[str, tuple[float, ...]] | None = None,
) -> Certificate:
    """The certificate of an architecture as it is; with ``rates`` (site -> share per choice) the realised one."""
    ledger = cost_model.estimate(architecture, budget.shape.as_shape(), rates=rates)
    found = residuals(ledger, budget)
    off = [r for r in found if not r.ok]
    why = None
    if off:
        worst = max(off, key=excess)
        off_by, allowed = percents(worst.residual, worst.tolerance, 2)
        why = f"{worst.quantity} is {off_by} from its target {worst.target:,.0f}, outside the tolerance of {allowed}."
    return Certificate(
        feasible=not off,
        quantities=found,
        path="given",
        rates="nominal" if rates is None else "realised",
        reason=why,
    )
