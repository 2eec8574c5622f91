"""Arms of a comparison, timed in turn, so that a slow moment of the machine falls on all of them."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Hashable, Mapping
from functools import partial
from itertools import accumulate
from typing import TypeVar

import torch

Arm = TypeVar("Arm", bound=Hashable)
T = TypeVar("T")
Run = Callable[[], object]


def never() -> bool:
    return False


def in_turn(
    arms: Mapping[Arm, Callable[[], T]], repeats: int, late: Callable[[], bool] = never
) -> dict[Arm, list[T]]:
    """arm -> what each call of it gave. No repeat but the first begins once it is ``late``."""
    found: dict[Arm, list[T]] = {arm: [] for arm in arms}
    for repeat in range(repeats):
        if repeat and late():
            break
        for arm, call in arms.items():
            found[arm].append(call())
    return found


def interleaved(
    arms: Mapping[Arm, Run],
    repeats: int,
    device: torch.device,
    calls: int = 1,
    warm: int = 1,
    late: Callable[[], bool] = never,
) -> dict[Arm, list[float]]:
    """arm -> milliseconds for each of ``calls`` things that a run of it does, one for each repeat, after ``warm`` that count for
    nothing."""
    timed = {arm: partial(elapsed, run, device) for arm, run in arms.items()}
    in_turn(timed, warm)
    return {arm: [ms / calls for ms in all_ms] for arm, all_ms in in_turn(timed, repeats, late).items()}


def elapsed(run: Run, device: torch.device) -> float:
    """Milliseconds of one run."""
    return laps([run], device)[0]


def laps(runs: list[Run], device: torch.device) -> list[float]:
    """Milliseconds from the first run's start to each one's end: between events of a CUDA device, by the clock elsewhere."""
    if device.type != "cuda":
        return [1e3 * seconds for seconds in accumulate(map(_by_the_clock, runs))]
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(1 + len(runs))]
    torch.cuda.synchronize(device)
    marks[0].record()
    for run, mark in zip(runs, marks[1:], strict=True):
        run()
        mark.record()
    torch.cuda.synchronize(device)
    return [float(marks[0].elapsed_time(mark)) for mark in marks[1:]]


def _by_the_clock(run: Run) -> float:
    begun = time.perf_counter()
    run()
    return time.perf_counter() - begun


def recorded(run: Run, device: torch.device) -> Run:
    """The launches of a run as one CUDA graph; the run itself on another device."""
    if device.type != "cuda":
        return run
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    # Kernels are compiled and chosen here; gradients want it off the stream that is recorded.
    with torch.cuda.stream(side):
        for _ in range(3):
            run()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    # The recorded function owns tensors whose memory the launches use.
    return lambda run=run: graph.replay()


def ratio(over: list[float], under: list[float]) -> float:
    """Median over repeats of the ratio within a repeat."""
    return statistics.median(a / b for a, b in zip(over, under, strict=True))


def spread(values: list[float]) -> str:
    """Median with the least and the greatest, three significant digits."""
    return f"{statistics.median(values):.3g} ({min(values):.3g} to {max(values):.3g})"
