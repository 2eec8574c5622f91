"""Solvers: each alone, and what they refuse."""

from __future__ import annotations

import pytest

from crossbreed.core.budget import solvers
from crossbreed.core.budget.dimensions import layout
from crossbreed.core.budget.matcher import match
from crossbreed.core.budget.problem import Problem
from crossbreed.core.contracts.cost import CostModel
from crossbreed.core.errors import ConfigError, UnknownName
from crossbreed.core.host import Registry
from crossbreed.core.ledger import QUANTITIES
from tests.core.budget.material import FLOPS, MEMORY, PARAMETERS, analytic, budget_of, genome, layer, within

START = genome(*[layer("mamba2", "experts", hidden=48)] * 3)
PLANTED = genome(
    *[layer("mamba2", "experts", {"state_size": 52, "head_size": 22}, hidden=77, experts=11)] * 3
)


@pytest.fixture(scope="module")
def costs(registry: Registry) -> CostModel:
    return analytic(registry)


@pytest.mark.parametrize("solver", ["auto", "descent", "optuna"])
def test_every_solver_meets_a_planted_budget(
    registry: Registry, costs: CostModel, solver: solvers.Solver
) -> None:
    goal = budget_of(PLANTED, registry, costs, (FLOPS, PARAMETERS, MEMORY), tolerance=0.02)
    certificate = match(START, goal, registry, costs, solver=solver).certificate
    assert certificate.feasible, certificate.reason
    assert within(certificate)
    expected = {"descent": {"coordinate_descent"}, "optuna": {"optuna"}}
    assert certificate.path in expected.get(solver, {"closed_form", "coordinate_descent"})


def test_enumeration_finds_the_best_point_of_all(registry: Registry, costs: CostModel) -> None:
    goal = budget_of(PLANTED, registry, costs, (FLOPS, PARAMETERS, MEMORY))
    free = {
        "mamba2.state_size": (44, 56),
        "mamba2.head_size": (20, 24),
        "experts.experts": (9, 12),
        "experts.hidden": (74, 80),
    }
    found = match(START, goal, registry, costs, free=free, solver="enumeration")
    assert found.certificate.path == "enumeration"
    assert found.certificate.feasible
    problem = Problem(layout(registry.canonical(START), registry, free), goal, costs)
    points = list(solvers.enumeration(problem))
    assert len(points) == problem.size
    best = min(points, key=problem.score)
    assert tuple(found.certificate.dimensions.values()) == best


def test_a_grid_too_large_to_enumerate_is_refused_with_its_size(registry: Registry, costs: CostModel) -> None:
    goal = budget_of(PLANTED, registry, costs, (FLOPS,))
    with pytest.raises(
        ConfigError, match=r"at most 200,000, and this one has [\d,]+: mamba2.state_size \(25 values\)"
    ):
        match(START, goal, registry, costs, solver="enumeration")


def test_an_unknown_solver_names_the_nearest(registry: Registry, costs: CostModel) -> None:
    goal = budget_of(PLANTED, registry, costs, (FLOPS,))
    with pytest.raises(UnknownName, match="unknown solver 'decent'; did you mean 'descent'"):
        match(START, goal, registry, costs, solver="decent")  # type: ignore[arg-type]


def test_descent_gives_each_quantity_the_dimension_that_moves_it_alone(
    registry: Registry, costs: CostModel
) -> None:
    """Experts store parameters at next to no FLOPs, so that the width of an expert is left to the FLOPs."""
    start = genome(layer("attention", "experts", experts=16))
    goal = budget_of(
        genome(layer("attention", "experts", experts=24, hidden=100)), registry, costs, (PARAMETERS, FLOPS)
    )
    problem = Problem(layout(registry.canonical(start), registry), goal, costs)
    names = [d.name for d in problem.layout.dimensions]
    first, second = list(solvers.alternating(problem, problem.start))[:2]
    moved = [names[axis] for axis in range(len(names)) if first[axis] != problem.start[axis]]
    assert moved == ["experts.hidden"]
    assert [n for n, a, b in zip(names, first, second, strict=True) if a != b] == ["experts.experts"]


def test_descent_stops_where_every_point_is_illegal_but_the_start(
    registry: Registry, costs: CostModel
) -> None:
    """A line whose ends are illegal with the rest is searched between them."""
    start = genome(layer("attention", "experts", experts=10, top_k=9, shared=0))
    goal = budget_of(
        genome(layer("attention", "experts", experts=13, top_k=9, shared=0)), registry, costs, (PARAMETERS,)
    )
    found = match(
        start,
        goal,
        registry,
        costs,
        free={"attention.head_size": (16, 16), "experts.hidden": (64, 64)},
        solver="descent",
    )
    assert found.certificate.dimensions == {"experts.experts": 13}


@pytest.mark.parametrize("kind", ["match", "cap"])
@pytest.mark.parametrize("quantity", QUANTITIES)
def test_every_quantity_can_be_matched_and_capped(
    registry: Registry, costs: CostModel, quantity: str, kind: str
) -> None:
    """A smaller model's value, for a larger one to come down to."""
    small = genome(*[layer("attention", "experts", {"head_size": 10}, hidden=30)] * 2)
    rules = ((quantity,), ()) if kind == "match" else ((), (quantity,))
    goal = budget_of(small, registry, costs, *rules, tolerance=0.01)
    start = genome(*[layer("attention", "experts", hidden=50)] * 2)
    assert costs.estimate(registry.canonical(start), goal.shape.as_shape()).quantity(
        quantity
    ) > 1.01 * goal.target(quantity)
    certificate = match(start, goal, registry, costs).certificate
    assert certificate.feasible, certificate.reason
    assert within(certificate)


def test_a_dimension_with_few_values_is_tried_value_by_value(registry: Registry, costs: CostModel) -> None:
    """Between divisors of the heads no step is legal, so that the others are solved for each of them."""
    wide = {"heads": 12, "head_size": 32}
    start = genome(layer("attention", sequence_params=wide, hidden=400), d_model=128)
    grouped = genome(
        layer("attention", sequence_params={**wide, "kv_heads": 3, "head_size": 44}, hidden=412), d_model=128
    )
    goal = budget_of(
        grouped, registry, costs, (FLOPS, PARAMETERS), ("state_bytes",), tolerance=0.002, tokens=512
    )
    assert not match(start, goal, registry, costs).certificate.feasible
    found = match(start, goal, registry, costs, free={"attention.kv_heads": "1..12"}, solver="descent")
    assert found.certificate.feasible, found.certificate.reason
    assert found.certificate.dimensions["attention.kv_heads"] in (1, 2, 3, 4)
