from __future__ import annotations

import math

import pytest

from crossbreed.core.search.statistics import Interval
from crossbreed.figures.scales import error_bars, log_ticks


@pytest.mark.parametrize(
    ("low", "high"), [(880, 2100), (1, 1e6), (990, 1010), (0.2, 0.9), (15, 16), (3e5, 9e5)]
)
def test_a_log_axis_has_a_readable_number_of_round_ticks_inside(low: float, high: float) -> None:
    ticks = log_ticks(low, high)
    assert 2 <= len(ticks) <= 15
    assert all(low <= tick <= high for tick in ticks)
    assert ticks == sorted(set(ticks))
    assert all(len(f"{tick:f}".replace(".", "").strip("0")) <= 4 for tick in ticks)


def test_bars_reach_the_ends_of_intervals_and_there_is_none_without_one() -> None:
    bars = error_bars([Interval(0.5, 0.2, 0.6), None], color="red")
    assert bars["array"][0] == pytest.approx(0.1)
    assert bars["arrayminus"][0] == pytest.approx(0.3)
    # Of zero or null a browser draws the caps of a bar, as if the value were sure.
    assert math.isnan(bars["array"][1])
    assert math.isnan(bars["arrayminus"][1])
    assert (bars["visible"], bars["color"]) == (True, "red")
    assert not error_bars([None, None])["visible"]
