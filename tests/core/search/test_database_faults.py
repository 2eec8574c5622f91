"""Many workers on one file, and a server that goes away in the middle of a search."""

from __future__ import annotations

import multiprocessing
import threading
import time
from collections import deque
from collections.abc import Iterator
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import pytest

from crossbreed.core.errors import DatabaseLost
from crossbreed.core.host import Registry
from crossbreed.core.lab.job import Job
from crossbreed.core.lab.records import Curve, CurvePoint, Finished, Record, Started
from crossbreed.core.search import patience
from crossbreed.core.search.executors.base import Deliver
from crossbreed.core.search.study import Study
from crossbreed.storage import Repository
from tests.core.search.material import drive, records_of, setting, width_of
from tests.core.search.test_survival import check_artefacts, registry, study_of
from tests.services import PostgresServer

WORKERS, MESSAGES, POINTS = 32, 12, 25
FORK = multiprocessing.get_context("fork")


def widest(job: Job) -> tuple[float, float]:
    """The widest candidate is best at everything, so that it alone is run again with a fresh seed."""
    return 0.01 * width_of(job), float(width_of(job))


def stream(to_driver: Connection) -> None:
    """A worker process: for each job it sends a long curve in pieces, then the results."""
    while (job := to_driver.recv()) is not None:
        for record in _reported(job):
            to_driver.send(record)


def _reported(job: Job) -> Iterator[Record]:
    for record in records_of(job, widest):
        yield record
        if isinstance(record, Started) and "train" in job.phases:
            for first in range(0, MESSAGES * POINTS, POINTS):
                steps = range(first + 1000, first + 1000 + POINTS)
                yield Curve(tuple(CurvePoint(s, s * 128, 1.0, 1e-3, 1.0, {"a": 0.5}) for s in steps))


class Processes:
    """An executor over real processes that stream as fast as they can."""

    def __init__(self, slots: int) -> None:
        self.slots = slots
        pipes = [FORK.Pipe() for _ in range(slots)]
        self._workers = [FORK.Process(target=stream, args=(theirs,), daemon=True) for _, theirs in pipes]
        for worker in self._workers:
            worker.start()
        for _, theirs in pipes:
            theirs.close()
        self._idle = deque(ours for ours, _ in pipes)
        self._busy: dict[Connection, Job] = {}

    @property
    def running(self) -> int:
        return len(self._busy)

    def start(self) -> None:
        """The processes are there."""

    def submit(self, job: Job) -> None:
        worker = self._idle.popleft()
        self._busy[worker] = job
        worker.send(job)

    def work(self, deliver: Deliver, timeout: float) -> None:
        for worker in wait(list(self._busy), timeout):
            assert isinstance(worker, Connection)
            job, record = self._busy[worker], worker.recv()
            if isinstance(record, Finished):
                del self._busy[worker]
                self._idle.append(worker)
            deliver(job.lease, record)

    def stop(self) -> None:
        """Jobs are short."""

    def shutdown(self) -> None:
        for worker in [*self._idle, *self._busy]:
            worker.send(None)
        for process in self._workers:
            process.join(20)
            assert process.exitcode == 0


def poll(database: str, over: Any, answer: Connection) -> None:
    """A reader as the dashboard is one; sends how often it looked, or what went wrong."""
    looks = 0
    try:
        while not over.is_set():
            if Path(database).exists():
                with Repository.open(database, read_only=True, create=False) as repository:
                    for study in repository.list_studies():
                        for candidate in repository.candidates(study.id):
                            for seed in candidate.seeds:
                                points = len(repository.curve(seed.run_id))
                                assert not points or points % POINTS in (0, 1)
                        looks += 1
            time.sleep(0.02)
        answer.send(looks)
    except BaseException as error:
        answer.send(f"{type(error).__name__}: {error}")


@pytest.mark.timeout(300)
def test_32_processes_stream_through_one_driver_into_one_file_while_a_reader_polls(
    database: Path, toys: Registry
) -> None:
    # None of them is the reference.
    widths = list(range(40, 40 + WORKERS))
    study_setting = setting(
        toys,
        space={"name": "toy", "params": {"widths": widths, "starts": widths}},
        search={"trials": WORKERS, "seeds": 1, "sampler": "random"},
    )
    Repository.open(str(database)).close()
    executor, over = Processes(WORKERS), FORK.Event()
    ours, theirs = FORK.Pipe()
    reader = FORK.Process(target=poll, args=(str(database), over, theirs), daemon=True)
    reader.start()
    try:
        end, repository, study = drive(database, study_setting, executor)
    finally:
        over.set()
    looks = ours.recv() if ours.poll(60) else "the reader never answered"
    assert isinstance(looks, int), looks
    assert looks > 3
    assert end == "done"
    assert repository.run_states(study).keys() == {"done"}
    assert len(repository.trials(study)) == WORKERS + 1
    for run in repository.runs(study):
        steps = [p.step for p in repository.curve(run.id)]
        assert steps == [16, *range(1000, 1000 + MESSAGES * POINTS)]
        assert run.attempts == 0


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_server_that_restarts_in_the_middle_of_a_search_costs_nothing(
    postgres: PostgresServer, postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CROSSBREED_ARTEFACTS", str(tmp_path / "artefacts"))
    monkeypatch.setattr(patience, "RETRY_S", 0.1)
    restarts: list[threading.Thread] = []
    noticed, wait = threading.Event(), patience._wait

    def wait_for_it(repository: Repository) -> None:
        noticed.set()
        wait(repository)

    monkeypatch.setattr(patience, "_wait", wait_for_it)

    def restart() -> None:
        noticed.wait(60)
        postgres.start()

    def while_training(progress: Any) -> None:
        if progress.states.get("running") and not restarts:
            # Away before the next record of the run that is worked on, and back once that was noticed.
            postgres.control("stop", "-m", "fast")
            restarts.append(threading.Thread(target=restart))
            restarts[0].start()

    file = study_of(tmp_path / "marks", ("", "1:"), seconds=0.15, train={"tokens": 2048, "log_every": 2})
    with Study.start(postgres_url, file, registry()) as study:
        outcome = study.run(executor="inline", device="cpu", on_progress=while_training)
        restarts[0].join()
        assert outcome.end == "done"
        key = study.row.id
        assert set(study.repository.run_states(key)) == {"done"}
        assert [t.number for t in study.repository.trials(key)] == [0, 1, 2]
        for run in study.repository.runs(key):
            assert [p.step for p in study.repository.curve(run.id)] == list(range(2, 17, 2))
        # The run that was cut off was taken up by the same process, and that was no attempt of its own.
        assert len([e for e in study.repository.events(key) if e.kind == "taken_back"]) == 1
        assert check_artefacts(study.repository, key) == len(study.repository.runs(key))


def test_a_server_that_stays_away_ends_the_search_with_a_sentence(
    postgres: PostgresServer, postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CROSSBREED_ARTEFACTS", str(tmp_path / "artefacts"))
    monkeypatch.setattr(patience, "RETRY_S", 0.1)
    monkeypatch.setattr(patience, "PATIENCE_S", 0.3)
    file = study_of(tmp_path / "marks", ("",))
    with Study.start(postgres_url, file, registry()) as study:
        with postgres.restarted(), pytest.raises(DatabaseLost, match="cannot be") as lost:
            study.run(executor="inline", device="cpu")
        assert "let-me-in" not in str(lost.value)
        assert study.run(executor="inline", device="cpu").end == "done"
