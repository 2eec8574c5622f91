"""Arms of a comparison, timed in turn, so that a slow moment of the machine falls on all of them."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import torch


def interleaved(
    arms: dict[str, Callable[[], Any]], repeats: int, device: torch.device, calls: int = 1, warm: int = 1
) -> dict[str, list[float]]:
    """arm -> milliseconds for each of ``calls`` things that a run of it does, one for each repeat, after ``warm`` that count for
    nothing: between two events of a CUDA device, by the clock elsewhere."""
    found: dict[str, list[float]] = {name: [] for name in arms}
    for repeat in range(warm + repeats):
        for name, run in arms.items():
            ms = elapsed(run, device) / calls
            if repeat >= warm:
                found[name].append(ms)
    return found


def elapsed(run: Callable[[], Any], device: torch.device) -> float:
    """Milliseconds of one run."""
    if device.type != "cuda":
        begun = time.perf_counter()
        run()
        return 1e3 * (time.perf_counter() - begun)
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
    torch.cuda.synchronize(device)
    marks[0].record()
    run()
    marks[1].record()
    torch.cuda.synchronize(device)
    return float(marks[0].elapsed_time(marks[1]))


def ratio(over: list[float], under: list[float]) -> float:
    """Median over repeats of the ratio within a repeat."""
    return statistics.median(a / b for a, b in zip(over, under, strict=True))


def spread(values: list[float]) -> str:
    """Median with the least and the greatest, three significant digits."""
    return f"{statistics.median(values):.3g} ({min(values):.3g} to {max(values):.3g})"
