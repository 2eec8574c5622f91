"""Orders to a driver: heard from another thread of the driver's, obeyed, answered; nobody to hear them is a sentence."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest

from crossbreed.core.errors import ConfigError
from crossbreed.core.host import Registry
from crossbreed.core.lab.job import Job
from crossbreed.core.search import orders
from crossbreed.core.search.driver import DriverOptions
from crossbreed.core.search.orders import Orders, give, paused
from crossbreed.core.search.progress import Progress
from crossbreed.storage import Driver as Process
from crossbreed.storage import Repository
from tests.core.search.material import Scripted, drive, setting


@pytest.fixture(autouse=True)
def _listening_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(orders, "LISTEN_S", 0.02)


def other_process(database: Path, *given: Any) -> threading.Thread:
    """Give orders through a connection of its own, one after the other, each once the one before is heard."""

    def work() -> None:
        with Repository.open(str(database)) as repository:
            for order in given:
                _, heard = give(repository, "tiny", order, 20)
                assert heard

    thread = threading.Thread(target=work)
    thread.start()
    return thread


def test_a_paused_search_submits_nothing_keeps_the_study_and_goes_on(database: Path, toys: Registry) -> None:
    executor, seen = Scripted(), []
    threads: list[threading.Thread] = []

    def pause(job: Job) -> None:
        if len(executor.log) == 5 and not threads:
            threads.append(other_process(database, "pause"))
            threads[0].join()

    def look(progress: Progress) -> None:
        seen.append(progress.activity)
        if progress.activity == "paused" and not progress.running and len(threads) == 1:
            with Repository.open(str(database), read_only=True) as repository:
                study = repository.open_study("tiny").id
                driver = repository.driver(study)
                assert driver is not None
                assert paused(repository, study, driver)
                assert repository.run_states(study)["preempted"] >= 1
            assert executor.stopped
            threads.append(other_process(database, "resume"))

    executor.before = pause
    end, repository, study = drive(database, setting(toys), executor, DriverOptions(on_progress=look))
    assert end == "done"
    assert "paused" in seen
    assert {s.state for row in repository.candidates(study) for s in row.seeds} == {"done"}
    assert len(threads) == 2
    assert len({job.lease for job in executor.log}) == len(executor.log)


def test_a_stop_ends_the_search_in_order(database: Path, toys: Registry) -> None:
    executor = Scripted()

    def stop(job: Job) -> None:
        if len(executor.log) == 5:
            other_process(database, "stop").join()

    executor.before = stop
    end, repository, study = drive(database, setting(toys), executor)
    assert end == "stopped"
    assert repository.driver(study) is None
    assert repository.run_states(study).keys().isdisjoint({"leased", "running"})
    # The order was for the last session, not for the next one.
    assert drive(database, setting(toys), Scripted())[0] == "done"


def test_a_stop_ends_a_paused_search_too(database: Path, toys: Registry) -> None:
    executor, threads = Scripted(), []

    def pause(job: Job) -> None:
        if not threads:
            threads.append(other_process(database, "pause", "stop"))
            time.sleep(0.2)

    executor.before = pause
    assert drive(database, setting(toys), executor)[0] == "stopped"


def test_nobody_to_hear_an_order_is_a_sentence(database: Path) -> None:
    with Repository.open(str(database)) as repository:
        study = repository.create_study("tiny", {}).id
        with pytest.raises(ConfigError, match="nobody drives study 'tiny', so there is nothing to pause"):
            give(repository, "tiny", "pause")
        dead = Process("elsewhere", "boot", 1, 0.0)
        repository.acquire_driver_lease(study, dead, seconds=-1)
        with pytest.raises(ConfigError, match="nothing to stop"):
            give(repository, "tiny", "stop")


def test_a_driver_that_does_not_answer_is_reported(database: Path) -> None:
    with Repository.open(str(database)) as repository:
        study = repository.create_study("tiny", {}).id
        hold = repository.acquire_driver_lease(study)
        driver, heard = give(repository, "tiny", "pause", wait_s=0.1)
        assert driver.driver == Process.here()
        assert not heard
        assert not paused(repository, study, driver)
        repository.release_driver_lease(study, hold.token)


def test_orders_given_before_the_driver_began_are_not_its(database: Path) -> None:
    heard: list[str] = []
    with Repository.open(str(database)) as repository:
        study = repository.create_study("tiny", {}).id
        repository.add_event(study, orders.GIVEN, {"order": "stop"})
        with Orders(repository, study, heard.append):
            time.sleep(0.1)
            repository.add_event(study, orders.GIVEN, {"order": "pause"})
            deadline = time.monotonic() + 10
            while not heard and time.monotonic() < deadline:
                time.sleep(0.01)
    assert heard == ["pause"]
