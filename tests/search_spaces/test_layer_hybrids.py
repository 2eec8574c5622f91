"""The layer-hybrid space: every draw is legal, every allowed part is seen, and plugins join without an edit."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from crossbreed.core.budget.budget import Budget
from crossbreed.core.budget.matcher import Match, match
from crossbreed.core.contracts.space import SearchSpace, Setting
from crossbreed.core.errors import ConfigError
from crossbreed.core.genome import Architecture, Block, Stage, Sublayer
from crossbreed.core.host import Host, PluginFile, Registry
from crossbreed.core.ledger import Shape
from crossbreed.core.model.legality import check
from tests.support.draws import PLUGIN, Drawn, Fixed, built, setting


def space(parts: Registry, **params: Any) -> SearchSpace:
    return built(parts, "layer_hybrids", **params)


def points(parts: Registry, where: Setting, **params: Any) -> list[Architecture]:
    hybrids = space(parts, **params)
    return [hybrids.propose(Fixed(point), where) for point in hybrids.starting_points(where)]


@pytest.fixture(scope="module")
def extended() -> Registry:
    return Host.load([PluginFile("plugin.py", "0" * 64, PLUGIN)], third_party=False)


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_every_draw_is_legal(extended: Registry, data: st.DataObject) -> None:
    """Whatever is allowed and drawn: it validates, can be built, can be costed, and is drawn again the same."""

    def some(names: list[str], least: int = 0) -> tuple[str, ...]:
        return tuple(data.draw(st.lists(st.sampled_from(names), unique=True, min_size=least)))

    where = setting(
        extended,
        length=data.draw(st.sampled_from([1, 2, 5, 32, 2048])),
        d_model=data.draw(st.sampled_from([16, 64, 96, 1024])),
        mixers=("attention", *some([m for m in extended.names("mixer") if m != "attention"])),
        routers=some(extended.names("router")),
        depth=some(extended.names("depth"), 1),
    )
    hybrids = space(extended, layers=data.draw(st.integers(1, 3)))
    draw = Drawn(data)
    architecture = hybrids.propose(draw, where)
    check(architecture, extended)
    canonical = extended.canonical(architecture)
    costs = extended.factory("cost", "analytic")(None, extended)
    assert costs.estimate(canonical, Shape(1, where.length)).parameters > 0
    assert hybrids.family(canonical) == hybrids.family(architecture)
    again = Fixed(draw.answers)
    assert hybrids.propose(again, where) == architecture
    assert again.asked == set(draw.answers)


def test_starting_points_show_every_part_once(registry: Registry) -> None:
    architectures = points(registry, setting(registry))
    assert 12 <= len(architectures) <= 14
    seen: dict[str, set[str]] = {"mixer": set(), "gate": set(), "mode": set(), "depth": set()}
    for a in architectures:
        seen["mixer"] |= {sub.mixer for _, sub in a.sublayers()}
        seen["depth"] |= {stage.depth.name for stage in a.stages}
        seen["gate"] |= {b.gate.name for s in a.stages for b in s.blocks if b.gate is not None}
        seen["mode"] |= {a.mode_router.name} if a.mode_router else set()
    # Mixers along depth are of spaces that are about repeated stages.
    axes = {m: registry.descriptor("mixer", m).capabilities.axis for m in registry.names("mixer")}
    assert seen["mixer"] == {m for m, axis in axes.items() if axis != "depth"}
    assert seen["depth"] == set(registry.names("depth"))
    searched = {
        n for n in registry.names("router") if registry.descriptor("router", n).capabilities.searchable
    }
    assert seen["gate"] == seen["mode"] == searched
    canonical = [registry.canonical(a) for a in architectures]
    assert all(a not in canonical[:i] for i, a in enumerate(canonical))


def test_no_family_owns_the_only_convolution(registry: Registry) -> None:
    for architecture in points(registry, setting(registry)):
        for _, sub in registry.canonical(architecture).sublayers():
            if registry.descriptor("mixer", sub.mixer).capabilities.axis == "sequence":
                assert sub.params["short_conv"]["width"] == 4


@pytest.fixture(scope="module")
def matched(registry: Registry) -> dict[str, Match]:
    """All starting points, matched to a Transformer of 2 layers at width 64."""
    block = Block(
        sublayers=(
            Sublayer(mixer="attention", params={"heads": 4, "head_size": 16, "short_conv": {"width": 4}}),
            Sublayer(mixer="swiglu"),
        )
    )
    reference = registry.canonical(Architecture(vocab=64, d_model=64, stages=(Stage(blocks=(block,) * 2),)))
    costs = registry.factory("cost", "analytic")(None, registry)
    rules = {
        "match": {"training_flops_per_token": "2%", "non_embedding_parameters": "2%"},
        "cap": {"memory_bytes": "2%"},
        "shape": {"tokens": 32},
    }
    budget = Budget.read(rules).at_reference(costs.estimate(reference, Shape(1, 32)))
    hybrids = space(registry)
    where = setting(registry)
    proposed = [hybrids.propose(Fixed(p), where) for p in hybrids.starting_points(where)]
    return {hybrids.family(a): match(a, budget, registry, costs) for a in proposed}


def test_all_starting_families_but_the_dense_recurrent_one_meet_the_budget(matched: dict[str, Match]) -> None:
    infeasible = {family: m for family, m in matched.items() if not m.certificate.feasible}
    assert set(infeasible) == {"recurrent attention"}
    reason = infeasible["recurrent attention"].certificate.reason
    assert reason is not None
    assert "non_embedding_parameters" in reason
    assert "cannot rise without training_flops_per_token" in reason


def test_families_are_named_by_what_they_are_made_of(matched: dict[str, Match]) -> None:
    assert {
        "attention",
        "mamba2",
        "gated_deltanet",
        "gated_deltanet+attention",
        "mamba2+attention/gate:learned",
        "multi_mixer(mamba2|attention)/entropy_gate",
        "recurrent attention experts",
    } <= set(matched)


def test_a_router_and_a_mixer_of_a_plugin_join_without_an_edit(extended: Registry) -> None:
    architectures = points(extended, setting(extended))
    assert any(a.mode_router and a.mode_router.name == "every_nth" for a in architectures)
    gates = [b.gate for a in architectures for s in a.stages for b in s.blocks if b.gate]
    assert any(g.name == "every_nth" and g.params == {"step": 2} for g in gates)
    means = [sub for a in architectures for _, sub in a.sublayers() if sub.mixer == "running_mean"]
    # 2 D x width = 4 D^2 at the start: as many parameters as attention of the model's width.
    assert means
    assert {sub.params["width"] for sub in means} == {136}


def test_readers_are_listed_cheapest_first(registry: Registry) -> None:
    where = setting(registry)
    hybrids = space(registry)
    for point in hybrids.starting_points(where):
        architecture = hybrids.propose(Fixed(point), where)
        for _, sub in architecture.sublayers():
            if sub.mixer == "multi_mixer":
                assert sub.params["readers"][1] == "attention"


def test_a_gate_skips_attention_but_not_the_channel_mixer(registry: Registry) -> None:
    gated = [a for a in points(registry, setting(registry)) if any(b.gate for b in a.stages[0].blocks)]
    assert gated
    for architecture in gated:
        for block in architecture.stages[0].blocks:
            if block.gate is not None:
                assert [s.mixer for s in block.sublayers] == ["attention"]
        assert sum(s.mixer == "swiglu" for _, s in architecture.sublayers()) == 2


def test_segments_fit_the_task(registry: Registry) -> None:
    """At length 8 a segment of 8 or 16 would be the whole row; under feedback at most eight segments are passes."""
    hybrids = space(registry)
    for length, allowed in ((8, {1, 4}), (64, {1, 4, 8, 16})):
        where = setting(registry, length=length)
        for point in hybrids.starting_points(where):
            drawn = {n: v for n, v in point.items() if n.endswith(".segment")}
            assert set(drawn.values()) <= allowed
            feedback = drawn.get("mode.entropy_gate.segment")
            assert feedback is None or length / feedback <= 8


def test_without_routers_there_are_no_gates_and_no_multi_mixers(registry: Registry) -> None:
    for architecture in points(registry, setting(registry, routers=())):
        assert architecture.mode_router is None
        assert not any(b.gate for b in architecture.stages[0].blocks)
        assert "multi_mixer" not in {sub.mixer for _, sub in architecture.sublayers()}


def test_recurrent_candidates_repeat_one_layer(registry: Registry) -> None:
    where = setting(registry, depth=("recurrent",))
    for architecture in points(registry, where, layers=4):
        (stage,) = architecture.stages
        assert stage.depth.repeats == 4
        assert sum(len(b.sublayers) for b in stage.blocks) == 2


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        (
            {"mixers": ("swiglu", "multi_mixer")},
            "needs a sequence mixer.*allows the mixers: swiglu, multi_mixer",
        ),
        ({"depth": ()}, "needs a depth policy"),
    ],
)
def test_a_setting_that_allows_too_little_is_refused(
    registry: Registry, changes: dict[str, Any], says: str
) -> None:
    with pytest.raises(ConfigError, match=says):
        space(registry).starting_points(setting(registry, **changes))


def test_a_router_that_cannot_stand_at_a_site_is_not_proposed_there(registry: Registry) -> None:
    only_halt = Host.load(third_party=False)
    entry = only_halt.entries["router"]["learned"]
    able = replace(entry.descriptor.capabilities, sites=("halt",))
    entry.descriptor = replace(entry.descriptor, capabilities=able)
    for architecture in points(only_halt, setting(only_halt)):
        assert architecture.mode_router is None or architecture.mode_router.name != "learned"
        assert all(b.gate is None or b.gate.name != "learned" for b in architecture.stages[0].blocks)
