"""Promotion between rungs."""

import math

from crossbreed.core.search.rungs import Standing, promotions


def standings(values: list[tuple[float, float]], waiting: bool = True, rung: int = 0) -> list[Standing]:
    return [Standing(i, rung, v, waiting) for i, v in enumerate(values)]


def test_the_best_third_goes_on_by_layer_then_crowding() -> None:
    there = standings([(0.1, 1.0), (0.9, 9.0), (0.5, 5.0), (0.2, 2.0), (0.95, 1.0), (0.3, 3.0)])
    assert set(promotions(there, ["max", "max"], 3.0, 2, closing=False)) == {(1, 0), (4, 0)}


def test_too_few_results_promote_nobody_until_the_rung_closes() -> None:
    there = standings([(0.1, 1.0), (0.2, 2.0)])
    assert promotions(there, ["max", "max"], 3.0, 2, closing=False) == []
    assert promotions(there, ["max", "max"], 3.0, 2, closing=True) == [(1, 0)]


def test_candidates_that_went_on_count_but_are_not_chosen_again() -> None:
    there = [Standing(0, 0, (9.0, 9.0), False), *standings([(1.0, 1.0), (0.5, 0.5)])[1:]]
    there.append(Standing(5, 0, (8.0, 8.0), True))
    assert promotions(there, ["max", "max"], 3.0, 2, closing=False) == []
    assert promotions(there, ["max", "max"], 1.5, 2, closing=False) == [(5, 0)]


def test_the_last_rung_leads_nowhere_and_higher_rungs_come_first() -> None:
    low, high = standings([(float(i), 0.0) for i in range(4)]), [Standing(9, 1, (1.0, 1.0), True)]
    last = [Standing(11, 2, (5.0, 5.0), True)]
    assert promotions([*low, *high, *last], ["max", "max"], 2.0, 3, closing=True) == [(9, 1), (3, 0), (2, 0)]


def test_values_that_are_not_finite_come_last() -> None:
    there = standings([(math.nan, 5.0), (0.1, 0.1), (math.inf, 1.0)])
    assert promotions(there, ["max", "max"], 3.0, 2, closing=False) == [(1, 0)]
