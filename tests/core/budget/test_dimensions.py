"""What may move: params that mixers declare, and the whole model's width, depth and layers on request."""

from __future__ import annotations

from typing import Any

import pytest

from crossbreed.core.budget.budget import Budget
from crossbreed.core.budget.dimensions import layout, movable
from crossbreed.core.budget.matcher import match
from crossbreed.core.contracts.cost import CostModel
from crossbreed.core.errors import ConfigError, UnknownName
from crossbreed.core.genome import Architecture, DepthPolicy, Router, Stage
from crossbreed.core.host import Registry
from crossbreed.core.model.language_model import LanguageModel
from tests.core.budget.material import FLOPS, PARAMETERS, analytic, budget_of, genome, layer

ATTENTION, MAMBA = layer("attention"), layer("mamba2")


@pytest.fixture(scope="module")
def costs(registry: Registry) -> CostModel:
    return analytic(registry)


def grid(architecture: Architecture, registry: Registry, name: str, span: Any = None) -> tuple[int, ...]:
    plan = layout(registry.canonical(architecture), registry, {name: span})
    return next(d.grid for d in plan.dimensions if d.name == name)


def test_width_depth_and_layers_stand_still_unless_freed(registry: Registry) -> None:
    architecture = registry.canonical(genome(ATTENTION, ATTENTION))
    assert [d.name for d in layout(architecture, registry).dimensions] == [
        "attention.head_size",
        "swiglu.hidden",
    ]
    freed = layout(architecture, registry, {"d_model": None, "depth": None, "layers": None})
    # Repeats of a list of layers are its layers.
    assert [d.name for d in freed.dimensions][2:] == ["d_model", "layers"]
    moved = freed.at((16, 176, 96, 3))
    assert moved.d_model == 96
    assert moved == registry.canonical(moved)
    assert moved.stages[0].depth.repeats == 3
    assert moved.stages[0].blocks == architecture.stages[0].blocks
    assert freed.at(freed.start()) == architecture
    (by_depth,) = layout(architecture, registry, {"depth": None}).dimensions[2:]
    assert (by_depth.name, by_depth.start, by_depth.grid) == ("depth", 2, (1, 2, 3, 4))


def test_depth_and_layers_of_a_stage_that_is_no_list_of_layers_are_two_numbers(registry: Registry) -> None:
    stage = Stage(blocks=(ATTENTION, ATTENTION), depth=DepthPolicy(name="recurrent", repeats=3))
    architecture = registry.canonical(Architecture(vocab=64, d_model=64, stages=(stage,)))
    freed = layout(architecture, registry, {"depth": None, "layers": None})
    assert [(d.name, d.start) for d in freed.dimensions][2:] == [("layers", 2), ("depth", 3)]
    moved = freed.at((16, 176, 4, 5)).stages[0]
    assert (len(moved.blocks), moved.depth.repeats) == (4, 5)


@pytest.mark.parametrize(
    ("span", "values"),
    [
        (None, range(32, 129, 8)),
        ("256..1024:64", range(256, 1025, 64)),
        ((64, 96), range(64, 97, 8)),
        ([64, 128, 32], (64, 96, 128)),
        ({"low": 8, "high": 24}, (8, 16, 24)),
        ("40", (40,)),
        (40, (40,)),
    ],
)
def test_a_span_is_written_in_many_ways(registry: Registry, span: Any, values: Any) -> None:
    assert grid(genome(ATTENTION), registry, "d_model", span) == tuple(values)


@pytest.mark.parametrize("span", ["9..3", "a..b", "1..2..3", "0..4", (1, 2, 3, 4), 2.5, True, "4..8:0"])
def test_a_wrong_span_names_its_dimension(registry: Registry, span: Any) -> None:
    with pytest.raises(ConfigError, match="free dimension 'd_model'"):
        layout(registry.canonical(genome(ATTENTION)), registry, {"d_model": span})


def test_layers_move_in_whole_patterns(registry: Registry) -> None:
    pattern = genome(*[MAMBA, MAMBA, ATTENTION] * 4)
    assert grid(pattern, registry, "layers") == (6, 9, 12, 15, 18, 21, 24)
    plan = layout(registry.canonical(pattern), registry, {"layers": "6..6"})
    stage = plan.at(plan.start()).stages[0]
    assert [b.sublayers[0].mixer for b in stage.blocks] == ["mamba2", "mamba2", "attention"]
    assert stage.depth.repeats == 2
    assert grid(genome(MAMBA, ATTENTION, ATTENTION), registry, "layers") == (3, 6)


def test_stages_are_told_apart_by_number_and_freed_together_or_one_by_one(registry: Registry) -> None:
    stages = (
        Stage(blocks=(MAMBA,) * 4),
        Stage(blocks=(ATTENTION,), depth=DepthPolicy(name="recurrent", repeats=3)),
    )
    two = registry.canonical(Architecture(vocab=64, d_model=64, stages=stages))
    names = [d.name for d in layout(two, registry, {"depth": None, "layers[0]": "2..8"}).dimensions]
    assert [n for n in names if "." not in n] == ["layers[0]", "depth[1]"]
    with pytest.raises(UnknownName, match=r"'layers\[2\]'; did you mean 'layers\["):
        layout(two, registry, {"layers[2]": None}, asked={"layers[2]"})


def test_a_halting_stage_keeps_two_depths(registry: Registry) -> None:
    stage = Stage(
        blocks=(ATTENTION,), depth=DepthPolicy(name="recurrent", repeats=2), halt=Router(name="learned")
    )
    halting = Architecture(vocab=64, d_model=64, stages=(stage,))
    assert grid(halting, registry, "depth") == (2, 3, 4)


def test_params_on_request_move_only_then(registry: Registry) -> None:
    architecture = genome(layer("attention", "experts", {"heads": 4}))
    assert grid(architecture, registry, "attention.heads") == tuple(range(2, 9))
    assert grid(architecture, registry, "experts.top_k") == (1, 2, 3, 4)
    usual = layout(registry.canonical(architecture), registry)
    assert {"attention.heads", "experts.top_k"}.isdisjoint(d.name for d in usual.dimensions)


def test_a_param_that_follows_another_starts_from_it(registry: Registry, costs: CostModel) -> None:
    """``kv_heads`` is written None while it equals ``heads``; freed, it takes the values that divide them."""
    architecture = genome(layer("attention", sequence_params={"heads": 4}))
    assert grid(architecture, registry, "attention.kv_heads") == (2, 3, 4, 5, 6, 7, 8)
    grouped = genome(layer("attention", sequence_params={"heads": 4, "kv_heads": 2}))
    goal = budget_of(grouped, registry, costs, (), ("state_bytes",))
    free = {"attention.kv_heads": (1, 4), "attention.head_size": (16, 16)}
    found = match(architecture, goal, registry, costs, free=free)
    assert found.certificate.feasible
    assert found.certificate.dimensions["attention.kv_heads"] == 2
    assert found.architecture == registry.canonical(grouped)


def test_a_budget_frees_for_every_family_and_a_caller_for_this_one(
    registry: Registry, costs: CostModel
) -> None:
    rules = {
        "shape": {"tokens": 32},
        "match": {PARAMETERS: 0.01},
        "free": ["mamba2.heads", "d_model=32..128"],
    }
    goal = Budget.read(rules).at_reference(
        costs.estimate(registry.canonical(genome(ATTENTION, d_model=96)), Budget.read(rules).shape.as_shape())
    )
    found = match(genome(ATTENTION), goal, registry, costs)
    assert found.certificate.feasible
    assert set(found.certificate.dimensions) == {"attention.head_size", "swiglu.hidden", "d_model"}
    with pytest.raises(UnknownName, match=r"free dimension of this architecture 'mamba2\.heads'"):
        match(genome(ATTENTION), goal, registry, costs, free={"mamba2.heads": None})
    assert Budget.read(goal.model_dump(mode="json")) == goal


@pytest.mark.parametrize(
    ("free", "says"),
    [
        (["widht"], "unknown free dimension 'widht'"),
        (["mamba2.state_sise"], "did you mean 'mamba2.state_size'"),
        ({"d_model": "7..7"}, "'d_model' has no legal value in its bounds 7..7"),
        (7, "free must be a list of dimensions or a mapping"),
        (["d_model=5..2"], "a span is LOW..HIGH"),
    ],
)
def test_a_wrong_dimension_is_a_sentence(registry: Registry, costs: CostModel, free: Any, says: str) -> None:
    rules = {"shape": {"tokens": 32}, "match": {PARAMETERS: 0.01}, "values": {PARAMETERS: 1e5}, "free": free}
    with pytest.raises(ConfigError) as error:
        match(genome(ATTENTION), Budget.read(rules), registry, costs)
    assert says in str(error.value)


def test_nested_settings_move_by_their_path(registry: Registry) -> None:
    light = {"projection_experts": {"experts": 6, "top_k": 2}}
    architecture = registry.canonical(genome(layer("attention", sequence_params=light)))
    plan = layout(architecture, registry, {"attention.projection_experts.experts": "4..8"})
    (name,) = (d.name for d in plan.dimensions if "projection" in d.name)
    moved = plan.at(tuple(8 if d.name == name else d.start for d in plan.dimensions))
    before = architecture.stages[0].blocks[0].sublayers[0].params["projection_experts"]
    after = moved.stages[0].blocks[0].sublayers[0].params["projection_experts"]
    assert after == {**before, "experts": 8}
    plain = registry.canonical(genome(ATTENTION))
    without = layout(plain, registry, {"attention.projection_experts.experts": None})
    assert not any("projection" in d.name for d in without.dimensions)


def test_everything_that_could_move_is_listed(registry: Registry) -> None:
    assert {"d_model", "depth", "layers", "swiglu.hidden", "experts.top_k", "attention.heads"} <= movable(
        registry
    )


def test_a_model_of_another_width_and_depth_is_what_its_certificate_says(
    registry: Registry, costs: CostModel
) -> None:
    goal = budget_of(genome(*[ATTENTION] * 5, d_model=96), registry, costs, (FLOPS, PARAMETERS))
    free = {"d_model": "48..128:16", "layers": "2..8", "attention.heads": "2..6"}
    found = match(genome(*[MAMBA, ATTENTION]), goal, registry, costs, free=free)
    assert found.certificate.feasible, found.certificate.reason
    assert set(free) <= set(found.certificate.dimensions)
    model = LanguageModel(found.architecture, registry)
    assert sum(p.numel() for p in model.parameters()) == found.ledger.parameters
