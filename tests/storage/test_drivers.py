import os
import signal
from dataclasses import replace
from multiprocessing.connection import Connection

import pytest

from crossbreed.core.errors import StudyBusy
from crossbreed.storage import Driver, Repository
from tests.storage.processes import PROCESSES

ELSEWHERE = Driver(host="node7", boot="b", pid=4711, started=1.0)


def drive(url: str, study_id: int, ready: Connection) -> None:
    """Take the lease in another process and sit on it."""
    with Repository.open(url) as repository:
        repository.acquire_driver_lease(study_id)
    ready.send(os.getpid())
    signal.pause()


def test_a_second_driver_is_refused_and_a_dead_one_taken_over_at_once(url: str) -> None:
    with Repository.open(url) as repository:
        study = repository.create_study("s", {})
        receiver, sender = PROCESSES.Pipe(duplex=False)
        process = PROCESSES.Process(target=drive, args=(url, study.id, sender))
        process.start()
        try:
            pid = receiver.recv()
            with pytest.raises(
                StudyBusy, match=rf"'s'.*process {pid} on this host.*kill -INT {pid}"
            ) as caught:
                repository.acquire_driver_lease(study.id)
            assert caught.value.exit_code == 2
        finally:
            process.kill()
            process.join()
        hold = repository.acquire_driver_lease(study.id)
        assert hold.previous is not None
        assert hold.previous.pid == pid
        held = repository.driver(study.id)
        assert held is not None
        assert held.driver == Driver.here()


def test_a_reused_process_number_does_not_keep_a_lease(repository: Repository) -> None:
    study = repository.create_study("s", {})
    here = Driver.here()
    earlier = replace(here, started=here.started - 3600)
    repository.acquire_driver_lease(study.id, earlier)
    assert repository.acquire_driver_lease(study.id).previous == earlier


def test_a_lease_from_before_a_reboot_is_void(repository: Repository) -> None:
    study = repository.create_study("s", {})
    before = replace(Driver.here(), boot="an earlier one", pid=1)
    repository.acquire_driver_lease(study.id, before)
    assert repository.acquire_driver_lease(study.id).previous == before


def test_a_driver_of_another_host_is_taken_over_only_on_expiry(repository: Repository) -> None:
    study = repository.create_study("s", {})
    repository.acquire_driver_lease(study.id, ELSEWHERE, seconds=600)
    with pytest.raises(StudyBusy, match=r"process 4711 on host 'node7'.*expires in \d+ s"):
        repository.acquire_driver_lease(study.id)
    repository.release_driver_lease(study.id, "not its token")
    with pytest.raises(StudyBusy):
        repository.acquire_driver_lease(study.id)
    other = repository.create_study("t", {})
    repository.acquire_driver_lease(other.id, ELSEWHERE, seconds=-1)
    assert repository.acquire_driver_lease(other.id).previous == ELSEWHERE


def test_a_heartbeat_keeps_the_lease_and_tells_when_it_is_lost(repository: Repository) -> None:
    study = repository.create_study("s", {})
    first = repository.acquire_driver_lease(study.id, ELSEWHERE, seconds=-1)
    assert repository.heartbeat(study.id, first.token, seconds=600)
    with pytest.raises(StudyBusy):
        repository.acquire_driver_lease(study.id)
    assert repository.heartbeat(study.id, first.token, seconds=-1)
    second = repository.acquire_driver_lease(study.id)
    assert not repository.heartbeat(study.id, first.token)
    assert not repository.release_driver_lease(study.id, first.token)
    assert repository.release_driver_lease(study.id, second.token)
    assert repository.driver(study.id) is None


def test_the_same_process_may_take_its_own_lease_again(repository: Repository) -> None:
    """A notebook whose search raised runs the cell again."""
    study = repository.create_study("s", {})
    first = repository.acquire_driver_lease(study.id)
    second = repository.acquire_driver_lease(study.id)
    assert not repository.heartbeat(study.id, first.token)
    assert repository.heartbeat(study.id, second.token)


def test_studies_are_driven_apart(repository: Repository) -> None:
    a, b = repository.create_study("a", {}), repository.create_study("b", {})
    repository.acquire_driver_lease(a.id, ELSEWHERE)
    assert repository.acquire_driver_lease(b.id).previous is None
