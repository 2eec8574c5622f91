"""Promotion between rungs."""

import math
import random

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from crossbreed.core.search.front import ranks
from crossbreed.core.search.rungs import Standing, evidence, promotions


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


def test_nobody_goes_on_without_finite_values() -> None:
    there = standings([(math.nan, 5.0), (math.inf, 1.0), (math.nan, math.nan)])
    assert promotions(there, ["max", "max"], 3.0, 2, closing=True) == []


# Few distinct values, so that ties and equal rows are common.
VALUE = st.one_of(st.integers(0, 4).map(float), st.just(math.nan))
ROWS = st.lists(st.tuples(VALUE, VALUE), min_size=1, max_size=14)
REDUCTION = st.sampled_from([1.5, 2.0, 3.0, 4.0])


@given(ROWS, REDUCTION, st.booleans())
@settings(max_examples=200, deadline=None)
def test_a_share_goes_on_and_nobody_passes_a_better_one(
    rows: list[tuple[float, float]], reduction: float, closing: bool
) -> None:
    """While running at most 1/reduction of a rung is chosen, at its end as many rounded up; always whole layers first."""
    chosen = {i for i, _ in promotions(standings(rows), ["max", "max"], reduction, 2, closing=closing)}
    share = len(rows) / reduction
    assert len(chosen) <= (math.ceil(share) if closing else math.floor(share))
    finite = [i for i, row in enumerate(rows) if all(map(math.isfinite, row))]
    assert chosen <= set(finite)
    if closing and finite:
        assert chosen
    layer = ranks(rows, ["max", "max"])
    left = [layer[i] for i in finite if i not in chosen]
    assert all(layer[i] <= min(left, default=math.inf) for i in chosen)


@given(ROWS, REDUCTION, st.integers(0, 9))
@settings(max_examples=100, deadline=None)
def test_whoever_is_among_the_best_in_the_end_goes_on_in_whatever_order_results_came(
    rows: list[tuple[float, float]], reduction: float, seed: int
) -> None:
    ways = ["max", "max"]
    final = {i for i, _ in promotions(standings(rows), ways, reduction, 2, closing=True)}
    order = list(range(len(rows)))
    random.Random(seed).shuffle(order)
    here: list[int] = []
    gone: set[int] = set()

    def choose(closing: bool) -> None:
        there = [Standing(i, 0, rows[i], i not in gone) for i in here]
        now = {i for i, _ in promotions(there, ways, reduction, 2, closing=closing)}
        # Each of them is among the best share of those that were there.
        assert len(now) <= math.ceil(len(here) / reduction)
        gone.update(now)

    for i in order:
        here.append(i)
        choose(closing=False)
    choose(closing=True)
    assert gone >= final


@given(ROWS, REDUCTION, st.booleans(), st.integers(0, 9))
@settings(max_examples=60, deadline=None)
def test_the_order_in_which_standings_are_listed_does_not_matter(
    rows: list[tuple[float, float]], reduction: float, closing: bool, seed: int
) -> None:
    there = [Standing(i, i % 2, row, True) for i, row in enumerate(rows)]
    mixed = list(np.random.default_rng(seed).permutation(len(there)))
    again = [there[i] for i in mixed]
    assert promotions(there, ["max", "min"], reduction, 3, closing=closing) == promotions(
        again, ["max", "min"], reduction, 3, closing=closing
    )


def test_samplers_learn_from_the_highest_rung_that_enough_have_reached() -> None:
    low = [Standing(i, 0, (float(i), 0.0), True) for i in range(5)]
    high = [Standing(i, 1, (10.0 + i, 0.0), True) for i in range(3)]
    last = [Standing(9, 2, (99.0, 0.0), False)]
    every = [*low, *high, *last]
    assert evidence(every, 1, 3, 3) == {0: (10.0, 0.0), 1: (11.0, 0.0), 2: (12.0, 0.0)}
    assert evidence(every, 1, 4, 3) == {i: (float(i), 0.0) for i in range(5)}
    # Whole runs are compared as soon as there are enough, and where there are no rungs.
    assert evidence(every, 4, 4, 3) is None
    assert evidence(every, 0, 4, 1) is None
    assert evidence([], 0, 4, 3) == {}
