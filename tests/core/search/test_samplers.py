"""Samplers by name: what each is told, and that the enumerating ones list everything once."""

import math

import pytest

from crossbreed.core.contracts.space import Draw, SearchSpace, Setting
from crossbreed.core.errors import PluginError
from crossbreed.core.genome import Architecture
from crossbreed.core.search.enumeration import enumerate_draws
from crossbreed.core.search.proposals import Past
from crossbreed.core.search.samplers import SAMPLERS, build
from tests.core.search.test_proposals import SETTING, Toy, params, proposer

MODELS = [name for name, sampler in SAMPLERS.items() if sampler.build is not None]
"""All that draw, Gaussian processes too."""


@pytest.mark.parametrize("sampler", MODELS)
def test_proposals_survive_every_kind_of_past(sampler: str) -> None:
    """Infinite and NaN objectives, failures, running and infeasible candidates, and names that only some have (O12, O13)."""
    past = [
        Past({"kind": "a", "width": 2, "reader": "x"}, (0.5, 2.0)),
        Past({"kind": "b", "width": 4, "rate": 0.1, "reader": "z"}, (0.7, 1.0)),
        Past({"kind": "a", "width": 8, "reader": "y"}, (0.6, 1.5)),
        Past({"kind": "a", "width": 6, "reader": "x"}, (0.9, 0.5)),
        Past({"kind": "a", "width": 6, "reader": "y"}, (math.nan, 1.0)),
        Past({"kind": "a", "width": 4, "reader": "y"}, (1.0, math.inf)),
        Past({"kind": "b", "width": 8, "rate": 1.0, "reader": "y"}),
        Past({"kind": "b", "width": 6, "rate": 0.5, "reader": "y"}, running=True),
        Past({"kind": "b", "width": 2, "rate": 0.02, "reader": "y"}, violation=0.4),
    ]
    first, again = proposer(sampler=sampler).ask(past), proposer(sampler=sampler).ask(past)
    assert first.draws == again.draws
    assert params(first)["width"] in (2, 4, 6, 8)


@pytest.mark.parametrize("sampler", MODELS)
def test_nothing_feasible_or_one_poor_feasible_candidate_still_gives_proposals(sampler: str) -> None:
    """O15: samplers are told distances from the budget and finite stand-in values, never an empty study."""
    infeasible = [Past({"kind": "a", "width": w, "reader": "x"}, violation=0.1 * w) for w in (2, 4, 6, 8, 8)]
    poor = Past({"kind": "b", "width": 2, "rate": 0.1, "reader": "y"}, (0.01, 0.01))
    for history in (infeasible, [*infeasible, poor]):
        assert params(proposer(sampler=sampler).ask(history))["kind"] in ("a", "b")


@pytest.mark.parametrize("sampler", ["tpe", "nsga2", "nsga3", pytest.param("gp", marks=pytest.mark.slow)])
def test_samplers_with_constraints_move_towards_the_budget(sampler: str) -> None:
    """Wide candidates are far outside the budget and narrow ones inside it: proposals are narrower than even draws."""
    history = []
    for width in (2, 4, 6, 8) * 2:
        draws = {"kind": "a", "width": width, "reader": "x"}
        outside = max(0.0, 0.5 * (width - 4))
        values = (0.5 + 0.001 * width, 1.0)
        history.append(Past(draws, violation=outside) if outside else Past(draws, values))
    asks = 4 if sampler == "gp" else 12
    widths = [proposer(sampler=sampler).ask(history, attempt).draws["width"] for attempt in range(asks)]
    assert sum(widths) / len(widths) < 5.0


def test_a_quasi_random_sequence_covers_options_more_evenly_than_random_draws() -> None:
    def seen(sampler: str) -> int:
        source, history = proposer(Toy(top=64), sampler), []
        for _ in range(32):
            history.append(Past(source.ask(history).draws))
        return len({p.draws["width"] for p in history})

    # 32 draws of 32 values: independent ones hit about 20 of them.
    assert seen("quasi_random") > 25 > seen("random")


def test_a_sequence_goes_on_after_a_restart() -> None:
    source, history = proposer(sampler="quasi_random"), []
    for _ in range(6):
        history.append(Past(source.ask(history).draws))
    fresh = proposer(sampler="quasi_random")
    assert fresh.ask(history).draws == source.ask(history).draws
    assert fresh.ask(history).draws not in [p.draws for p in history]


def test_the_grid_lists_every_legal_draw_once_and_names_only_where_they_are_asked() -> None:
    draws = [p.draws for p in proposer(sampler="grid").grid()]
    # kind a: 4 widths x 2 readers; kind b: 4 widths x 5 levels of rate x 2 readers.
    assert len(draws) == len({tuple(sorted(d.items())) for d in draws}) == 4 * 2 + 4 * 5 * 2
    assert draws[0] == {"kind": "a", "width": 2, "reader": "x"}
    assert all(("rate" in d) == (d["kind"] == "b") for d in draws)
    rates = sorted({d["rate"] for d in draws if "rate" in d})
    assert rates[0] == 0.01
    assert rates[2] == pytest.approx(0.1)
    assert rates[-1] == 1.0


def test_a_space_that_asks_differently_after_equal_answers_is_named() -> None:
    class Fickle(SearchSpace):
        asked = 0

        def propose(self, draw: Draw, setting: Setting) -> Architecture:
            self.asked += 1
            draw.choose(f"name{self.asked}", ["x", "y"])
            return Toy().propose(draw, setting)

    with pytest.raises(PluginError, match="asked for 'name2' where it asked for 'name1' before"):
        list(enumerate_draws(Fickle(None), SETTING))


def test_what_enumerates_has_no_model() -> None:
    with pytest.raises(ValueError, match="'grid' enumerates"):
        build("grid", 0, 4)


def test_every_sampler_says_how_it_is_used() -> None:
    for sampler in SAMPLERS.values():
        assert sampler.use.endswith(".")
        assert len(sampler.use) > 40
