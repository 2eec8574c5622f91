"""Telling neighbours on a device: rules on injected tables, and a real busy process."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Mapping

import pytest
import torch

from crossbreed.core.lab.neighbours import Process, Watch, other_processes
from crossbreed.core.lab.operating_points import OWN
from crossbreed.core.lab.profile import measure, profile

EDITOR, TRAINER = Process(7, 1.0, "editor"), Process(8, 1.0, "python")


def watch(*tables: Mapping[Process, float], cores: int = 2, needed: int = 1, took: float = 10.0) -> Watch:
    left, times = list(tables), iter((0.0, took))
    return Watch(needed=needed, cores=cores, table=lambda: left.pop(0), clock=lambda: next(times))


def seen(found: Watch) -> str | None:
    found.begin()
    return found.end()


def test_a_machine_at_rest_has_no_neighbours() -> None:
    assert seen(watch({EDITOR: 50.0}, {EDITOR: 50.3})) == ""


def test_a_process_that_keeps_a_core_busy_is_named() -> None:
    assert (
        seen(watch({EDITOR: 50.0, TRAINER: 3.0}, {EDITOR: 50.2, TRAINER: 12.9}))
        == "other processes kept 1.0 of 2 cores busy, 1.0 of them 'python' (process 8)"
    )


def test_what_began_meanwhile_counts_and_what_was_used_before_does_not() -> None:
    assert seen(watch({EDITOR: 900.0}, {EDITOR: 900.0})) == ""
    assert seen(watch({}, {TRAINER: 9.0})) == (
        "other processes kept 0.9 of 2 cores busy, 0.9 of them 'python' (process 8)"
    )


def test_a_number_used_again_is_another_process() -> None:
    again = Process(TRAINER.pid, 99.0, "python")
    assert seen(watch({TRAINER: 1000.0}, {again: 9.0})) != ""


@pytest.mark.parametrize(
    ("cores", "needed", "used", "noticed"),
    [
        (64, 1, 10.0, False),  # many cores are left
        (64, 1, 20.0, True),
        (64, 64, 5.0, False),
        (64, 64, 8.0, True),  # every core is needed
        (2, 2, 0.15, False),
        (2, 2, 0.5, True),
        (2, 16, 0.5, True),  # more threads than cores
    ],
)
def test_the_fewer_cores_are_free_the_less_a_neighbour_may_use(
    cores: int, needed: int, used: float, noticed: bool
) -> None:
    found = seen(watch({}, {TRAINER: 10.0 * used}, cores=cores, needed=needed))
    assert (found != "") is noticed


def test_a_tick_of_the_clock_in_a_short_region_is_no_neighbour() -> None:
    assert seen(watch({EDITOR: 5.00}, {EDITOR: 5.01}, took=0.01)) == ""


class Gpu:
    def __init__(self, listed: set[int], busy: set[int] | None) -> None:
        self._listed, self._busy = listed, busy

    def listed(self) -> set[int]:
        return self._listed

    def busy(self, since_us: int) -> set[int] | None:
        return self._busy


OWN_PID = os.getpid()


@pytest.mark.parametrize(
    ("listed", "busy", "words"),
    [
        ({OWN_PID}, {OWN_PID}, ""),
        ({OWN_PID}, None, ""),
        ({OWN_PID, 8}, {OWN_PID}, ""),  # an idle worker that holds memory disturbs no timing
        ({OWN_PID, 8}, {OWN_PID, 8}, "another process computed on the GPU"),
        ({OWN_PID, 8, 9}, None, "2 other processes held the GPU"),  # the driver does not say who computes
        # In a container this process is known by another number.
        ({4}, {4}, ""),
        ({4}, None, ""),
        ({4, 5}, {4, 5}, "another process computed on the GPU"),
        ({4, 5}, None, "another process held the GPU"),
        (set(), set(), ""),
    ],
)
def test_neighbours_on_a_gpu(listed: set[int], busy: set[int] | None, words: str) -> None:
    assert seen(Watch(needed=1, cores=2, table=dict, gpu=Gpu(listed, busy))) == words


def test_a_gpu_that_nobody_can_watch_is_not_said_to_be_alone() -> None:
    assert seen(Watch(needed=1, cores=2, table=dict, blind=True)) is None
    begun = Watch(needed=1, cores=2, table=lambda: {TRAINER: time.monotonic() * 4}, blind=True)
    begun.begin()
    time.sleep(0.05)
    assert "other processes kept" in (begun.end() or "")


def test_the_first_call_is_not_watched() -> None:
    """It may compile or tune in processes of its own."""
    order: list[str] = []

    class Noted(Watch):
        def begin(self) -> None:
            order.append("begin")

        def end(self) -> str:
            order.append("end")
            return "noise"

    timing = measure(lambda: order.append("call"), watch=Noted(needed=1))
    assert order[:2] == ["call", "begin"]
    assert order.count("call") == timing.warmup + timing.repeats
    assert order[-1] == "end"
    assert timing.neighbours == "noise"
    assert measure(lambda: None).neighbours is None


def test_a_real_neighbour_is_seen_and_this_process_is_not() -> None:
    busy = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        table = other_processes()
        assert OWN_PID not in {p.pid for p in table}
        assert busy.pid in {p.pid for p in table}
        # Only the neighbour is looked at, since the machine that runs this test is not at rest.
        found = Watch(
            needed=1,
            cores=1,
            table=lambda: {p: s for p, s in other_processes().items() if p.pid in (busy.pid, OWN_PID)},
        )
        found.begin()
        until = time.perf_counter() + 0.6
        while time.perf_counter() < until:
            pass
        words = found.end()
    finally:
        busy.kill()
        busy.wait()
    assert words is not None
    assert f"(process {busy.pid})" in words


def test_a_profile_says_what_was_at_work_meanwhile(build, genome, task, monkeypatch) -> None:
    seconds = iter(range(0, 10_000, 1000))
    crowd = Watch(needed=1, cores=2, table=lambda: {TRAINER: float(next(seconds))})
    monkeypatch.setattr(Watch, "of", staticmethod(lambda device: crowd))
    crowded = profile(build(genome()), task, OWN)
    assert all("'python' (process 8)" in m.neighbours for m in crowded.measurements)
    monkeypatch.setattr(Watch, "of", staticmethod(lambda device: Watch(needed=1, table=dict)))
    assert [m.neighbours for m in profile(build(genome()), task, OWN).measurements] == ["", ""]


def test_a_gpu_is_watched_with_one_core_that_feeds_it() -> None:
    assert Watch.of(torch.device("cpu")).needed == min(torch.get_num_threads(), len(os.sched_getaffinity(0)))


BUSY_GPU = """
import torch
a = torch.randn(4096, 4096, device="cuda")
print("at work", flush=True)
while True:
    a = a @ a
    torch.cuda.synchronize()
"""


@pytest.mark.gpu
def test_a_real_neighbour_on_a_gpu_is_seen() -> None:
    pytest.importorskip("pynvml")
    device = torch.device("cuda")
    a = torch.randn(1024, 1024, device=device)

    def work() -> None:
        for _ in range(200):
            a @ a

    def timed() -> str | None:
        watch = Watch.of(device)
        assert watch._gpu is not None
        watch._table = dict  # type: ignore[assignment]
        return measure(work, synchronise=torch.cuda.synchronize, watch=watch).neighbours

    assert timed() == ""
    busy = subprocess.Popen([sys.executable, "-c", BUSY_GPU], stdout=subprocess.PIPE, text=True)
    try:
        assert busy.stdout is not None
        assert busy.stdout.readline() == "at work\n"
        time.sleep(2.0)
        assert "the GPU" in (timed() or "")
    finally:
        busy.kill()
        busy.wait()
