"""Proposals over a small space written here: order, growth, vanished options, determinism, what samplers are told."""

import math
import warnings
from typing import Any

import optuna
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crossbreed.core.contracts.space import Draw, SearchSpace, Setting
from crossbreed.core.errors import ConfigError, UnknownName
from crossbreed.core.genome import Architecture
from crossbreed.core.host import Registry
from crossbreed.core.search.draws import Fixed, Grid, Options, Span
from crossbreed.core.search.proposals import Past, Proposal, Proposer
from crossbreed.core.search.samplers import SAMPLERS as ALL

SAMPLERS = [name for name, sampler in ALL.items() if sampler.build is not None and name != "gp"]
"""Those that draw; Gaussian processes take a second for each proposal and have tests of their own."""
SETTING = Setting(16, 8, 8, ("attention",), (), ("layered",), Registry())


class Toy(SearchSpace):
    """Widths and kinds; a conditional name; options that a later session may change."""

    def __init__(self, kinds: tuple[Any, ...] = ("a", "b"), top: int = 8) -> None:
        super().__init__(None)
        self.kinds, self.top = kinds, top

    def propose(self, draw: Draw, setting: Setting) -> Architecture:
        kind = draw.choose("kind", self.kinds)
        params: dict[str, Any] = {"kind": kind, "width": draw.integer("width", 2, self.top, 2)}
        if kind == "b":
            params["rate"] = draw.number("rate", 0.01, 1.0, log=True)
        # The options of this name depend on what was drawn before.
        params["reader"] = draw.choose("reader", ["x", "y"] if kind == "a" else ["y", "z"])
        sub = {"mixer": "attention", "params": params}
        return Architecture.model_validate(
            {
                "vocab": setting.vocab,
                "d_model": setting.d_model,
                "stages": [{"blocks": [{"sublayers": [sub]}]}],
            }
        )

    def starting_points(self, setting: Setting) -> list[dict[str, Any]]:
        return [{"kind": kind} for kind in self.kinds]

    def family(self, architecture: Architecture) -> str:
        return "toy"


def params(proposal: Proposal) -> dict[str, Any]:
    return proposal.architecture.sublayers()[0][1].params


def proposer(space: SearchSpace | None = None, sampler: str = "tpe", **changes: Any) -> Proposer:
    return Proposer(space or Toy(), SETTING, ["max", "max"], sampler, seed=3, population=4, **changes)


def played(source: Proposer, count: int) -> list[Past]:
    """A history in which wider is better in one objective and worse in the other."""
    history: list[Past] = []
    for _ in range(count):
        draws = source.ask(history).draws
        history.append(Past(draws, (float(draws["width"]), 10.0 - draws["width"])))
    return history


def test_starting_points_come_in_order_with_all_answers() -> None:
    points = proposer().starting_points()
    assert [p.draws["kind"] for p in points] == ["a", "b"]
    assert points[1].draws == {"kind": "b", "width": 2, "rate": 0.01, "reader": "y"}
    assert {p.origin for p in points} == {"start"}


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_every_sampler_proposes_legal_points_over_generations(sampler: str) -> None:
    history = played(proposer(sampler=sampler), 14)
    kinds = {p.draws["kind"] for p in history}
    assert kinds == {"a", "b"}
    for past in history:
        assert past.draws["reader"] in (["x", "y"] if past.draws["kind"] == "a" else ["y", "z"])
        assert past.draws["width"] in (2, 4, 6, 8)
        assert ("rate" in past.draws) == (past.draws["kind"] == "b")


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_a_fresh_proposer_on_the_same_history_asks_the_same(sampler: str) -> None:
    history = played(proposer(sampler=sampler), 9)
    first = proposer(sampler=sampler).ask(history)
    again = proposer(sampler=sampler).ask(history)
    assert first.draws == again.draws
    assert any(proposer(sampler=sampler).ask(history, attempt=n).draws != first.draws for n in range(1, 6))


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_options_may_grow_between_sessions(sampler: str) -> None:
    history = played(proposer(sampler=sampler), 8)
    grown = proposer(Toy(("a", "b", "c", "d", 1, True, 1.0), top=20), sampler)
    seen = set()
    for attempt in range(60):
        seen.add(repr(grown.ask(history, attempt).draws["kind"]))
    assert {"'c'", "'d'", "1", "True", "1.0"} <= seen


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_options_that_vanished_are_forgotten_not_proposed(sampler: str) -> None:
    history = played(proposer(Toy(("a", "b", "gone"), top=20), sampler), 12)
    assert any(p.draws["kind"] == "gone" or p.draws["width"] > 6 for p in history)
    shrunk = proposer(Toy(("a", "b"), top=6), sampler)
    for attempt in range(20):
        draws = shrunk.ask(history, attempt).draws
        assert draws["kind"] in ("a", "b")
        assert draws["width"] in (2, 4, 6)


def test_tpe_learns_from_values() -> None:
    history = [Past({"kind": "a", "width": w, "reader": "x"}, (float(w), float(w))) for w in (2, 4, 6, 8) * 5]
    widths = [proposer().ask(history, attempt).draws["width"] for attempt in range(24)]
    assert sum(widths) / len(widths) > 6.0


def told(history: list[Past], sampler: str = "tpe") -> list[optuna.trial.FrozenTrial]:
    source = proposer(sampler=sampler)
    source.ask(history)
    return source._study(source.sampler, history, 0).trials


def test_samplers_are_never_told_nan_infinity_or_failures() -> None:
    draws = {"kind": "a", "width": 4, "reader": "x"}
    history = [
        Past(draws, (0.5, 2.0)),
        Past(draws, (0.7, 1.0)),
        Past(draws, (math.nan, 1.0)),
        Past(draws, (1.0, math.inf)),
        Past(draws),
        Past(draws, running=True),
        Past(draws, violation=0.4),
    ]
    trials = told(history)
    assert [t.state.name for t in trials] == ["COMPLETE", "COMPLETE", "RUNNING", "COMPLETE"]
    assert [t.values for t in trials if t.values] == [[0.5, 2.0], [0.7, 1.0], [0.5, 1.0]]
    assert [t.constraints for t in trials if t.values] == [{"budget": 0.0}, {"budget": 0.0}, {"budget": 0.4}]


def test_only_infeasible_history_still_gives_proposals() -> None:
    history = [Past({"kind": "a", "width": w, "reader": "x"}, violation=0.1 * w) for w in (2, 4, 6, 8, 8, 8)]
    for sampler in SAMPLERS:
        assert params(proposer(sampler=sampler).ask(history))["kind"] in ("a", "b")


def test_replay_gives_the_same_architecture_and_refuses_vanished_answers() -> None:
    source = proposer()
    asked = source.ask([])
    assert source.replay(asked.draws).architecture == asked.architecture
    with pytest.raises(ConfigError, match=r"draw 'kind' is 'zebra', which is not in its options"):
        source.replay({"kind": "zebra"})
    with pytest.raises(ConfigError, match=r"draw 'width' is 5, which is not in its range 2 to 8 by 2"):
        source.replay({"width": 5})


def test_unknown_sampler_names_the_nearest() -> None:
    with pytest.raises(UnknownName, match="did you mean 'nsga2'"):
        proposer(sampler="nsga-2")


def test_an_empty_or_impossible_domain_is_a_sentence() -> None:
    with pytest.raises(ConfigError, match="'k' has no options"):
        Fixed().choose("k", [])
    with pytest.raises(ConfigError, match="low <= high"):
        Fixed().integer("n", 5, 4)
    with pytest.raises(ConfigError, match="log scale"):
        Fixed().number("x", 0.0, 1.0, log=True)


@given(st.lists(st.tuples(st.integers(-9, 9), st.integers(0, 9), st.integers(1, 4)), min_size=1, max_size=4))
@settings(max_examples=80, deadline=None)
def test_joined_grids_hold_every_point_of_each(parts: list[tuple[int, int, int]]) -> None:
    grids = [Grid(low, low + count * step, step) for low, count, step in parts]
    whole = grids[0]
    for grid in grids[1:]:
        whole = whole.joined(grid)
    for grid in grids:
        assert all(whole.holds(v) for v in range(grid.low, grid.high + 1, grid.step))


def test_nearest_legal_answer() -> None:
    assert Grid(2, 8, 2).nearest(5.2) == 6
    assert Grid(2, 8, 2).nearest(math.nan) == 2
    assert Span(0.1, 1.0, True).nearest(7) == 1.0
    assert Options.of(["a", "b"]).nearest("c") == "a"
    assert not Options.of([1]).holds(True)


@pytest.mark.filterwarnings("error")
def test_no_warning_reaches_the_user() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for sampler in SAMPLERS:
            played(proposer(sampler=sampler), 7)
