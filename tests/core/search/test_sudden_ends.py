"""Workers, drivers and nodes that are killed in each phase of a run, and searches that are interrupted: nothing is lost, nothing
is done twice, and the same command goes on."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import psutil
import pytest

from crossbreed.core.search.study import Study
from crossbreed.core.search.study_file import StudyFile
from crossbreed.storage import Repository
from tests.clusters import ray_cluster, tree
from tests.core.search.sessions import Begin, Popen, wait_until
from tests.core.search.test_survival import check_artefacts, registry, study_of

PHASES = ("training", "evaluation", "checkpoint", "record")
STORED = "stored"
"""The phase after ``record``: the driver has stored how a job ended, and not yet discarded what the worker had written down."""

HOLD_STORED = """
import os, pathlib, time
from crossbreed.core.search.executors.base import Spool
discard = Spool.discard
def hold(spool, lease):
    mark = pathlib.Path("marks/stored")
    if not mark.exists():
        mark.write_text(f"{os.getpid()}\\n")
        time.sleep(3600)
    discard(spool, lease)
Spool.discard = hold
"""


def file_of(folder: Path, *hows: str, **changes: Any) -> StudyFile:
    """Objectives that no clock decides, so that the same runs are wanted however often the search is taken up."""
    objectives = {"score": "max", "parameters": "min"}
    train = {"tokens": 2048, "batch": 8, "log_every": 2}
    return study_of(folder / "marks", hows, objectives=objectives, train=train, **changes)


def held_in(phase: str, folder: Path, driver: Popen) -> int:
    """Wait until a worker stands still in a phase; its process id."""
    mark = folder / "marks" / phase
    wait_until(lambda: mark.exists() and mark.read_text().endswith("\n"), driver)
    return int(mark.read_text())


def facts(url: str) -> dict[tuple[Any, ...], Any]:
    """Everything that a study's database says of its results, one fact a row."""
    found: dict[tuple[Any, ...], Any] = {}
    with Repository.open(url, read_only=True, create=False) as repository:
        study = repository.open_study("tiny").id
        for trial in repository.trials(study):
            found["trial", trial.number] = trial.hash
            for run in repository.trial_detail(study, trial.number).runs:
                key = run.run.key
                found |= {("loss", key, p.step): p.loss_nats for p in repository.curve(run.run.id)}
                found |= {("rung", key, rung.rung): rung.metrics for rung in run.rungs}
                found |= {("checkpoint", a.path): a.sha256 for a in run.artefacts}
                found |= {
                    ("scores", key, p.name): p.evaluations for p in run.points.values() if p.evaluations
                }
                found |= {("timed", key, p.name): len(p.speeds) for p in run.points.values() if p.speeds}
    return found


def states(url: str) -> dict[str, int]:
    with Repository.open(url, read_only=True, create=False) as repository:
        return repository.run_states(repository.open_study("tiny").id)


def events(url: str, kind: str) -> list[Any]:
    with Repository.open(url, read_only=True, create=False) as repository:
        return repository.events_of(repository.open_study("tiny").id, kind)


def check_whole(url: str, file: StudyFile, folder: Path, before: dict[tuple[Any, ...], Any]) -> None:
    """The study is what an undisturbed search makes of it, and holds all that it held ``before``."""
    after = facts(url)
    assert before.items() <= after.items()
    with pytest.MonkeyPatch.context() as apart:
        # With artefacts of its own, wherever the study's are.
        apart.delenv("CROSSBREED_ARTEFACTS", raising=False)
        with Study.start(str(folder / "whole.db"), file, registry()) as whole:
            assert whole.run(executor="inline", device="cpu").end == "done"
    assert after == facts(str(folder / "whole.db"))
    assert set(states(url)) == {"done"}
    with Repository.open(url) as repository:
        study = repository.open_study("tiny").id
        assert check_artefacts(repository, study) == len(repository.runs(study))
        assert {run.attempts for run in repository.runs(study)} == {0}


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("url", "victim", "phase"),
    [
        *(("sqlite", victim, phase) for victim in ("worker", "driver") for phase in PHASES),
        ("sqlite", "driver", STORED),
        *(("postgresql", victim, "record") for victim in ("worker", "driver")),
        ("postgresql", "driver", STORED),
    ],
    indirect=["url"],
)
def test_killed_in_any_phase_a_search_loses_nothing_and_does_nothing_twice(
    url: str, victim: str, phase: str, begin: Begin, tmp_path: Path
) -> None:
    file = file_of(tmp_path, "", "1:" if phase == STORED else phase, "2:", seconds=0.02)
    driver = begin(url, file, executor="ray", workers=2, before=HOLD_STORED if phase == STORED else "")
    worker = held_in(phase, tmp_path, driver)
    os.kill(driver.pid if victim == "driver" else worker, signal.SIGKILL)
    if victim == "driver":
        driver.wait()
        before = facts(url)
        driver = begin(url, file, executor="ray", workers=2)
    else:
        before = facts(url)
    out, err = driver.communicate(timeout=200)
    assert out.split()[-1] == "done", err
    check_whole(url, file, tmp_path, before)
    if victim == "worker":
        assert len(events(url, "worker_lost")) == 1
    elif phase != STORED:
        assert events(url, "taken_back")


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_when_a_node_dies_its_runs_go_on_elsewhere(
    begin: Begin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, file = str(tmp_path / "study.db"), file_of(tmp_path, "", "training", "2:", seconds=0.02)
    with ray_cluster(tmp_path) as cluster:
        for name, value in cluster.environment.items():
            monkeypatch.setenv(name, value)
        nodes = cluster.add(), cluster.add()
        driver = begin(url, file, executor="ray", workers=2, address=cluster.address)
        worker = held_in("training", tmp_path, driver)
        (node,) = [n for n in nodes if worker in {p.pid for p in tree(n.pid)}]
        before = facts(url)
        cluster.kill(node)
        out, err = driver.communicate(timeout=300)
    assert out.split()[-1] == "done", err
    check_whole(url, file, tmp_path, before)
    assert events(url, "worker_lost")


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("executor", "number"),
    [("inline", signal.SIGINT), ("ray", signal.SIGINT), ("ray", signal.SIGTERM)],
    ids=["inline", "ray", "ray-terminated"],
)
def test_one_interrupt_drains_and_the_same_command_goes_on(
    executor: str, number: signal.Signals, begin: Begin, tmp_path: Path
) -> None:
    workers = 2 if executor == "ray" else 1
    url, file = str(tmp_path / "study.db"), file_of(tmp_path, "", "training", seconds=0.02)
    driver = begin(url, file, executor=executor, workers=workers)
    held_in("training", tmp_path, driver)
    if number == signal.SIGINT:
        # As a terminal does it: to the whole process group, Ray's own processes included.
        os.killpg(driver.pid, number)
    else:
        driver.send_signal(number)
    with pytest.raises(subprocess.TimeoutExpired):
        driver.communicate(timeout=3)
    (tmp_path / "marks" / "go").touch()
    out, err = driver.communicate(timeout=60)
    assert out.split()[-1] == "interrupted", err
    before = facts(url)
    assert set(states(url)) <= {"preempted", "queued", "done"}
    assert "preempted" in states(url)
    assert not events(url, "worker_lost")
    driver = begin(url, file, executor=executor, workers=workers)
    out, err = driver.communicate(timeout=200)
    assert out.split()[-1] == "done", err
    check_whole(url, file, tmp_path, before)
    assert not events(url, "taken_back")


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("executor", ["inline", "ray"])
def test_a_second_interrupt_does_not_wait_for_what_never_ends(
    executor: str, begin: Begin, tmp_path: Path
) -> None:
    workers = 2 if executor == "ray" else 1
    url, file = str(tmp_path / "study.db"), file_of(tmp_path, "", "training", seconds=0.02)
    driver = begin(url, file, executor=executor, workers=workers)
    held_in("training", tmp_path, driver)
    whole = tree(driver.pid)
    os.killpg(driver.pid, signal.SIGINT)
    with pytest.raises(subprocess.TimeoutExpired):
        driver.communicate(timeout=3)
    os.killpg(driver.pid, signal.SIGINT)
    out, err = driver.communicate(timeout=30)
    assert "KeyboardInterrupt" in err
    assert "done" not in out
    _, alive = psutil.wait_procs(whole, timeout=15)
    assert alive == []
    before = facts(url)
    driver = begin(url, file, executor=executor, workers=workers)
    out, err = driver.communicate(timeout=200)
    assert out.split()[-1] == "done", err
    check_whole(url, file, tmp_path, before)
