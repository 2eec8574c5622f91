"""The spaces of the published systems, and of all of them: every draw is legal; each starts from its system, its rivals and every
router."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from crossbreed.core.contracts.space import Setting
from crossbreed.core.genome import Architecture, digest
from crossbreed.core.host import Host, PluginFile, Registry
from crossbreed.core.ledger import Shape
from crossbreed.core.model.legality import check
from crossbreed.core.search.plan import plan
from crossbreed.core.search.study_file import StudyFile
from crossbreed.core.search.study_setting import resolve
from tests.support.draws import PLUGIN, Drawn, Fixed, built, setting

SPACES = pytest.mark.parametrize("name", ["amor", "oryx", "dreamer"])


@cache
def extended() -> Registry:
    return Host.load([PluginFile("plugin.py", "0" * 64, PLUGIN)], third_party=False)


def searchable(parts: Registry) -> tuple[str, ...]:
    return tuple(r for r in parts.names("router") if parts.descriptor("router", r).capabilities.searchable)


def starts(parts: Registry, name: str, where: Setting, **params: Any) -> dict[str, Architecture]:
    """Starting points by family, in canonical form."""
    space = built(parts, name, **params)
    proposed = [space.propose(Fixed(point), where) for point in space.starting_points(where)]
    return {space.family(a): parts.canonical(a) for a in proposed}


@pytest.mark.parametrize("name", ["amor", "oryx", "dreamer", "open"])
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(data=st.data())
def test_every_draw_is_legal(name: str, data: st.DataObject) -> None:
    parts = extended()

    def some(names: tuple[str, ...] | list[str], least: int = 0) -> tuple[str, ...]:
        return tuple(data.draw(st.lists(st.sampled_from(list(names)), unique=True, min_size=least)))

    where = setting(
        parts,
        length=data.draw(st.sampled_from([1, 5, 32, 2048])),
        d_model=data.draw(st.sampled_from([16, 64, 96, 1024])),
        mixers=("attention", *some([m for m in parts.names("mixer") if m != "attention"])),
        routers=some(searchable(parts)),
        depth=some(parts.names("depth"), 1),
    )
    space = built(parts, name, layers=data.draw(st.integers(2, 5)))
    draw = Drawn(data)
    architecture = space.propose(draw, where)
    check(architecture, parts)
    canonical = parts.canonical(architecture)
    costs = parts.factory("cost", "analytic")(None, parts)
    assert costs.estimate(canonical, Shape(1, where.length)).parameters > 0
    assert space.family(canonical) == space.family(architecture)
    again = Fixed(draw.answers)
    assert space.propose(again, where) == architecture
    assert again.asked == set(draw.answers)
    for point in space.starting_points(where):
        check(space.propose(Fixed(point), where), parts)


@SPACES
def test_starting_points_differ_and_show_every_router_at_every_site_of_the_space(name: str) -> None:
    parts = extended()
    where = setting(parts, routers=searchable(parts))
    space = built(parts, name)
    found = [parts.canonical(space.propose(Fixed(p), where)) for p in space.starting_points(where)]
    hashes = [digest(a) for a in found]
    assert len(set(hashes)) == len(hashes)
    assert 10 <= len(found) <= 30
    gates = {b.gate.name for a in found for s in a.stages for b in s.blocks if b.gate}
    halts = {s.halt.name for a in found for s in a.stages if s.halt}
    modes = {a.mode_router.name for a in found if a.mode_router}

    def able(site: str) -> set[str]:
        return {r for r in searchable(parts) if site in parts.descriptor("router", r).capabilities.sites}

    assert (gates, modes, halts) == (able("gate"), able("mode"), able("halt"))


def test_amor_starts_from_amor_and_its_rivals(registry: Registry) -> None:
    found = starts(registry, "amor", setting(registry, routers=searchable(registry)))
    backbone, after = found["gated_deltanet > attention/gate:entropy_gate"].stages
    assert not any(b.gate for b in backbone.blocks)
    assert {b.output_init for b in after.blocks} == {"zero"}
    assert all(b.output_scale is not None for b in after.blocks)
    assert {
        "attention",
        "mamba2",
        "gated_deltanet",
        "gated_deltanet+attention",
        "gated_deltanet+attention&gated_deltanet",
        "mamba2 > attention/gate:learned",
        "gated_deltanet > attention/gate:segment_random",
        "mamba2 > attention",
        "recurrent gated_deltanet experts/halt:learned",
    } <= set(found)


def test_amor_has_three_blocks_in_both_residual_modes_and_one(registry: Registry) -> None:
    where = setting(registry, routers=("entropy_gate",))
    space = built(registry, "amor")
    proposed = [space.propose(Fixed(point), where) for point in space.starting_points(where)]
    after = [a.stages[1] for a in proposed if len(a.stages) == 2 and a.mode_router is None]
    kinds = {(len(s.blocks), s.entry_norm, s.blocks[0].norm, s.blocks[0].gate is not None) for s in after}
    assert kinds == {
        (3, True, "none", True),
        (3, True, "none", False),
        (3, False, "pre", True),
        (1, True, "none", True),
    }


def test_oryx_starts_from_both_families_and_single_mixers(registry: Registry) -> None:
    found = starts(registry, "oryx", setting(registry, routers=searchable(registry)))
    assert {
        "multi_mixer(mamba2|attention)/segment_random",
        "multi_mixer(gated_deltanet|attention)/learned",
        "attention",
        "mamba2",
        "gated_deltanet",
        "recurrent multi_mixer(mamba2|attention) experts/segment_random/halt:learned",
    } <= set(found)


def test_dreamer_starts_from_its_ablations_and_layered_rivals(registry: Registry) -> None:
    where = setting(registry, routers=searchable(registry))
    found = starts(registry, "dreamer", where, layers=4)
    assert {
        "recurrent depth_attention+attention experts",
        "recurrent attention experts",
        "depth_attention+attention experts",
        "attention experts",
        "recurrent depth_attention+attention experts/halt:learned",
        "attention experts > recurrent attention experts",
    } <= set(found)
    block = found["recurrent depth_attention+attention experts"].stages[0].blocks[0]
    assert [sub.mixer for sub in block.sublayers] == ["depth_attention", "attention", "experts"]
    assert block.sublayers[0].params["projection_experts"]["experts"] == 3
    core = found["attention experts > recurrent attention experts"].stages
    assert [stage.depth.repeats for stage in core] == [1, 2, 1]


STUDY = {
    "name": "published",
    "task": {"name": "recall", "params": {"vocab": 48, "pairs": 4, "length": 32, "eval_items": 64}},
    "budget": {
        "reference": {
            "d_model": 64,
            "stages": [
                {
                    "blocks": [
                        {
                            "sublayers": [
                                {
                                    "mixer": "attention",
                                    "params": {"heads": 2, "head_size": 32, "short_conv": {"width": 4}},
                                },
                                {"mixer": "swiglu", "params": {"hidden": 176}},
                            ]
                        }
                    ],
                    "depth": {"name": "layered", "repeats": 2},
                }
            ],
        },
        "match": {"training_flops_per_token": "2%", "non_embedding_parameters": "2%"},
        "cap": {"memory_bytes": "2%"},
    },
    "train": {"tokens": 64_000, "batch": 16},
}


@SPACES
def test_a_plan_at_the_size_of_the_quickstart_brings_most_starts_into_the_budget(
    registry: Registry, name: str
) -> None:
    study = StudyFile.read(
        yaml.safe_load(
            yaml.safe_dump({**STUDY, "space": {"name": name, "routers": ["entropy_gate", "learned"]}})
        )
    )
    found = plan(resolve(study, registry))
    rows = [row for row in found.rows if row.origin == "start"]
    feasible = [row for row in rows if row.reason is None]
    reasons = {row.family: row.reason for row in rows if row.reason is not None}
    assert len(feasible) >= 0.65 * len(rows), reasons


def test_the_open_space_starts_from_each_of_the_others_by_turns(registry: Registry) -> None:
    where = setting(registry, routers=searchable(registry))
    space = built(registry, "open", layers=4, starts=3)
    points = space.starting_points(where)
    assert [p["body"] for p in points[:5]] == ["layer_hybrids", "amor", "oryx", "dreamer", "layer_hybrids"]
    proposed = [space.propose(Fixed(point), where) for point in points]
    assert len({digest(a) for a in proposed}) == len(points) <= 12
    for body in ("layer_hybrids", "amor", "oryx", "dreamer"):
        theirs = built(registry, body, layers=4)
        first = theirs.starting_points(where)[0]
        assert theirs.propose(Fixed(first), where) in proposed


def test_what_any_space_proposes_the_open_one_proposes_too(registry: Registry) -> None:
    where = setting(registry, routers=searchable(registry))
    space = built(registry, "open", starts=1)
    for body in ("layer_hybrids", "amor", "oryx", "dreamer"):
        theirs = built(registry, body)
        for point in theirs.starting_points(where):
            answers = {"body": body, **{f"{body}.{name}": value for name, value in point.items()}}
            found = space.propose(Fixed(answers), where)
            assert found == theirs.propose(Fixed(point), where)
            assert space.family(found) == theirs.family(found)
