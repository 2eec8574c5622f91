"""Front mathematics against definitions written out by brute force."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from crossbreed.core.search.front import best_first, crowding, hypervolume, non_dominated, ranks

SMALL = st.integers(0, 4).map(float)


def brute_force(values: np.ndarray, directions: list[str]) -> list[bool]:
    signs = [1 if d == "max" else -1 for d in directions]

    def beats(a: np.ndarray, b: np.ndarray) -> bool:
        pairs = [(s * x, s * y) for s, x, y in zip(signs, a, b, strict=True)]
        return all(x >= y for x, y in pairs) and any(x > y for x, y in pairs)

    finite = [np.isfinite(row).all() for row in values]
    return [
        bool(finite[i] and not any(finite[j] and beats(values[j], row) for j in range(len(values))))
        for i, row in enumerate(values)
    ]


@given(hnp.arrays(np.float64, st.tuples(st.integers(1, 12), st.just(3)), elements=SMALL | st.just(math.nan)))
@settings(max_examples=150, deadline=None)
def test_front_equals_the_definition(values: np.ndarray) -> None:
    directions = ["max", "min", "max"]
    assert non_dominated(values, directions).tolist() == brute_force(values, directions)


def test_nan_and_infinity_are_never_on_the_front_and_dominate_nobody() -> None:
    values = [(0.99, math.nan), (0.5, math.inf), (0.4, 1.0), (0.3, 2.0)]
    assert non_dominated(values, ["max", "max"]).tolist() == [False, False, True, True]


def test_duplicates_stay_and_many_points_cross_block_borders() -> None:
    assert non_dominated([(1, 1), (1, 1), (0, 1)], ["max", "max"]).tolist() == [True, True, False]
    x = np.arange(1500.0)
    mask = non_dominated(np.stack([x, -x], axis=1), ["max", "max"])
    assert mask.all()
    assert non_dominated(np.stack([x, x], axis=1), ["max", "max"]).tolist() == [False] * 1499 + [True]


def test_no_points_give_an_empty_front() -> None:
    assert non_dominated([], ["max", "min"]).shape == (0,)
    assert hypervolume([], ["max", "min"], (0.0, 1.0)) == 0.0


def test_ranks_peel_layers_and_put_nan_last() -> None:
    values = [(3, 3), (2, 2), (1, 4), (math.nan, 9), (1, 1)]
    assert ranks(values, ["max", "max"]).tolist() == [0, 1, 0, 3, 2]


def test_crowding_by_hand() -> None:
    values = [(0.0, 4.0), (1.0, 3.0), (4.0, 0.0)]
    distance = crowding(values, ["max", "max"])
    assert math.isinf(distance[0])
    assert math.isinf(distance[2])
    assert distance[1] == pytest.approx(2.0)


def test_best_first_prefers_layer_then_lonely_points() -> None:
    values = [(0.0, 0.0), (0.0, 10.0), (5.0, 5.0), (5.1, 4.9), (10.0, 0.0)]
    order = best_first(values, ["max", "max"]).tolist()
    assert set(order[:2]) == {1, 4}
    assert order[-1] == 0


@given(hnp.arrays(np.float64, st.tuples(st.integers(0, 7), st.integers(1, 4)), elements=SMALL))
@settings(max_examples=100, deadline=None)
def test_hypervolume_counts_unit_cells(values: np.ndarray) -> None:
    m = values.shape[1]
    cells = itertools.product(range(5), repeat=m)
    covered = sum(any(all(c < v for c, v in zip(cell, row, strict=True)) for row in values) for cell in cells)
    assert hypervolume(values, ["max"] * m, [0.0] * m) == pytest.approx(covered)


def test_points_outside_the_reference_add_nothing_and_do_not_raise() -> None:
    inside = hypervolume([(2.0, 1.0)], ["max", "min"], (1.0, 3.0))
    assert inside == pytest.approx(2.0)
    mixed = [(2.0, 1.0), (0.5, 0.0), (9.0, 3.0), (math.nan, 0.0), (math.inf, 0.0)]
    assert hypervolume(mixed, ["max", "min"], (1.0, 3.0)) == pytest.approx(inside)


def test_a_reference_that_is_not_finite_is_refused() -> None:
    with pytest.raises(ValueError, match="reference point must be finite"):
        hypervolume([(1.0, 1.0)], ["max", "max"], (0.0, math.nan))
