"""Intervals over seeds. Student t, never a bootstrap: with three seeds a percentile bootstrap covers 74%, t covers 95%."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

MIN_SEEDS = 3
"""Below this many values no interval is given: two seeds say almost nothing about their spread."""


class Interval(NamedTuple):
    """A mean with its two-sided confidence interval."""

    mean: float
    low: float
    high: float


def t_interval(values: Sequence[float], level: float = 0.95) -> Interval | None:
    """The Student t interval of the mean of ``values``, or None for fewer than three values.

    Raises ValueError when a value is not finite or ``level`` is outside (0, 1).
    """
    if not 0 < level < 1:
        raise ValueError(f"level must lie strictly between 0 and 1, got {level}")
    if not all(map(math.isfinite, values)):
        raise ValueError(f"an interval needs finite values, got {list(values)}")
    n = len(values)
    if n < MIN_SEEDS:
        return None
    mean = math.fsum(values) / n
    variance = math.fsum((v - mean) ** 2 for v in values) / (n - 1)
    half = t_quantile(n - 1, level) * math.sqrt(variance / n)
    return Interval(mean, mean - half, mean + half)


def disjoint(a: Interval | None, b: Interval | None) -> bool:
    """Whether two intervals share no point; False when either is unknown."""
    return a is not None and b is not None and (a.high < b.low or b.high < a.low)


@lru_cache(maxsize=256)
def t_quantile(degrees: int, level: float) -> float:
    """t with P(|T| <= t) = ``level`` for Student's T with ``degrees`` (>= 1) degrees of freedom, by bisection."""
    if degrees < 1:
        raise ValueError(f"degrees must be at least 1, got {degrees}")
    low, high = 0.0, 1.0
    while central_probability(high, degrees) < level:
        low, high = high, 2 * high
    for _ in range(200):
        middle = (low + high) / 2
        if middle in (low, high):
            break
        if central_probability(middle, degrees) < level:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def central_probability(t: float, degrees: int) -> float:
    """P(|T| <= t), exact for whole degrees of freedom (Abramowitz and Stegun 26.7.3 and 26.7.4)."""
    theta = math.atan2(t, math.sqrt(degrees))
    cosine = math.cos(theta)
    odd = degrees % 2 == 1
    term = cosine if odd else 1.0
    total = 0.0 if degrees == 1 else term
    for k in range(2 if odd else 1, degrees - 1, 2):
        term *= k / (k + 1) * cosine * cosine
        total += term
    return 2 / math.pi * (theta + math.sin(theta) * total) if odd else math.sin(theta) * total
