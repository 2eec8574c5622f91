"""Verdicts on planted data: what is there is found as often as it should be, and what is not is not claimed."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crossbreed.claims.judge import Direction, decide, exactly, judge, together
from crossbreed.core.search.statistics import Interval, t_interval

small = st.floats(-1, 1, allow_nan=False)
DIRECTIONS: tuple[Direction, ...] = ("more", "at_least", "equal")


@st.composite
def intervals(draw: st.DrawFn) -> Interval:
    mean, half = draw(small), draw(st.floats(0, 1))
    return Interval(mean, mean - half, mean + half)


@settings(deadline=None)
@given(st.lists(small, min_size=3, max_size=12), st.floats(0, 0.5))
def test_turning_the_data_round_turns_the_verdict_on_a_difference_round(
    values: list[float], margin: float
) -> None:
    opposite = {"supported": "contradicted", "contradicted": "supported"}
    one, other = judge(values, "more", margin), judge([-v for v in values], "more", margin)
    assert other.verdict == opposite.get(one.verdict, one.verdict)
    equal, turned = judge(values, "equal", margin), judge([-v for v in values], "equal", margin)
    assert equal.verdict == turned.verdict


@settings(deadline=None)
@given(intervals(), st.floats(0, 0.5))
def test_what_is_supported_excludes_the_contrary(interval: Interval, margin: float) -> None:
    more, least, equal = (decide(interval, direction, margin) for direction in DIRECTIONS)
    if more == "supported":
        assert interval.low > 0
        assert least == "supported"
        assert equal != "supported"
    if more == "equal":
        assert equal == "supported"
    if least == "contradicted":
        assert more in ("contradicted", "undecided")
        assert interval.high < 0


@settings(deadline=None)
@given(st.lists(small, max_size=2), st.floats(0, 0.5), st.sampled_from(DIRECTIONS))
def test_fewer_than_three_seeds_decide_nothing(
    values: list[float], margin: float, direction: Direction
) -> None:
    assert judge(values, direction, margin).verdict == "undecided"


@settings(deadline=None)
@given(st.lists(small, min_size=3, max_size=8), st.floats(0.01, 0.3), st.sampled_from(DIRECTIONS))
def test_the_seeds_that_are_said_to_be_needed_are_the_fewest_that_decide(
    values: list[float], margin: float, direction: Direction
) -> None:
    found = judge(values, direction, margin)
    if found.verdict != "undecided":
        assert found.needs is None
        return
    if found.needs is not None:
        assert found.needs > len(values)


@pytest.mark.parametrize(
    ("effect", "direction", "wanted"),
    [
        (0.2, "more", "supported"),
        (-0.2, "more", "contradicted"),
        (0.0, "more", "equal"),
        (0.0, "at_least", "supported"),
        (-0.2, "at_least", "contradicted"),
        (0.0, "equal", "supported"),
        (0.2, "equal", "contradicted"),
    ],
)
def test_a_planted_effect_is_found(effect: float, direction: Direction, wanted: str) -> None:
    draw = random.Random(0)
    verdicts = [
        judge([draw.gauss(effect, 0.01) for _ in range(5)], direction, 0.05).verdict for _ in range(200)
    ]
    assert verdicts.count(wanted) > 190  # type: ignore[arg-type]


def test_nothing_is_claimed_of_noise_more_often_than_one_in_twenty() -> None:
    draw = random.Random(1)
    found = [t_interval([draw.gauss(0, 1) for _ in range(4)]) for _ in range(2000)]
    verdicts = [decide(interval, "more", 0.05) for interval in found if interval is not None]
    assert sum(v in ("supported", "contradicted") for v in verdicts) < 0.065 * 2000
    # Too noisy for the margin: that it is equal is not claimed either.
    assert verdicts.count("equal") < 20


def test_a_difference_at_the_margin_that_is_surely_there_is_no_equality() -> None:
    assert judge([0.06, 0.07, 0.065, 0.066], "more", 0.05).verdict == "supported"
    assert judge([0.020, 0.021, 0.022, 0.0205], "more", 0.05).verdict == "equal"


def test_an_exact_value_needs_no_seeds() -> None:
    assert exactly(0.0, "equal", 0.0).verdict == "supported"
    assert exactly(1e-9, "equal", 0.0).verdict == "contradicted"
    assert exactly(0.0, "at_least", 0.0).verdict == "supported"


def test_a_claim_is_supported_by_all_of_its_parts_and_contradicted_by_one() -> None:
    assert together(["supported", "supported"]) == "supported"
    assert together(["supported", "undecided"]) == "undecided"
    assert together(["supported", "equal", "undecided"]) == "equal"
    assert together(["equal", "contradicted", "supported"]) == "contradicted"
    assert together([]) == "undecided"


def test_a_margin_below_zero_is_refused() -> None:
    with pytest.raises(ValueError, match="margin"):
        judge([0.0, 0.0, 0.0], "more", -0.1)
