"""Matching: budgets are met by moving free dimensions, or shown to be out of reach."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from crossbreed.core.budget.budget import Budget
from crossbreed.core.budget.dimensions import layout
from crossbreed.core.budget.matcher import certify, match
from crossbreed.core.contracts.cost import CostModel
from crossbreed.core.errors import ConfigError, UnknownName
from crossbreed.core.genome import Architecture, Block, DepthPolicy, Router, Stage, Sublayer
from crossbreed.core.host import Registry
from crossbreed.core.ledger import Ledger, Shape
from crossbreed.core.model.language_model import LanguageModel

V, D, T = 64, 64, 32
FLOPS, PARAMETERS, MEMORY = "training_flops_per_token", "non_embedding_parameters", "memory_bytes"


def layer(
    sequence: str, channel: str = "swiglu", sequence_params: Any = None, **channel_params: Any
) -> Block:
    return Block(
        sublayers=(
            Sublayer(mixer=sequence, params=sequence_params or {}),
            Sublayer(mixer=channel, params=channel_params),
        )
    )


def genome(*blocks: Block, depth: DepthPolicy | None = None, **fields: Any) -> Architecture:
    stage = Stage(blocks=blocks, depth=depth or DepthPolicy())
    return Architecture(vocab=V, d_model=D, stages=(stage,), **fields)


REFERENCE = genome(*[layer("attention", sequence_params={"heads": 4, "head_size": 16})] * 2)
HALVED_MAMBA = {"head_size": 16, "state_size": 16}
MULTI = {"readers": ["mamba2", "attention"], "head_size": 12}
FAMILIES = {
    "mamba2": genome(*[layer("mamba2", sequence_params=HALVED_MAMBA)] * 2),
    "gated_deltanet": genome(
        *[layer("gated_deltanet", sequence_params={"key_size": 8, "value_size": 16})] * 2
    ),
    "hybrid": genome(layer("mamba2", sequence_params=HALVED_MAMBA), layer("attention")),
    "gated": genome(
        layer("mamba2", sequence_params=HALVED_MAMBA),
        Block(sublayers=(Sublayer(mixer="attention"),), gate=Router(name="entropy_gate")),
        Block(sublayers=(Sublayer(mixer="swiglu"),)),
    ),
    "multi_mixer": genome(
        *[layer("multi_mixer", sequence_params=MULTI)] * 2,
        mode_router=Router(name="segment_random", params={"segment": 8}),
    ),
    "recurrent_experts": genome(
        layer("attention", "experts", sequence_params={"heads": 2, "head_size": 32}),
        depth=DepthPolicy(name="recurrent", repeats=2),
    ),
}


@pytest.fixture(scope="module")
def costs(registry: Registry) -> CostModel:
    model: CostModel = registry.factory("cost", "analytic")(registry.config("cost", "analytic", {}), registry)
    return model


@pytest.fixture(scope="module")
def budget(registry: Registry, costs: CostModel) -> Budget:
    rules = {"match": {FLOPS: "2%", PARAMETERS: "2%"}, "cap": {MEMORY: "2%"}, "shape": {"tokens": T}}
    return Budget.read(rules).at_reference(costs.estimate(registry.canonical(REFERENCE), Shape(1, T)))


def pinned(registry: Registry, costs: CostModel, architecture: Architecture, *names: str) -> Budget:
    """A budget that matches some quantities of an architecture to 0.1%."""
    rules = {"match": dict.fromkeys(names, 0.001), "shape": {"tokens": T}}
    return Budget.read(rules).at_reference(costs.estimate(registry.canonical(architecture), Shape(1, T)))


@pytest.mark.parametrize("name", FAMILIES)
def test_every_family_meets_the_budget_of_a_transformer_as_built(
    registry: Registry, costs: CostModel, budget: Budget, name: str
) -> None:
    found = match(FAMILIES[name], budget, registry, costs)
    assert found.certificate.feasible, found.certificate.reason
    for residual in found.certificate.quantities:
        assert (abs(residual.residual) if residual.kind == "match" else residual.residual) <= 0.02
    assert found.architecture == registry.canonical(found.architecture)
    model = LanguageModel(found.architecture, registry)
    stored = sum(p.numel() for p in model.parameters()) - V * D
    assert stored == found.ledger.non_embedding_parameters
    assert abs(stored / budget.target(PARAMETERS) - 1) <= 0.02
    memory = 4 * (stored + V * D) + model.init_state(1, slots=T).mixer_bytes()
    assert memory <= 1.02 * budget.target(MEMORY)


def test_the_reference_matches_itself_without_moving(
    registry: Registry, costs: CostModel, budget: Budget
) -> None:
    found = match(REFERENCE, budget, registry, costs)
    assert found.architecture == registry.canonical(REFERENCE)
    assert found.certificate.path == "given"
    assert [r.residual for r in found.certificate.quantities] == [0, 0, 0]


def test_matching_is_deterministic_and_asks_nothing_of_what_was_asked_before(
    registry: Registry, costs: CostModel, budget: Budget
) -> None:
    fresh = registry.factory("cost", "analytic")(None, registry)
    first = match(FAMILIES["hybrid"], budget, registry, fresh)
    again = match(FAMILIES["hybrid"], budget, registry, costs)
    assert again == first


def test_a_dense_block_run_several_times_cannot_have_the_parameters(
    registry: Registry, costs: CostModel, budget: Budget
) -> None:
    """The textbook infeasible case: FLOPs per weight are those of the repeats, whatever the sizes."""
    dense = genome(layer("attention"), depth=DepthPolicy(name="recurrent", repeats=4))
    certificate = match(dense, budget, registry, costs).certificate
    assert not certificate.feasible
    by_name = {r.quantity: r for r in certificate.quantities}
    assert by_name[PARAMETERS].residual < -0.3
    assert certificate.reason is not None
    assert f"{PARAMETERS} is -" in certificate.reason
    assert f"cannot rise without {FLOPS}" in certificate.reason
    assert "stage 0 runs 1 set of weights 4 times a token" in certificate.reason
    assert "sparse experts store weights that a token does not use" in certificate.reason
    for name, value in certificate.dimensions.items():
        assert f"{name}={value}" in certificate.reason


def test_an_infeasible_point_is_the_nearest_of_the_whole_grid(
    registry: Registry, costs: CostModel, budget: Budget
) -> None:
    dense = genome(layer("attention"), depth=DepthPolicy(name="recurrent", repeats=2))
    bounds = {"attention.head_size": (12, 20), "swiglu.hidden": (120, 160)}
    found = match(dense, budget, registry, costs, free=bounds)

    def outside(ledger: Ledger) -> float:
        off = [abs(ledger.quantity(q) / budget.target(q) - 1) - 0.02 for q in (FLOPS, PARAMETERS)]
        off.append(ledger.memory_bytes / budget.target(MEMORY) - 1 - 0.02)
        return sum(max(0.0, o / 0.02) ** 2 for o in off)

    plan = layout(registry.canonical(dense), registry, bounds)
    points = [(h, f) for h in plan.dimensions[0].grid for f in plan.dimensions[1].grid]
    best = min(outside(costs.estimate(plan.at(p), Shape(1, T))) for p in points)
    assert outside(found.ledger) == pytest.approx(best)


def test_bounds_are_half_to_twice_unless_declared(registry: Registry, costs: CostModel) -> None:
    far = genome(layer("attention", hidden=500))
    near = genome(layer("attention", hidden=100))
    goal = pinned(registry, costs, far, PARAMETERS)
    stuck = match(near, goal, registry, costs)
    assert not stuck.certificate.feasible
    assert stuck.certificate.dimensions == {"attention.head_size": 32, "swiglu.hidden": 200}
    assert stuck.certificate.reason is not None
    assert "the bounds stop" in stuck.certificate.reason
    assert "swiglu.hidden at 200 of 50..200" in stuck.certificate.reason
    freed = match(near, goal, registry, costs, free={"swiglu.hidden": (50, 600)})
    assert freed.certificate.feasible


def test_pinned_dimensions_leave_a_reason(registry: Registry, costs: CostModel) -> None:
    bounds = {"attention.head_size": (16, 16), "swiglu.hidden": (176, 176)}
    goal = pinned(registry, costs, genome(layer("attention", hidden=200)), PARAMETERS)
    certificate = match(genome(layer("attention")), goal, registry, costs, free=bounds).certificate
    assert certificate.dimensions == {}
    assert certificate.reason is not None
    assert "cannot rise: the architecture has no free dimension." in certificate.reason


def test_a_quantity_that_no_dimension_moves_is_named(registry: Registry, costs: CostModel) -> None:
    """The state of attention does not depend on the width of the channel mixer."""
    goal = pinned(
        registry, costs, genome(layer("attention", sequence_params={"head_size": 20})), "state_bytes"
    )
    certificate = match(
        genome(layer("attention")), goal, registry, costs, free={"attention.head_size": (16, 16)}
    ).certificate
    assert certificate.reason is not None
    assert "state_bytes is -" in certificate.reason
    assert "cannot rise: no free dimension moves it." in certificate.reason
    assert (
        "Freeing attention.head_size or attention.heads or depth or layers would move it."
        in certificate.reason
    )


def test_bounds_of_nothing_are_refused(registry: Registry, costs: CostModel, budget: Budget) -> None:
    with pytest.raises(UnknownName, match=r"'swiglu\.hiden'; did you mean 'swiglu\.hidden'"):
        match(REFERENCE, budget, registry, costs, free={"swiglu.hiden": (1, 2)})
    with pytest.raises(ConfigError, match=r"'swiglu\.hidden' has no legal value in its bounds 7\.\.7"):
        match(REFERENCE, budget, registry, costs, free={"swiglu.hidden": (7, 7)})
    odd = {"attention.head_size": (3, 9, 2)}
    with pytest.raises(ConfigError, match=r"in its bounds 3\.\.9:2; legal are 2\.\.256:2\."):
        match(genome(layer("attention")), budget, registry, costs, free=odd)


def test_a_family_that_has_nothing_of_a_quantity_is_infeasible_for_it(
    registry: Registry, costs: CostModel
) -> None:
    """A channel mixer keeps no decode state, whose logarithm the search would take."""
    goal = pinned(registry, costs, genome(layer("attention")), "state_bytes", "parameters")
    alone = genome(Block(sublayers=(Sublayer(mixer="swiglu"),)))
    certificate = match(alone, goal, registry, costs).certificate
    assert certificate.worst().quantity == "state_bytes"
    assert "state_bytes is -100.0% from its target" in str(certificate.reason)
    assert "cannot rise: no free dimension moves it." in str(certificate.reason)


@pytest.mark.parametrize("target", [1.0, 1e15, 1e300])
def test_targets_out_of_all_proportion_are_infeasible_and_said_to_be(
    registry: Registry, costs: CostModel, target: float
) -> None:
    goal = Budget.read(
        {"shape": {"tokens": 32}, "match": {"parameters": "1%"}, "values": {"parameters": target}}
    )
    certificate = match(genome(layer("attention")), goal, registry, costs).certificate
    assert not certificate.feasible
    assert "The target is " in str(certificate.reason)
    # A step is coarse where it leads past the target, not where it is large beside it.
    assert "coarse" not in str(certificate.reason)
    assert len(str(certificate.reason)) < 600


def test_equal_sublayers_share_a_dimension_and_different_ones_do_not(registry: Registry) -> None:
    layers = (layer("attention"), layer("mamba2"), layer("attention"))
    equal = layout(registry.canonical(genome(*layers)), registry)
    names = [d.name for d in equal.dimensions]
    assert [name for name in names if not name.startswith("mamba2")] == [
        "attention.head_size",
        "swiglu.hidden",
    ]
    moved = equal.at(tuple(200 if name == "swiglu.hidden" else 18 for name in names))
    sizes = [s.params["hidden"] for _, s in moved.sublayers() if s.mixer == "swiglu"]
    assert sizes == [200, 200, 200]
    uneven = registry.canonical(genome(layer("attention", hidden=100), layer("attention", hidden=200)))
    plan = layout(uneven, registry)
    assert [d.name for d in plan.dimensions] == [
        "attention.head_size",
        "swiglu[0].hidden",
        "swiglu[1].hidden",
    ]
    apart = [s.params.get("hidden") for _, s in plan.at((16, 110, 210)).sublayers()]
    assert apart == [None, 110, None, 210]


def test_points_that_are_illegal_together_are_passed_over(registry: Registry, costs: CostModel) -> None:
    """Ten experts, nine of them used: half as many experts are on the grid but not legal."""
    many = {"experts": 10, "top_k": 9, "shared": 0, "hidden": 32}
    goal = pinned(
        registry, costs, genome(layer("attention", "experts", **{**many, "experts": 18})), PARAMETERS
    )
    found = match(genome(layer("attention", "experts", **many)), goal, registry, costs)
    assert found.certificate.feasible
    low = replace_values(goal, {PARAMETERS: 1_000.0})
    stuck = match(genome(layer("attention", "experts", **many)), low, registry, costs)
    assert not stuck.certificate.feasible
    assert stuck.certificate.dimensions["experts.experts"] == 9


def replace_values(budget: Budget, values: dict[str, float]) -> Budget:
    return Budget.read({**budget.model_dump(), "values": values})


def test_errors_of_the_proposal_itself_are_raised(
    registry: Registry, costs: CostModel, budget: Budget
) -> None:
    with pytest.raises(UnknownName, match="unknown mixer 'atention'; did you mean 'attention'"):
        match(genome(layer("atention")), budget, registry, costs)
    no_router = genome(layer("multi_mixer", sequence_params=MULTI))
    with pytest.raises(ConfigError, match="no mode_router"):
        match(no_router, budget, registry, costs)


def test_a_certificate_of_a_given_architecture_says_what_is_off(
    registry: Registry, costs: CostModel, budget: Budget
) -> None:
    wide = registry.canonical(genome(*[layer("attention", hidden=300)] * 2))
    certificate = certify(wide, budget, costs)
    assert not certificate.feasible
    assert certificate.path == "given"
    assert certificate.reason is not None
    assert f"{PARAMETERS} is +47" in certificate.reason
    assert certify(registry.canonical(REFERENCE), budget, costs).feasible


def test_realised_rates_give_a_realised_certificate(registry: Registry, costs: CostModel) -> None:
    """A gated channel mixer costs what its rate says; a rate far from the nominal one is off the budget."""
    gated = Block(
        sublayers=(Sublayer(mixer="swiglu"),), gate=Router(name="segment_random", params={"probability": 0.5})
    )
    architecture = registry.canonical(genome(Block(sublayers=(Sublayer(mixer="attention"),)), gated))
    goal = pinned(registry, costs, architecture, FLOPS)
    nominal = certify(architecture, goal, costs)
    assert (nominal.feasible, nominal.rates) == (True, "nominal")
    realised = certify(architecture, goal, costs, rates={"0.1.gate": (0.2, 0.8)})
    assert (realised.feasible, realised.rates) == (False, "realised")
    assert realised.quantities[0].residual > 0.1


class Rugged(CostModel):
    """Two valleys: a wide one whose floor is off target, and a narrower one that holds the answer."""

    def __init__(self, base: Ledger, start: int) -> None:
        self.base, self.start = base, start

    def estimate(self, architecture: Architecture, *_: Any, **__: Any) -> Ledger:
        sizes = [s.params["hidden"] for _, s in architecture.sublayers() if s.mixer == "swiglu"]
        x, y = (math.log2(size / self.start) for size in sizes)
        wide = 0.2 + abs(x) + abs(y)
        narrow = max(0.0, math.hypot(x - 0.7, y + 0.6) - 0.25) * 3
        return replace(self.base, parameters=int(10_000 * (1 + min(wide, narrow))))


def test_where_descent_stalls_on_a_large_grid_optuna_goes_on(registry: Registry, costs: CostModel) -> None:
    pair = genome(layer("attention", hidden=800), layer("attention", hidden=802))
    base = costs.estimate(registry.canonical(pair), Shape(1, T))
    goal = replace_values(pinned(registry, costs, pair, "parameters"), {"parameters": 10_000.0})
    bounds = {"attention.head_size": (16, 16)}
    found = [match(pair, goal, registry, Rugged(base, 800), free=bounds) for _ in range(2)]
    assert found[0].certificate.path == "optuna"
    assert found[0].certificate.feasible
    assert found[0] == found[1]


@pytest.mark.parametrize("name", sorted(FAMILIES))
@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(data=st.data())
def test_planted_budgets_are_met(
    registry: Registry, costs: CostModel, name: str, data: st.DataObject
) -> None:
    """A budget taken from a point of the grid can be met, so the matcher has to meet it."""
    plan = layout(registry.canonical(FAMILIES[name]), registry)
    draw: Callable[[Any], Any] = data.draw
    planted = tuple(draw(st.sampled_from(d.grid)) for d in plan.dimensions)
    rules = {"match": {FLOPS: "2%", PARAMETERS: "2%"}, "cap": {MEMORY: "2%"}, "shape": {"tokens": T}}
    try:
        goal = Budget.read(rules).at_reference(costs.estimate(plan.at(planted), Shape(1, T)))
    except ConfigError:
        return  # dimensions legal alone but not together plant nothing
    certificate = match(FAMILIES[name], goal, registry, costs).certificate
    assert certificate.feasible, f"planted {planted}: {certificate.reason}"
