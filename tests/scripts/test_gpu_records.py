"""The script that makes all records of a CUDA device: which it makes, and what it says of those that fail."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "scripts" / "gpu-records"


def call(folder: Path, *names: str, failing: str = "nothing") -> subprocess.CompletedProcess[str]:
    """Run it with a python that says what it was asked for, and fails for one module."""
    python = folder / "python"
    python.write_text(f'#!/bin/sh\necho "asked $*"\ncase "$*" in *{failing}*) exit 3 ;; esac\n')
    python.chmod(0o755)
    command = [str(SCRIPT), "-o", str(folder / "records"), "-c", "abc1234", *names]
    environment = {**os.environ, "PYTHON": str(python)}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)


def test_without_names_every_script_runs_and_leaves_its_log(tmp_path: Path) -> None:
    done = call(tmp_path)
    assert done.returncode == 0, done.stderr
    asked = done.stdout.splitlines()
    assert len(asked) == len(list((tmp_path / "records").glob("*.log"))) > 5
    modules = [line.split()[2].removeprefix("benchmarks.") for line in asked]
    for module, line in zip(modules, asked, strict=True):
        assert (SCRIPT.parents[1] / "benchmarks" / f"{module}.py").exists()
        assert "--commit abc1234" in line


def test_named_records_alone_are_made(tmp_path: Path) -> None:
    done = call(tmp_path, "probe", "depth")
    assert [line.split()[2] for line in done.stdout.splitlines()] == [
        "benchmarks.bench_probe",
        "benchmarks.bench_depth",
    ]
    assert f"{tmp_path}/records/probe_h200.json" in done.stdout


def test_one_that_fails_is_named_and_the_others_run(tmp_path: Path) -> None:
    done = call(tmp_path, "probe", "depth", failing="bench_probe")
    assert done.returncode == 1
    assert "bench_depth" in done.stdout
    assert "ended early: probe" in done.stderr
