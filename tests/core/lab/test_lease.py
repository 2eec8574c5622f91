"""Leases of devices between real processes."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.synchronize import Event
from pathlib import Path

import pytest
import torch

from crossbreed.core.lab import lease
from crossbreed.core.lab.job import Job
from crossbreed.core.lab.records import Finished, Profiled, Waiting
from crossbreed.core.lab.trial import run

CPU = torch.device("cpu")
FORK = multiprocessing.get_context("fork")
"""A process of its own that need not import anything again."""


def hold(held: Event, done: Event) -> None:
    with lease.alone(CPU, "other-study/3/0"):
        held.set()
        done.wait()


@contextmanager
def elsewhere() -> Iterator[tuple[int, Event]]:
    """Another process that holds the processor until it is told that it is done."""
    held, done = FORK.Event(), FORK.Event()
    process = FORK.Process(target=hold, args=(held, done))
    process.start()
    try:
        assert held.wait(30)
        assert process.pid is not None
        yield process.pid, done
    finally:
        process.kill()
        process.join()


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(lease.FOLDER, str(tmp_path / "leases"))


def test_a_second_holder_waits_says_for_whom_and_gets_it_when_the_first_is_done() -> None:
    said: list[str] = []
    with elsewhere() as (pid, done):

        def let_go(sentence: str) -> None:
            said.append(sentence)
            done.set()

        with lease.alone(CPU, "mine", waiting=let_go):
            assert done.is_set()
    assert said == [f"device cpu is held by process {pid} (other-study/3/0); timing waits until it is free"]


def test_a_holder_that_is_killed_leaves_nothing_behind() -> None:
    said: list[str] = []

    def kill(sentence: str) -> None:
        said.append(sentence)
        os.kill(pid, signal.SIGKILL)

    with elsewhere() as (pid, done), lease.alone(CPU, "mine", waiting=kill):
        assert not done.is_set()
    assert len(said) == 1


def test_two_threads_of_one_process_take_turns() -> None:
    inside, most = 0, 0

    def work() -> None:
        nonlocal inside, most
        for _ in range(3):
            with lease.alone(CPU, "thread"):
                inside += 1
                most = max(most, inside)
                time.sleep(0.01)
                inside -= 1

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == 1


def test_a_file_that_may_only_be_read_is_a_lease_all_the_same(tmp_path: Path) -> None:
    held = tmp_path / "leases" / f"{lease.PREFIX}cpu.lock"
    with lease.alone(CPU, "mine"):
        assert "(mine)" in held.read_text()
    held.chmod(0o444)
    with lease.alone(CPU, "again"), pytest.raises(lease.GivenUp), lease.alone(CPU, "b", stop=lambda: True):
        pass


def test_devices_are_held_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    with lease.alone(CPU, "mine"):
        monkeypatch.setattr(lease, "device_id", lambda device: "cuda-1234")
        with lease.alone(CPU, "mine", waiting=pytest.fail):
            pass


def test_a_trial_reports_that_it_waits_and_stops_waiting_when_asked(job) -> None:
    with elsewhere() as (pid, _):
        one: Job = job(phases=("profile",))
        records: list[object] = []
        run(one, records.append, lambda: any(isinstance(r, Waiting) for r in records))
    waiting, last = records[-2:]
    assert isinstance(waiting, Waiting)
    assert f"held by process {pid} (other-study/3/0)" in waiting.cause
    assert isinstance(last, Finished)
    assert last.state == "preempted"
    assert "waiting for device cpu" in last.cause
    assert not any(isinstance(r, Profiled) for r in records)
