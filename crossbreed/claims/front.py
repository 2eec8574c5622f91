"""The front over all arms of an experiment: accuracy against realised FLOPs of a decoded token, both over seeds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from crossbreed.claims.claim import Experiment
from crossbreed.claims.measures import measured
from crossbreed.claims.plan import chosen_lr, setting_of
from crossbreed.claims.record import REPORT, Record
from crossbreed.core.search.front import non_dominated
from crossbreed.core.search.statistics import Interval, t_interval


@dataclass(frozen=True)
class Point:
    """One arm: means over ``seeds``; ``front`` where no other arm is at least as good in both and better in one.

    rate: mean share that took more than the cheapest choice, None where nothing is routed.
    """

    arm: str
    seeds: int
    score: float
    interval: Interval | None
    decode_flops: float
    rate: float | None
    parameters: int
    front: bool


def front(experiment: Experiment, record: Record) -> list[Point]:
    """Every arm that has runs, the best score first."""
    setting = setting_of(experiment)
    rows = []
    for arm in experiment.arms:
        lr = chosen_lr(record, experiment, arm.name, setting)
        runs = [r for r in record.of(experiment.name, setting, arm.name, REPORT) if r["lr"] == lr]
        done = [r for r in runs if r["state"] == "done"]
        if done:
            rows.append((arm.name, done))

    def mean(runs: list[dict[str, Any]], quantity: str) -> float | None:
        values = [v for r in runs if (v := measured(r, quantity)) is not None]
        return sum(values) / len(values) if values else None

    means = [(mean(runs, "score") or 0.0, mean(runs, "decode_flops") or 0.0) for _, runs in rows]
    best = non_dominated(means, ["max", "min"]).tolist()
    points = [
        Point(
            name,
            len(runs),
            score,
            t_interval([r["points"]["own"]["score"] for r in runs]),
            flops,
            mean(runs, "rate"),
            record.arms[f"{experiment.name}/{name}"]["figures"]["parameters"],
            bool(on),
        )
        for (name, runs), (score, flops), on in zip(rows, means, best, strict=True)
    ]
    return sorted(points, key=lambda p: -p.score)
