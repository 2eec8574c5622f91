"""The bench of packed trials runs through on a CPU and writes what the page of speeds reads."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.bench_packing import largest

ROOT = Path(__file__).parents[2]


def test_scores_are_compared_by_seed_with_the_first_run_alone() -> None:
    alone = {"arm": "alone", "scores": [{"0": 0.5, "1": 0.75}, {"0": 0.5, "1": 0.5}]}
    packed = {"arm": "packed", "scores": [{"0": 0.625, "1": 0.75, "2": 0.0}]}
    absent = {"arm": "packed, MPS", "scores": []}
    assert largest([alone, packed, absent]) == {"alone": 0.25, "packed": 0.125, "packed, MPS": None}


@pytest.mark.slow
def test_every_arm_that_can_run_here_is_recorded_and_the_other_says_why_not(tmp_path: Path) -> None:
    out = tmp_path / "packing.json"
    given = ["--device", "cpu", "--workers", "2", "--alone", "1", "--repeats", "2", "--out", str(out)]
    path = os.pathsep.join(p for p in os.environ["PATH"].split(os.pathsep) if "nvidia" not in p)
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.bench_packing", *given, "--seconds", "600"],
        cwd=ROOT,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    record = json.loads(out.read_text())
    alone, packed, mps = record["arms"]
    assert len(alone["all"]) == len(packed["all"]) == 2
    assert record["largest_difference"]["packed"] == 0.0
    assert mps["all"] or mps["fault"]
