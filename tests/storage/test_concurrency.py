"""Several real processes on one database."""

import os
import signal
import time
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Barrier
from pathlib import Path

from crossbreed.storage import Repository
from tests.storage.material import add_run, add_trial, curve, running
from tests.storage.processes import PROCESSES

WRITERS, BATCHES, POINTS = 8, 10, 20


def open_and_add(url: str, name: str, gate: Barrier) -> None:
    gate.wait()
    with Repository.open(url) as repository:
        repository.create_study(name, {})


def test_processes_may_make_one_database_at_once(url: str) -> None:
    gate = PROCESSES.Barrier(4)
    processes = [PROCESSES.Process(target=open_and_add, args=(url, f"s{i}", gate)) for i in range(4)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [p.exitcode for p in processes] == [0] * 4
    with Repository.open(url) as repository:
        assert {s.name for s in repository.list_studies()} == {"s0", "s1", "s2", "s3"}


def write(url: str, study_id: int, name: str, gate: Barrier) -> None:
    with Repository.open(url) as repository:
        gate.wait()
        trial = add_trial(repository, study_id, name)
        run = repository.add_run(trial.id, 0, recipe={}, identities={})
        lease = running(repository, run)
        for batch in range(BATCHES):
            assert repository.record_curve(run.id, lease, curve(batch * POINTS, (batch + 1) * POINTS))
        assert repository.record_finished(run.id, lease, "done")


def test_a_polling_reader_neither_stops_writers_nor_sees_half_of_anything(url: str) -> None:
    with Repository.open(url) as repository:
        study = repository.create_study("s", {})
        gate = PROCESSES.Barrier(WRITERS + 1)
        processes = [
            PROCESSES.Process(target=write, args=(url, study.id, f"w{i}", gate)) for i in range(WRITERS)
        ]
        for process in processes:
            process.start()
        polls = 0
        with Repository.open(url, read_only=True) as reader:
            gate.wait()
            while any(p.is_alive() for p in processes):
                for candidate in reader.candidates(study.id):
                    for seed in candidate.seeds:
                        points = len(reader.curve(seed.run_id))
                        assert points % POINTS == 0
                        assert seed.state != "done" or points == BATCHES * POINTS
                polls += 1
                time.sleep(0.02)
        assert [p.exitcode for p in processes] == [0] * WRITERS
        assert polls > 3
        assert [t.number for t in repository.trials(study.id)] == list(range(WRITERS))
        assert repository.run_states(study.id) == {"done": WRITERS}
        lengths = {len(c) for c in repository.curves([r.id for r in repository.runs(study.id)]).values()}
        assert lengths == {BATCHES * POINTS}


def die_in_the_middle(url: str, run_id: int, lease: str, ready: Connection) -> None:
    with Repository.open(url) as repository, repository.batch():
        repository.record_curve(run_id, lease, curve(100, 200))
        ready.send("written, not committed")
        signal.pause()


def test_a_process_killed_in_a_transaction_leaves_nothing_of_it(url: str) -> None:
    with Repository.open(url) as repository:
        run = add_run(repository)
        lease = running(repository, run)
        repository.record_curve(run.id, lease, curve(0, 10))
        receiver, sender = PROCESSES.Pipe(duplex=False)
        process = PROCESSES.Process(target=die_in_the_middle, args=(url, run.id, lease, sender))
        process.start()
        assert receiver.recv() == "written, not committed"
        assert process.pid is not None
        os.kill(process.pid, signal.SIGKILL)
        process.join()
        began = time.monotonic()
        assert repository.record_curve(run.id, lease, curve(10, 12))
        assert time.monotonic() - began < 10  # the dead process's lock died with it
        assert [p.step for p in repository.curve(run.id)] == list(range(12))


def test_a_reader_opens_while_a_writer_is_in_the_middle(tmp_path: Path) -> None:
    url = str(tmp_path / "x.db")
    with Repository.open(url) as repository:
        study = repository.create_study("s", {})
        with repository.batch():
            repository.add_event(study.id, "half")
            with Repository.open(url, read_only=True) as reader:
                assert reader.events(study.id) == []
        with Repository.open(url, read_only=True) as reader:
            assert [e.kind for e in reader.events(study.id)] == ["half"]
