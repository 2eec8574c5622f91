"""Searches whose trials are trained on several devices each: processes of a CPU here."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from crossbreed.core.artefacts import Artefacts
from crossbreed.core.search import reproduce
from crossbreed.core.search.executors import choose
from crossbreed.core.search.study import Study
from crossbreed.core.search.study_file import StudyFile
from tests.core.search.material import study_data, toy_registry

TRAIN = {"tokens": 1024, "batch": 8, "rungs": 2, "log_every": 2}


def curves(folder: Path, executor: str, devices: int) -> dict[str, list[Any]]:
    """Run -> losses of its curve, after a search of a few toys."""
    search = {"trials": 1, "seeds": 1, "forced_rates": None, "devices_per_trial": devices}
    file = StudyFile.read(
        study_data(train=TRAIN, search=search, objectives={"score": "max", "parameters": "min"})
    )
    folder.mkdir()
    with Study.start(str(folder / "study.db"), file, toy_registry()) as study:
        assert study.run(executor=executor, workers=1, device="cpu").end == "done"
        repository = study.repository
        runs = repository.runs(study.row.id)
        assert {run.state for run in runs} == {"done"}
        assert {run.environment["devices"] for run in runs} == {devices}
        again = reproduce.plan(repository, runs[0].key, toy_registry(), Artefacts.at(folder / "again"))
        assert again.run(choose("inline", device="cpu", devices=again.job.devices)).equal
        return {run.key: [p.loss_nats for p in repository.curve(run.id)] for run in runs}


@pytest.mark.slow
@pytest.mark.parametrize("executor", ["inline", "ray"])
def test_a_search_finds_on_two_devices_a_trial_what_it_finds_on_one(tmp_path: Path, executor: str) -> None:
    one, two = (curves(tmp_path / str(n), executor, n) for n in (1, 2))
    assert len(one) > 1
    assert two == {key: pytest.approx(losses, rel=2e-3) for key, losses in one.items()}


def kill_one_of_a_device(over: threading.Event) -> None:
    """Kill the first process that trains beside a worker, once it has."""
    while not over.wait(0.02):
        for process in psutil.Process().children(recursive=True):
            try:
                if "crossbreed.core.lab.team:follow" in " ".join(process.cmdline()):
                    time.sleep(0.5)
                    process.kill()
                    return
            except psutil.NoSuchProcess:
                continue


@pytest.mark.slow
@pytest.mark.parametrize("executor", ["inline", "ray"])
def test_a_run_whose_device_is_lost_is_leased_again(tmp_path: Path, executor: str) -> None:
    search = {"trials": 0, "seeds": 1, "forced_rates": None, "devices_per_trial": 2}
    file = StudyFile.read(
        study_data(train=TRAIN, search=search, objectives={"score": "max", "parameters": "min"})
    )
    over = threading.Event()
    killer = threading.Thread(target=kill_one_of_a_device, args=(over,))
    killer.start()
    try:
        with Study.start(str(tmp_path / "study.db"), file, toy_registry()) as study:
            assert study.run(executor=executor, workers=1, device="cpu").end == "done"
            events = study.repository.events(study.row.id)
            (lost,) = [event.payload["cause"] for event in events if event.kind == "worker_lost"]
            assert "the process of device 1 of 2" in lost
            assert {run.state for run in study.repository.runs(study.row.id)} == {"done"}
    finally:
        over.set()
        killer.join()
