"""What a candidate does on texts of other lengths than those it was trained on: stored results, by length."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from crossbreed.core.search.candidates import OWN, SCORE, SpeedKey
from crossbreed.core.search.statistics import OverSeeds
from crossbreed.storage.rows import PointRow, RunDetail

POINT = "length:"
"""Begins the names of operating points that are another length; a multiple of the training length follows."""


@dataclass(frozen=True)
class AtLength(OverSeeds):
    """A quantity at one length, over runs.

    times: multiple of the training length. by_seed: seed -> stored value.
    """

    times: int
    by_seed: Mapping[int, float]


def times_of(point: str) -> int | None:
    """The multiple of the training length at an operating point where the model decides for itself; None at others."""
    if point == OWN:
        return 1
    return int(point.removeprefix(POINT)) if point.startswith(POINT) else None


def judged(runs: Sequence[RunDetail], metric: str) -> list[AtLength]:
    """``score`` or another metric of the task by length, the shortest first."""
    found: dict[int, dict[int, float]] = {}
    for times, seed, point in _points(runs):
        for evaluation in point.evaluations[-1:]:
            value = evaluation.score if metric == SCORE else evaluation.metrics.get(metric)
            if value is not None:
                found.setdefault(times, {})[seed] = float(value)
    return [AtLength(times, by_seed) for times, by_seed in sorted(found.items())]


def metrics(runs: Sequence[RunDetail]) -> list[str]:
    """By what candidates were judged: the score, then the metrics that the task gives beside it."""
    names = (name for _, _, p in _points(runs) for e in p.evaluations[-1:] for name in e.metrics)
    return list(dict.fromkeys((SCORE, *names)))


def timed(runs: Sequence[RunDetail], name: str, key: SpeedKey) -> list[AtLength]:
    """A speed by length, the shortest first: measured under a key, and under the same at other lengths."""
    phase, batch, tokens, *rest = key
    found: dict[int, dict[int, float]] = {}
    for times, seed, point in _points(runs):
        wanted = (phase, batch, times * tokens, *rest)
        for measured in point.measured(name):
            if measured.key() == wanted:
                found.setdefault(times, {})[seed] = measured.median
    return [AtLength(times, by_seed) for times, by_seed in sorted(found.items())]


def _points(runs: Sequence[RunDetail]) -> Iterator[tuple[int, int, PointRow]]:
    for run in runs:
        for point in run.points.values():
            times = times_of(point.name)
            if times is not None:
                yield times, run.run.seed, point
