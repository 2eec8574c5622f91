"""The matching table of dreamer.md section 5: DR and layered models against DR+DA.

By the sheet's own counting rules in plain Python, then with the real mixers and the real ledger; both agree to the number.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest

from crossbreed.core.budget.budget import Budget
from crossbreed.core.budget.dimensions import layout
from crossbreed.core.budget.matcher import match
from crossbreed.core.budget.problem import Problem
from crossbreed.core.budget.solvers import alternating
from crossbreed.core.genome import Architecture, Block, Stage, Sublayer
from crossbreed.core.host import Registry
from crossbreed.core.ledger import Ledger, Shape
from crossbreed.presets import dreamer
from tests.core.budget.material import FLOPS, MEMORY, PARAMETERS, analytic, budget_of, within
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
    return registry.canonical(Architecture(vocab=V, d_model=D, stages=(Stage(blocks=(block,)),)))


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


def sized(L: int, k: int, E: int, F: int, **changes: int) -> dreamer.DreamerSizes:
    sizes = dreamer.sizes_of("dreamer", f"l{L}-k{k}")
    return replace(sizes, experts=E, hidden=F, **changes)


REAL = {"dr": partial(dreamer.recurrent, depth_attention=False), "layered": dreamer.layered}
KEPT = {**FREE, "attention.head_size": 32}
"""Heads stay, so that the sequence cache is equal by construction."""


@pytest.mark.parametrize(("L", "k"), TABLE)
def test_the_real_mixers_cost_what_the_sheet_counts(registry: Registry, base: Ledger, L: int, k: int) -> None:
    """Parameters and FLOPs of all three models, from two implementations that share no formula."""
    costs, (dreamed, dr, layered, _, _) = analytic(registry), TABLE[L, k]
    models = {
        (True, True): dreamer.recurrent(sized(L, k, *dreamed)),
        (True, False): REAL["dr"](sized(L, k, *dr)),
        (False, False): REAL["layered"](sized(L, k, *layered)),
    }
    for (recurrent, depth_attention), model in models.items():
        E, F = {(True, True): dreamed, (True, False): dr, (False, False): layered}[recurrent, depth_attention]
        sheet = SheetCost(base, L, k, recurrent, depth_attention).estimate(
            experts(registry, E, F, k), Shape(1, T)
        )
        ledger = costs.estimate(registry.canonical(model), Shape(1, T))
        assert ledger.parameters == sheet.parameters
        assert ledger.prefill_flops_per_token == pytest.approx(sheet.prefill_flops_per_token, rel=1e-9)
        assert ledger.training_flops_per_token == pytest.approx(sheet.training_flops_per_token, rel=1e-9)


@pytest.mark.parametrize(("L", "k"), TABLE)
@pytest.mark.parametrize("name", REAL)
def test_the_real_models_are_matched_within_half_a_percent(
    registry: Registry, name: str, L: int, k: int
) -> None:
    costs = analytic(registry)
    (E, F), dr, layered, _, _ = TABLE[L, k]
    reference = dreamer.recurrent(sized(L, k, E, F))
    goal = budget_of(reference, registry, costs, (PARAMETERS, FLOPS, MEMORY), tokens=T)
    start = REAL[name](sized(L, k, E if name == "dr" else E // L, F))
    problem = Problem(layout(registry.canonical(start), registry, KEPT), goal, costs)
    assert list(alternating(problem, problem.start))[-1] == (dr if name == "dr" else layered)
    for solver in ("auto", "descent"):
        certificate = match(start, goal, registry, costs, free=KEPT, solver=solver).certificate
        assert certificate.feasible, certificate.reason
        assert within(certificate)
    assert match(reference, goal, registry, costs).certificate.path == "given"


def test_the_first_trap_with_the_real_mixers(registry: Registry) -> None:
    """DR with router keys as wide as the model, against a layered model of 8 experts in each of 16 layers."""
    costs = analytic(registry)
    target = REAL["layered"](sized(16, 2, 8, 64, router_key=D))
    goal = budget_of(target, registry, costs, (PARAMETERS, FLOPS, MEMORY), tokens=T)
    start = REAL["dr"](sized(16, 2, 128, 64, router_key=D))
    certificate = match(start, goal, registry, costs, free=KEPT).certificate
    assert not certificate.feasible
    assert certificate.dimensions["experts.hidden"] > 1
    assert certificate.reason is not None
    assert f"{FLOPS} is +" in certificate.reason
    assert "Nearest point: " in certificate.reason
    # The descent as published, for itself, runs to the ends of what it may move; it never answers with them.
    problem = Problem(layout(registry.canonical(start), registry, KEPT), goal, costs)
    assert not problem.feasible(list(alternating(problem, problem.start))[-1])


def test_the_second_trap_with_the_real_mixers(registry: Registry) -> None:
    """Layers that gain an expert each: the step is named, and the nearest point is 4 to 6% off."""
    costs = analytic(registry)
    reference = dreamer.recurrent(sized(16, 2, 134, 128))
    goal = budget_of(reference, registry, costs, (PARAMETERS, FLOPS, MEMORY), tokens=T)
    certificate = match(REAL["layered"](sized(16, 2, 4, 128)), goal, registry, costs, free=KEPT).certificate
    assert not certificate.feasible
    assert certificate.reason is not None
    assert f"one step of experts.experts changes {PARAMETERS} by " in certificate.reason
    assert max(abs(q.residual) for q in certificate.quantities) < 0.06
