"""Pause, resume and stop between two real processes, on both databases."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from crossbreed.core.errors import StorageError
from crossbreed.storage.repository import Repository
from tests.cli.conftest import Cli
from tests.cli.studies import write_study


def until(true: Callable[[], bool], what: str, process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 120
    while not true():
        if time.monotonic() > deadline or process.poll() is not None:
            process.kill()
            raise AssertionError(f"{what} never came: {process.communicate()}")
        time.sleep(0.1)


def look(url: str) -> tuple[dict[str, int], int, bool]:
    """Runs by state, the last step of any curve, and whether somebody drives."""
    try:
        with Repository.open(url, read_only=True) as repository:
            study = repository.find_study("tiny")
            if study is None:
                return {}, 0, False
            runs = repository.runs(study.id)
            step = max((p.step for run in runs for p in repository.curve(run.id)), default=0)
            return repository.run_states(study.id), step, repository.driver(study.id) is not None
    except StorageError:
        return {}, 0, False


def pause_resume_stop(cli: Cli, url: str, folder: Path) -> None:
    # Long enough that it never ends by itself here.
    study = write_study(folder / "tiny.yaml", train={"tokens": 4_000_000}, search={"trials": 0})
    command = [sys.executable, "-m", "crossbreed", "search", str(study), "--db", url, "--executor", "inline"]
    search = subprocess.Popen(
        command,
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    until(lambda: look(url)[1] > 0, "training", search)
    asked = time.monotonic()
    pause = cli("study", "pause", "tiny", "--db", url, "--json").json("study_order")
    assert pause["heard"]
    assert pause["driver"]["pid"] == search.pid
    until(lambda: look(url)[0] == {"preempted": 1}, "the pause", search)
    assert time.monotonic() - asked < 60
    reached = look(url)[1]
    listed = cli("study", "list", "--db", url)
    assert f"process {search.pid} on" in listed.out
    assert "(paused)" in listed.out
    busy = cli("search", study, "--db", url, "--executor", "inline")
    assert busy.code == 2
    assert f"is being driven by process {search.pid}" in busy.err
    assert look(url)[1] == reached
    assert cli("study", "resume", "tiny", "--db", url).code == 0
    until(lambda: look(url)[1] > reached, "training after the pause", search)
    stop = cli("study", "stop", "tiny", "--db", url)
    assert stop.code == 0
    assert "tiny stops: every run stops at its next step with a checkpoint" in stop.out
    _, err = search.communicate(timeout=60)
    assert search.returncode == 0, err
    assert "Stopped by an order; everything reported is stored. To go on: crossbreed search" in err
    assert look(url)[0] == {"preempted": 1}
    assert not look(url)[2]
    again = cli("study", "stop", "tiny", "--db", url)
    assert again.code == 2
    assert "nobody drives study 'tiny', so there is nothing to stop" in again.err


def test_orders_reach_a_search_in_another_process_over_sqlite(cli: Cli, tmp_path: Path) -> None:
    pause_resume_stop(cli, str(tmp_path / "my.db"), tmp_path)


@pytest.mark.slow
def test_orders_reach_a_search_in_another_process_over_postgresql(
    cli: Cli, tmp_path: Path, postgres_url: str
) -> None:
    pause_resume_stop(cli, postgres_url, tmp_path)


def test_an_order_to_nobody_is_bad_input(cli: Cli, db: Path) -> None:
    result = cli("study", "pause", "small", "--db", db)
    assert result.code == 2
    assert "nobody drives study 'small'" in result.err
