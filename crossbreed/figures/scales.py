"""Logarithmic axes and error bars, for every chart that has them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from crossbreed.core.search.statistics import Interval


def error_bars(intervals: Sequence[Interval | None], **looks: Any) -> dict[str, Any]:
    """Asymmetric bars from means to the ends of their intervals; nothing at all, caps neither, where there is no interval."""
    # Of a null in a list Plotly makes a bar of no length, which reads as a sure value. NaN in an array is no bar.
    up = [math.nan if i is None else i.high - i.mean for i in intervals]
    down = [math.nan if i is None else i.mean - i.low for i in intervals]
    return {
        "type": "data",
        "symmetric": False,
        "array": np.array(up, dtype=float),
        "arrayminus": np.array(down, dtype=float),
        "visible": any(i is not None for i in intervals),
        **looks,
    }


def log_axis(means: Sequence[float], intervals: Sequence[Interval | None]) -> dict[str, Any]:
    """A logarithmic axis that holds all of these positive means."""
    low, high = _extent(means, intervals)
    ticks = log_ticks(low, high)
    return {
        "type": "log",
        "range": [math.log10(low), math.log10(high)],
        "tickvals": ticks,
        "ticktext": [f"{t / 1000:g}k" if t >= 1000 else f"{t:g}" for t in ticks],
    }


def _extent(means: Sequence[float], intervals: Sequence[Interval | None]) -> tuple[float, float]:
    """A positive range over means and interval ends, with a margin. An interval that reaches zero or below, which a log
    axis cannot show, runs out of the chart."""
    ends = [e for i in intervals if i is not None for e in (i.low, i.high) if e > min(means) / 3]
    low, high = min([*means, *ends]), max([*means, *ends])
    margin = max((high / low) ** 0.06, 1.04)
    return low / margin, high * margin


def log_ticks(low: float, high: float) -> list[float]:
    """Round numbers in [low, high] for a log axis: decades with 1-2-5 steps, finer where fewer than 3 would fit."""
    for steps in ((1,), (1, 2, 5), (1, 1.5, 2, 3, 4, 5, 6, 8)):
        decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
        ticks = [float(f"{s * 10.0**d:.6g}") for d in decades for s in steps if low <= s * 10.0**d <= high]
        if len(ticks) >= 3:
            return ticks
    step = 10.0 ** math.floor(math.log10((high - low) / 2))
    step *= next(m for m in (5, 2, 1) if (high - low) / (m * step) >= 2)
    return [float(f"{i * step:.6g}") for i in range(math.ceil(low / step), math.floor(high / step) + 1)]
