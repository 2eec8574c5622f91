"""Means, shares and correlations of arrays over tokens, in float64. What has no value is None, never NaN."""

from __future__ import annotations

from typing import Any

import numpy as np

from crossbreed.core.lab.analytics.observation import Bools, Floats, Ints

MOST_BINS = 64
"""Bins along a text."""


def counts(choice_M: Ints, choices: int) -> Ints:
    """Tokens per choice."""
    return np.bincount(choice_M, minlength=choices)


def shares(counts_N: Ints) -> list[float] | None:
    """Share of each choice; None where no token was asked."""
    total = int(counts_N.sum())
    return [int(n) / total for n in counts_N] if total else None


def mean(x_M: Floats) -> float | None:
    return float(x_M.mean()) if len(x_M) else None


def binned_mean(x_M: Floats, bin_M: Ints, bins: int) -> list[float | None]:
    """Mean of x in each bin; None in an empty one."""
    sums, sizes = np.bincount(bin_M, x_M, minlength=bins), np.bincount(bin_M, minlength=bins)
    return [float(s / n) if n else None for s, n in zip(sums, sizes, strict=True)]


def bin_width(length: int) -> int:
    """Tokens in a bin, so that a text of ``length`` takes at most MOST_BINS of them."""
    return max(1, -(-length // MOST_BINS))


def pearson(x_M: Floats | Bools, y_M: Floats) -> float | None:
    """Correlation coefficient; None below two values, or where one side does not vary.

    With x a two-way choice this is the point-biserial correlation.
    """
    if len(x_M) < 2 or np.ptp(x_M.astype(np.float64)) == 0 or np.ptp(y_M) == 0:
        return None
    x, y = x_M - x_M.mean(), y_M - y_M.mean()
    return float((x @ y) / np.sqrt((x @ x) * (y @ y)))


def ranks(x_M: Floats) -> Floats:
    """Ranks from 1; equal values share the mean of theirs."""
    _, place_M, size = np.unique(x_M, return_inverse=True, return_counts=True)
    last = np.cumsum(size)
    found: Floats = (last - (size - 1) / 2)[place_M]
    return found


def rank_correlation(x_M: Floats | Bools, y_M: Floats) -> float | None:
    """Spearman's rho: the correlation of ranks."""
    return pearson(ranks(x_M.astype(np.float64)), ranks(y_M)) if len(x_M) else None


def correlations(x_M: Floats | Bools, y_M: Floats) -> dict[str, Any]:
    """Both coefficients by name, and how many values they come from."""
    return {"tokens": len(x_M), "pearson": pearson(x_M, y_M), "rank": rank_correlation(x_M, y_M)}
