from __future__ import annotations

import numpy as np
import pytest

from crossbreed.core.lab.analytics.measures import (
    MOST_BINS,
    bin_width,
    binned_mean,
    pearson,
    rank_correlation,
    ranks,
    shares,
)


def test_equal_values_share_the_mean_of_their_ranks():
    assert ranks(np.array([3.0, 1.0, 3.0, 2.0, 3.0])).tolist() == [4.0, 1.0, 4.0, 2.0, 4.0]


def test_correlations_of_what_cannot_vary_are_none():
    x, flat = np.array([1.0, 2.0, 4.0]), np.ones(3)
    assert pearson(flat, x) is None
    assert pearson(x, flat) is None
    assert rank_correlation(x[:1], x[:1]) is None
    assert rank_correlation(x[:0], x[:0]) is None


def test_a_monotone_relation_has_rank_correlation_one():
    x = np.array([0.1, 5.0, 2.0, 3.0])
    assert rank_correlation(x, np.exp(x)) == pytest.approx(1.0)
    assert pearson(x, np.exp(x)) < 0.95
    assert pearson(x, -2 * x + 1) == pytest.approx(-1.0)


def test_empty_bins_and_unasked_sites_have_no_value():
    assert binned_mean(np.array([1.0, 3.0]), np.array([2, 2]), 4) == [None, None, 2.0, None]
    assert shares(np.array([0, 0])) is None


@pytest.mark.parametrize("length", [1, 63, 64, 65, 128, 1000, 4096])
def test_a_text_takes_at_most_so_many_bins(length):
    assert -(-length // bin_width(length)) <= MOST_BINS
    assert (bin_width(length) == 1) == (length <= MOST_BINS)
