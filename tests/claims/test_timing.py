"""Times that speed claims read, taken once and judged by their quartiles."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from crossbreed.claims.claim import Claim, Speed, Timing
from crossbreed.claims.record import Record
from crossbreed.claims.runner import Runner
from crossbreed.claims.verdicts import answer
from crossbreed.core.host import Host, Registry
from tests.claims.tiny import PAPER, body

SPEED = Speed("gated over always on, less 1", "tiny/gated", "tiny/always", "more", 0.02)
CLAIM = Claim("S1", "Gates save time.", "none", (SPEED,), learned=False)
TIMED = replace(
    PAPER,
    claims=(CLAIM,),
    timings=(
        Timing("tiny/gated", body(), 16, "own", "decode_tokens_per_s"),
        Timing("tiny/always", body(), 16, "own", "prefill_tokens_per_s"),
    ),
)


@pytest.fixture(scope="module")
def registry() -> Registry:
    return Host.load(third_party=False)


def record(path: Path, **times: Any) -> Record:
    return Record("tiny", "gpu", path / "record.json", timings=times)


def time(median: float, spread: float = 0.0, device: str = "H200") -> dict[str, Any]:
    return {"median": median, "q1": median - spread, "q3": median + spread, "device": device}


def verdict(registry: Registry, path: Path, gated: dict[str, Any], always: dict[str, Any]) -> Any:
    kept = record(path, **{"tiny/gated": gated, "tiny/always": always})
    return answer(TIMED, CLAIM, kept, registry)


def test_a_gpu_session_takes_each_time_once(tmp_path: Path, registry: Registry, brief_timing: None) -> None:
    kept = record(tmp_path)
    assert Runner(TIMED, kept, registry, 3, 3).run() == "done"
    assert kept.timings.keys() == {"tiny/gated", "tiny/always"}
    assert all(t["median"] > 0 for t in kept.timings.values())
    before = dict(kept.timings)
    assert Runner(TIMED, Record.at(kept.path, "tiny", "gpu"), registry, 3, 3).run() == "done"
    assert Record.at(kept.path, "tiny", "gpu").timings == before


def test_a_cpu_session_takes_none(tmp_path: Path, registry: Registry) -> None:
    paper = replace(TIMED, experiments={"cpu": (), "gpu": ()})
    kept = Record.at(tmp_path / "record.json", "tiny", "cpu")
    Runner(paper, kept, registry, 3, 3).run()
    assert kept.timings == {}


def test_times_apart_by_more_than_their_quartiles_are_told_apart(tmp_path: Path, registry: Registry) -> None:
    assert verdict(registry, tmp_path, time(2.0, 0.1), time(1.0, 0.1)).verdict == "supported"
    assert verdict(registry, tmp_path, time(1.0, 0.1), time(2.0, 0.1)).verdict == "contradicted"
    assert verdict(registry, tmp_path, time(1.1, 0.2), time(1.0, 0.2)).verdict == "undecided"


def test_without_both_times_of_one_device_nothing_is_said(tmp_path: Path, registry: Registry) -> None:
    empty = answer(TIMED, CLAIM, record(tmp_path), registry)
    assert (empty.verdict, empty.parts[0].why) == ("undecided", "no GPU record of these times")
    other = verdict(registry, tmp_path, time(2.0), time(1.0, device="A100"))
    assert (other.verdict, other.parts[0].why) == ("undecided", "its two times are of different devices")
    full = verdict(registry, tmp_path, {"failed": "out of memory"}, time(1.0))
    assert (full.verdict, full.parts[0].why) == ("undecided", "not timed: out of memory")
