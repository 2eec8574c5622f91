"""Student t intervals against tabulated quantiles."""

import math

import numpy as np
import pytest

from crossbreed.core.search.statistics import Interval, disjoint, t_interval, t_quantile


@pytest.mark.parametrize(
    ("degrees", "level", "expected"),
    [
        (1, 0.95, 12.706204736),
        (2, 0.95, 4.302652730),
        (3, 0.95, 3.182446305),
        (4, 0.99, 4.604094871),
        (9, 0.90, 1.833112933),
        (30, 0.95, 2.042272456),
        (199, 0.95, 1.971956544),
    ],
)
def test_quantile_equals_published_tables(degrees: int, level: float, expected: float) -> None:
    assert t_quantile(degrees, level) == pytest.approx(expected, rel=1e-9)


def test_interval_by_hand() -> None:
    interval = t_interval([0.8, 0.9, 1.0])
    assert interval is not None
    half = 4.302652730 * 0.1 / math.sqrt(3)
    assert interval == pytest.approx((0.9, 0.9 - half, 0.9 + half), rel=1e-9)


def test_two_seeds_give_no_interval() -> None:
    assert t_interval([0.1, 0.2]) is None


def test_values_that_are_not_finite_are_refused() -> None:
    with pytest.raises(ValueError, match="finite"):
        t_interval([0.1, math.nan, 0.3])


def test_coverage_of_three_seeds_is_nominal() -> None:
    draws = np.random.default_rng(0).normal(1.0, 0.3, size=(4000, 3))
    intervals = [t_interval(row.tolist()) for row in draws]
    covered = np.mean([i is not None and i.low <= 1.0 <= i.high for i in intervals])
    assert covered == pytest.approx(0.95, abs=0.012)


def test_disjoint_needs_two_known_intervals() -> None:
    low, high = Interval(0.1, 0.0, 0.2), Interval(0.4, 0.3, 0.5)
    assert disjoint(low, high)
    assert disjoint(high, low)
    assert not disjoint(low, Interval(0.2, 0.2, 0.3))
    assert not disjoint(low, None)
