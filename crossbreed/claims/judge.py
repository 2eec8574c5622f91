"""What differences on shared seeds say of a claimed direction, given the smallest difference that matters. Pure functions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from crossbreed.core.search.statistics import Interval, paired, t_quantile

Direction = Literal["more", "at_least", "equal"]
"""``more``: above 0. ``at_least``: not below 0 by the margin. ``equal``: within the margin of 0."""
Verdict = Literal["supported", "contradicted", "equal", "undecided"]
MOST_SEEDS = 1000
"""Beyond so many nobody is told how many it would take."""


@dataclass(frozen=True)
class Judged:
    """A verdict with its grounds.

    effect:   the mean of the values. interval: its 95% Student t interval; None below three values, and the effect itself
              where it is exact. needs: about how many seeds would decide it, were the mean and the spread as seen; None where
              it is decided, or nothing is known of the spread.
    """

    verdict: Verdict
    seeds: int
    effect: float | None = None
    interval: Interval | None = None
    needs: int | None = None


def judge(values: Sequence[float], direction: Direction, margin: float) -> Judged:
    """One value a seed: the claimed difference. Undecided below three seeds.

    ======================  ==============================  ==========================  =================
    direction               supported                       contradicted                equal
    ======================  ==============================  ==========================  =================
    more                    low > 0 and mean >= margin      high < 0, mean <= -margin   within the margin
    at_least                low > -margin                   high < -margin
    equal                   within the margin               all of it outside
    ======================  ==============================  ==========================  =================

    Raises ValueError for a margin below 0 or a value that is not finite.
    """
    if margin < 0 or not math.isfinite(margin):
        raise ValueError(f"margin must be a finite number of at least 0, got {margin}")
    found = paired(values)
    if found is None:
        return Judged("undecided", 0)
    if found.interval is None:
        return Judged("undecided", found.pairs, found.mean)
    verdict = decide(found.interval, direction, margin)
    needs = _needs(values, found.interval, direction, margin) if verdict == "undecided" else None
    return Judged(verdict, found.pairs, found.mean, found.interval, needs)


def exactly(value: float, direction: Direction, margin: float) -> Judged:
    """The verdict on a value that no seed moves."""
    point = Interval(value, value, value)
    return Judged(decide(point, direction, margin), 0, value, point)


def decide(interval: Interval, direction: Direction, margin: float) -> Verdict:
    """The table of ``judge`` for a mean with its interval."""
    mean, low, high = interval
    within = -margin <= low and high <= margin
    if direction == "equal":
        if within:
            return "supported"
        return "contradicted" if low > margin or high < -margin else "undecided"
    if direction == "at_least":
        # At a margin of 0 an exact tie is no less.
        if low > -margin or within:
            return "supported"
        return "contradicted" if high < -margin else "undecided"
    if within:
        return "equal"
    if low > 0 and mean >= margin:
        return "supported"
    return "contradicted" if high < 0 and mean <= -margin else "undecided"


def together(verdicts: Sequence[Verdict]) -> Verdict:
    """The verdict on a claim of several parts: supported where all are, else the worst that is known.

    A part that is contradicted contradicts the claim; a claimed difference that is equal makes it equal; else it is undecided.
    """
    if not verdicts:
        return "undecided"
    if all(v == "supported" for v in verdicts):
        return "supported"
    return next((v for v in ("contradicted", "equal") if v in verdicts), "undecided")  # type: ignore[return-value]


def _needs(values: Sequence[float], interval: Interval, direction: Direction, margin: float) -> int | None:
    """The fewest seeds, more than there are, whose interval around the same mean with the same spread would decide."""
    n = len(values)
    mean = interval.mean
    deviation = math.sqrt(math.fsum((v - mean) ** 2 for v in values) / (n - 1))

    def decided(seeds: int) -> bool:
        half = t_quantile(seeds - 1, 0.95) * deviation / math.sqrt(seeds)
        return decide(Interval(mean, mean - half, mean + half), direction, margin) != "undecided"

    low, high = n, n + 1
    while not decided(high):
        if high >= MOST_SEEDS:
            return None
        low, high = high, min(2 * high, MOST_SEEDS)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if decided(middle) else (middle, high)
    return high
