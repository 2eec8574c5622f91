from __future__ import annotations

import pytest

from crossbreed.core.search.lengths import judged, metrics, timed, times_of
from crossbreed.storage.rows import EvaluationRow, MeasurementRow, PointRow, RunDetail, RunRow

SPEED = "decode_tokens_per_s"
KEY = ("decode", 1, 32, "float32", "cpu", "best", False)


def _point(name: str, score: float, tokens: int, device: str = "cpu") -> PointRow:
    measured = MeasurementRow(
        SPEED, "tokens/s", "decode", 1, tokens, "float32", device, "best", False, 1e3 / tokens, 0, 0, 7, True, 1, {}
    )  # fmt: skip
    judged = EvaluationRow(100, {"loss_nats": 1 - score}, score, 8, 0)
    return PointRow(name, None, None, None, None, (measured,), (judged,))


def _run(seed: int, *points: PointRow) -> RunDetail:
    row = RunRow.__new__(RunRow)
    object.__setattr__(row, "seed", seed)
    return RunDetail(row, (), {point.name: point for point in points}, ())


def test_results_are_gathered_by_length_over_runs() -> None:
    own, twice = _point("own", 0.9, 32), _point("length:2", 0.5, 64)
    runs = [_run(seed, own, twice, _point("forced:1", 0.1, 32)) for seed in (1, 2)]
    runs.append(_run(3, own))
    found = judged(runs, "score")
    assert [(each.times, dict(each.by_seed)) for each in found] == [
        (1, {1: 0.9, 2: 0.9, 3: 0.9}),
        (2, {1: 0.5, 2: 0.5}),
    ]
    assert [each.interval is None for each in found] == [False, True]
    assert [each.mean for each in judged(runs, "loss_nats")] == pytest.approx([0.1, 0.5])
    assert judged(runs, "bits_per_byte") == []
    assert metrics(runs) == ["score", "loss_nats"]
    assert [(each.times, each.mean) for each in timed(runs, SPEED, KEY)] == [(1, 1e3 / 32), (2, 1e3 / 64)]


def test_a_speed_of_another_device_is_not_gathered() -> None:
    elsewhere = _point("length:2", 0.5, 64, device="gpu")
    runs = [_run(1, _point("own", 0.9, 32), elsewhere)]
    assert [each.times for each in timed(runs, SPEED, KEY)] == [1]


def test_lengths_are_told_from_other_points() -> None:
    assert [times_of(name) for name in ("own", "length:8", "forced:1", "depth:2")] == [1, 8, None, None]
