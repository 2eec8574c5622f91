"""What survives: lost workers, dead drivers, interrupts, edited plugins, time running out."""

from __future__ import annotations

import signal
import threading
from collections import Counter
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest

from crossbreed.core.errors import StudyBusy
from crossbreed.core.host import Registry
from crossbreed.core.lab.job import Job
from crossbreed.core.lab.records import Finished
from crossbreed.core.search.driver import DriverOptions
from crossbreed.core.search.executors.base import Lost, Report, Spool
from crossbreed.core.search.others import HELPER, Others
from crossbreed.storage import Driver as Process
from crossbreed.storage import Repository
from crossbreed.storage.rows import RunRow
from tests.core.search import material
from tests.core.search.material import (
    Scripted,
    by_number,
    drive,
    plugin,
    records_of,
    setting,
    toy_registry,
    width_of,
)


def test_a_lost_worker_is_replaced_three_times_then_given_up(database: Path, toys: Registry) -> None:
    executor = Scripted()
    lost = Counter[str]()

    def lose(job: Job) -> Report | None:
        once, always = job.key == "tiny/1/0", width_of(job) == 16
        if always or (once and lost[job.key] == 0):
            lost[job.key] += 1
            return Lost("the worker died: signal 9")
        return None

    executor.fail = lose
    end, repository, study = drive(database, setting(toys), executor)
    rows = by_number(repository, study)
    assert end == "done"
    assert rows[1].state == "done"
    assert rows[2].state == "lost"
    assert lost["tiny/2/0"] == 3
    events = [e.payload["cause"] for e in repository.events(study) if e.kind == "worker_lost"]
    assert events.count("the worker died: signal 9") == 4


def test_interrupted_and_run_again_it_continues_numbering_and_doubles_nothing(
    database: Path, toys: Registry
) -> None:
    first = Scripted()

    def stop_at_seven(job: Job) -> None:
        if len(first.log) >= 7 and not first.stopped:
            signal.raise_signal(signal.SIGINT)

    first.before = stop_at_seven
    before = signal.getsignal(signal.SIGINT)
    end, repository, study = drive(database, setting(toys), first)
    assert end == "interrupted"
    assert signal.getsignal(signal.SIGINT) is before
    states = repository.run_states(study)
    assert states.get("leased", 0) + states.get("running", 0) == 0
    second = Scripted()
    end, repository, study = drive(database, setting(toys), second)
    rows = by_number(repository, study)
    assert end == "done"
    assert list(rows) == [0, 1, 2, 3, 4]
    assert {s.state for r in rows.values() for s in r.seeds} == {"done"}
    again = Counter((job.key, job.phases) for job in second.log)
    assert max(again.values()) == 1
    uninterrupted = drive(database.with_name("other.db"), setting(toys), Scripted())
    hashes = [r.hash for r in uninterrupted[1].candidates(uninterrupted[2])]
    assert hashes == [r.hash for r in rows.values()]


def test_a_second_interrupt_ends_at_once(database: Path, toys: Registry) -> None:
    executor = Scripted()

    def twice(job: Job) -> None:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)

    executor.before = twice
    with pytest.raises(KeyboardInterrupt):
        drive(database, setting(toys), executor)
    assert executor.ended
    assert drive(database, setting(toys), Scripted())[0] == "done"


def test_a_dead_drivers_leases_and_spooled_records_are_taken_up(database: Path, toys: Registry) -> None:
    study_setting = setting(toys)
    crash = Scripted()

    def die(job: Job) -> None:
        if "train" in job.phases:
            raise SystemError("as if the process had been killed")

    crash.before = die
    with pytest.raises(SystemError):
        drive(database, study_setting, crash)
    repository = Repository.open(str(database))
    study = repository.open_study("tiny").id
    held = repository.runs(study, ("leased",))
    assert len(held) == 2
    spool = Spool.of(repository.artefacts, "tiny")
    job = next(j for j in crash.log if j.lease == held[0].lease)
    for record in records_of(job, material.by_width):
        spool.append(job.lease, record)
    spool.append("0" * 32, Finished("done"))
    second = Scripted()
    end, repository, _ = drive(database, study_setting, second)
    assert end == "done"
    assert spool.leases() == []
    # What the dead worker had finished, timed before it was trained, is done; the other run is trained.
    assert [j.phases for j in second.log if j.key == held[0].key] == []
    assert repository.run(held[0].id).state == "done"
    assert next(j.phases for j in second.log if j.key == held[1].key) == ("train", "evaluate")


def test_drivers_that_die_cost_a_run_no_attempt(database: Path, toys: Registry) -> None:
    def die(job: Job) -> None:
        raise SystemError("as if the process had been killed")

    for _ in range(5):
        crash = Scripted(slots=1)
        crash.before = die
        with pytest.raises(SystemError):
            drive(database, setting(toys), crash)
    end, repository, study = drive(database, setting(toys), Scripted())
    assert end == "done"
    assert set(repository.run_states(study)) == {"done"}


def test_a_second_driver_is_refused_and_a_dead_one_is_taken_over(database: Path, toys: Registry) -> None:
    study_setting = setting(toys)
    repository = Repository.open(str(database))
    study = repository.create_study("tiny", study_setting.file.as_data()).id
    here = Process.here()
    repository.acquire_driver_lease(study, Process("elsewhere", "boot", 7, 1.0))
    with pytest.raises(StudyBusy, match="process 7 on host 'elsewhere'"):
        drive(database, study_setting, Scripted())
    repository.release_driver_lease(
        study, repository.acquire_driver_lease(study, Process("elsewhere", "boot", 7, 1.0)).token
    )
    repository.acquire_driver_lease(study, Process(here.host, here.boot, here.pid, here.started - 100))
    assert drive(database, study_setting, Scripted())[0] == "done"


def test_runs_of_an_edited_plugin_do_not_pool(database: Path, toys: Registry) -> None:
    from tests.core.search.routers import COIN

    def with_router(text: str) -> Any:
        registry = toy_registry(plugin("coin.py", text))
        gated = material.TOY.replace(
            'block = {"sublayers": sublayers}', 'block = {"sublayers": sublayers, "gate": {"name": "coin"}}'
        )
        return setting(material.Host.load([plugin("toy.py", gated), *registry.files[1:]], third_party=False))

    crash = Scripted()

    def stop(job: Job) -> None:
        if not crash.stopped:
            signal.raise_signal(signal.SIGINT)

    crash.before = stop
    drive(database, with_router(COIN), crash)
    _, repository, study = drive(database, with_router(COIN + "\n# edited\n"), Scripted())
    old = [run for run in repository.runs(study) if run.state == "failed"]
    assert old
    assert all("plugin of this candidate has changed" in str(run.cause) for run in old)
    for row in repository.candidates(study):
        versions = {tuple(sorted(s.identities.items())) for s in row.seeds if s.state == "done"}
        assert len(versions) <= 1


def test_time_is_up_between_jobs_and_the_next_session_goes_on(database: Path, toys: Registry) -> None:
    end, repository, study = drive(database, setting(toys), Scripted(), DriverOptions(max_hours=1e-9))
    assert end == "out_of_time"
    assert repository.run_states(study) == {"queued": 1}
    assert drive(database, setting(toys), Scripted())[0] == "done"
    assert drive(database, setting(toys), Scripted(), DriverOptions(max_hours=1e-9))[0] == "done"


def test_a_stolen_lease_ends_the_session(
    database: Path, toys: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("crossbreed.core.search.hold.HEARTBEAT_S", 0.01)
    executor = Scripted()
    stolen = threading.Event()

    def steal(job: Job) -> None:
        if not stolen.is_set():
            stolen.set()
            thief = Repository.open(str(database))
            study = thief.open_study("tiny").id
            held = thief.driver(study)
            assert held is not None
            # As another host would after this one fell silent for longer than its lease.
            thief.acquire_driver_lease(study, held.driver)
        threading.Event().wait(0.2)

    executor.before = steal
    with pytest.raises(StudyBusy, match="taken over by another driver"):
        drive(database, setting(toys), executor)
    assert executor.stopped


def test_a_host_without_memory_is_tried_three_times_and_is_no_crash(database: Path, toys: Registry) -> None:
    executor = Scripted()
    executor.fail = lambda job: (
        Lost("OutOfMemoryError: 1 worker killed", "out_of_memory") if width_of(job) == 16 else None
    )
    end, repository, study = drive(database, setting(toys), executor)
    row = by_number(repository, study)[2]
    assert end == "done"
    assert row.state == "out_of_memory"
    assert row.cause == "OutOfMemoryError: 1 worker killed; 3 leases in a row were lost"
    assert len([job for job in executor.log if width_of(job) == 16]) == 3


def test_a_worker_taken_back_with_its_node_is_no_attempt(database: Path, toys: Registry) -> None:
    executor, taken = Scripted(), Counter[str]()

    def take_back(job: Job) -> Report | None:
        taken[job.key] += 1
        return Lost("its node was drained", "preempted") if taken[job.key] <= 5 else None

    executor.fail = take_back
    end, repository, study = drive(database, setting(toys), executor)
    assert end == "done"
    assert set(repository.run_states(study)) == {"done"}
    assert {run.attempts for run in repository.runs(study)} == {0}


def test_a_run_that_a_helper_puts_back_when_nothing_else_is_left_is_finished_by_the_driver(
    database: Path, toys: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    executor, given = Scripted(slots=1), dict[int, str]()

    def help_once(job: Job) -> Report | None:
        """A helper takes whatever waits, once."""
        with Repository.open(str(database)) as repository:
            waiting = repository.runs(repository.open_study("tiny").id, ("queued",))
            if waiting and not given:
                lease = repository.lease_run(waiting[0].id, Process.here().signature(HELPER), seconds=600)
                given[waiting[0].id] = str(lease)
        return None

    looks = Others.take_back

    def put_back(self: Others, mine: Collection[str] = ()) -> tuple[list[RunRow], list[RunRow]]:
        """It puts the run back just before the driver looks whether anybody works."""
        for run_id, lease in given.items():
            self.repository.release_run(run_id, lease)
        return looks(self, mine)

    executor.fail = help_once
    monkeypatch.setattr(Others, "take_back", put_back)
    end, repository, study = drive(database, setting(toys), executor)
    assert given
    assert end == "done"
    assert set(repository.run_states(study)) == {"done"}


def test_a_record_that_no_front_could_hold_fails_its_run_alone(
    database: Path, toys: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    def result(job: Job) -> tuple[float, float]:
        score, speed = material.by_width(job)
        return score, float("inf") if width_of(job) == 16 else speed

    executor = Scripted(result)
    end, repository, study = drive(database, setting(toys), executor)
    rows = by_number(repository, study)
    assert end == "done"
    assert rows[2].state == "failed"
    assert str(rows[2].cause).startswith("non_finite: measurement prefill_tokens_per_s at 'own' has")
    assert rows[1].state == "done"
    # Its worker was ended: what it says after that is of nobody's run.
    assert len(executor.killed) == 1


def test_late_records_are_refused_with_a_sentence_and_change_nothing(database: Path, toys: Registry) -> None:
    executor = Scripted(slots=1)

    def take_away(job: Job) -> None:
        if job.key == "tiny/1/0" and "train" in job.phases and not executor.refused:
            with Repository.open(str(database)) as repository:
                run = repository.run_by_key(job.key)
                repository.set_run_state(run.id, "queued")
                repository.lease_run(run.id, "helper elsewhere 7 1.00 boot", seconds=0.5)

    executor.before = take_away
    end, repository, study = drive(database, setting(toys), executor)
    assert end == "done"
    assert set(repository.run_states(study)) == {"done"}
    ((_, why),) = executor.refused
    assert why.startswith("Records of run tiny/1/0 under lease ")
    assert "is held by helper elsewhere 7 1.00 boot now" in why
    (event,) = repository.events_of(study, "record_refused")
    assert event.payload["cause"] == why
    # The holder of the new lease never answered, so the run came back and was done once more.
    assert len([j for j in executor.log if j.key == "tiny/1/0" and "train" in j.phases]) == 2


def test_a_job_that_comes_no_further_is_ended(
    database: Path, toys: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    executor = Scripted()
    executor.hangs = lambda job: width_of(job) == 16
    end, repository, study = drive(database, setting(toys, search={"deadline_s": 0.3}), executor)
    rows = by_number(repository, study)
    assert end == "done"
    assert rows[2].state == "failed"
    assert str(rows[2].cause).startswith("deadline: nothing was finished for 0 s")
    assert rows[1].state == "done"
    assert len(executor.killed) == 1
