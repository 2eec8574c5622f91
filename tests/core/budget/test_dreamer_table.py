"""The matching table of dreamer.md section 5, by its own counting rules: DR and layered models against DR+DA."""

from __future__ import annotations

import pytest

from crossbreed.core.budget.budget import Budget
from crossbreed.core.budget.dimensions import fill, layout
from crossbreed.core.budget.matcher import match
from crossbreed.core.budget.problem import Problem
from crossbreed.core.budget.solvers import SWEEPS, alternating
from crossbreed.core.genome import Architecture, Block, Stage, Sublayer
from crossbreed.core.host import Registry
from crossbreed.core.ledger import Ledger, Shape
from tests.core.budget.material import FLOPS, MEMORY, PARAMETERS, analytic, within
from tests.core.budget.sheet import D, SheetCost, T, V

TABLE = {
    # (L, k): (E, F) of DR+DA, of DR, and E per layer and F of the layered model; parameters and FLOPs per token
    (8, 4): ((108, 64), (76, 100), (6, 136), 3.49e6, 5.40e6),
    (8, 2): ((102, 128), (73, 188), (6, 247), 5.87e6, 5.79e6),
    (16, 4): ((252, 64), (173, 101), (7, 137), 7.82e6, 10.9e6),
    (16, 2): ((208, 128), (148, 189), (6, 250), 11.9e6, 11.6e6),
}
FREE = {"experts.experts": (3, 1024), "experts.hidden": (1, 512)}


def experts(registry: Registry, E: int, F: int, k: int) -> Architecture:
    params = {"experts": E, "hidden": F, "top_k": k, "shared_in_top_k": False}
    block = Block(sublayers=(Sublayer(mixer="experts", params=params),))
    return fill(Architecture(vocab=V, d_model=D, stages=(Stage(blocks=(block,)),)), registry)


@pytest.fixture(scope="module")
def base(registry: Registry) -> Ledger:
    return analytic(registry).estimate(experts(registry, 8, 64, 2), Shape(1, T))


def target(architecture: Architecture, costs: SheetCost) -> Budget:
    rules = {"shape": {"tokens": T}, "match": dict.fromkeys((PARAMETERS, FLOPS, MEMORY), 0.005)}
    return Budget.read(rules).at_reference(costs.estimate(architecture, Shape(1, T)))


@pytest.mark.parametrize(("L", "k"), TABLE)
@pytest.mark.parametrize("recurrent", [True, False], ids=["dr", "layered"])
def test_the_published_descent_gives_the_published_table(
    registry: Registry, base: Ledger, L: int, k: int, recurrent: bool
) -> None:
    (E, F), dr, layered, parameters, flops = TABLE[L, k]
    goal = target(experts(registry, E, F, k), SheetCost(base, L, k, recurrent=True, depth_attention=True))
    assert goal.target(PARAMETERS) == pytest.approx(parameters, rel=0.005)
    assert goal.target(FLOPS) / 3 == pytest.approx(flops, rel=0.005)
    rival = SheetCost(base, L, k, recurrent=recurrent, depth_attention=False)
    start = experts(registry, E if recurrent else E // L, F, k)
    problem = Problem(layout(start, registry, FREE), goal, rival)
    visited = list(alternating(problem, problem.start))
    assert visited[-1] == (dr if recurrent else layered)
    assert len(visited) <= 3 * 2  # at most three sweeps, as the sheet says
    for solver in ("auto", "descent"):
        found = match(start, goal, registry, rival, free=FREE, solver=solver)
        assert found.certificate.feasible, (solver, found.certificate.reason)
        assert within(found.certificate)
    assert SWEEPS > 3


@pytest.mark.parametrize("key", [16, D])
def test_full_width_router_keys_end_in_infeasible_and_never_run_away(
    registry: Registry, base: Ledger, key: int
) -> None:
    """Trap (i): a recurrent model scores all its experts at each depth, which parameters of a layered one cannot pay."""
    goal = target(experts(registry, 8, 64, 2), SheetCost(base, 16, 2, False, False, router_key=key))
    rival = SheetCost(base, 16, 2, recurrent=True, depth_attention=False, router_key=key)
    found = match(experts(registry, 128, 64, 2), goal, registry, rival)
    certificate = found.certificate
    assert not certificate.feasible
    # Within half to twice the proposal, and never F = 1.
    assert 64 <= certificate.dimensions["experts.experts"] <= 256
    assert 32 <= certificate.dimensions["experts.hidden"] <= 128
    assert certificate.reason is not None
    assert f"{FLOPS} is +" in certificate.reason
    assert f"cannot fall without {PARAMETERS}" in certificate.reason
    assert "Nearest point: experts.experts=" in certificate.reason


def test_layers_that_gain_experts_together_say_that_the_grid_is_coarse(
    registry: Registry, base: Ledger
) -> None:
    """Trap (ii): with about three experts a layer, one more in each of 16 layers is a fifth of the parameters."""
    goal = target(experts(registry, 134, 128, 2), SheetCost(base, 16, 2, True, True))
    rival = SheetCost(base, 16, 2, recurrent=False, depth_attention=False)
    certificate = match(experts(registry, 4, 128, 2), goal, registry, rival, free=FREE).certificate
    assert not certificate.feasible
    assert certificate.dimensions["experts.experts"] == 4
    assert certificate.reason is not None
    assert f"one step of experts.experts changes {PARAMETERS} by " in certificate.reason
    worst = max(abs(q.residual) for q in certificate.quantities)
    assert 0.005 < worst < 0.06
