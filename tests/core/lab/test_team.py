"""A trial trained by several processes, each on a device of its own: here processes of one CPU over gloo."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import psutil
import pytest
import torch.distributed as dist

from crossbreed.core.lab import trial
from crossbreed.core.lab.records import Curve, Evaluated, Finished, RungDone, Started
from crossbreed.core.lab.team import MemberLost

GATED = {"name": "entropy_gate", "params": {"ranks": "whole"}}
TOLERANCE = 2e-3


def of(kind, records) -> list:
    return [record for record in records if isinstance(record, kind)]


def points(records) -> list:
    return [point for curve in of(Curve, records) for point in curve.points]


def steps(records) -> list[tuple[int, Any, Any]]:
    return [
        (p.step, pytest.approx(p.loss_nats, rel=TOLERANCE), pytest.approx(p.grad_norm, rel=0.02))
        for p in points(records)
    ]


def others() -> list[psutil.Process]:
    """Processes that a trial here has started, and that are alive."""
    children = psutil.Process().children()
    return [p for p in children if "crossbreed.core.lab.team:follow" in " ".join(p.cmdline())]


@pytest.fixture
def in_step():
    """Does something, or says stop, when it is asked for the n-th time while several devices train."""

    def in_step(asks: int, do: Callable[[], None] | None = None) -> Callable[[], bool]:
        counter = itertools.count(1)

        def stop() -> bool:
            due = dist.is_initialized() and next(counter) >= asks
            if due and do is not None:
                do()
            return due and do is None

        return stop

    return in_step


@pytest.fixture(autouse=True)
def _nothing_is_left():
    yield
    assert not others()
    assert not dist.is_initialized()


def test_a_trial_on_two_devices_gives_what_it_gives_on_one(job, genome, records_of, tmp_path):
    data = genome(gate=GATED)
    one = records_of(job(data, artefacts=str(tmp_path / "one")))
    two = records_of(job(data, artefacts=str(tmp_path / "two"), devices=2))
    assert two[-1] == Finished("done")
    assert [(p.step, p.loss_nats, p.grad_norm) for p in points(two)] == steps(one)
    assert [type(r) for r in two if not isinstance(r, Curve)] == [
        type(r) for r in one if not isinstance(r, Curve)
    ]
    for a, b in zip(of(RungDone, one), of(RungDone, two), strict=True):
        assert a.tokens == b.tokens
        assert b.metrics["loss_nats"] == pytest.approx(a.metrics["loss_nats"], rel=TOLERANCE)
    assert [r.environment["devices"] for r in of(Started, one + two)] == [1, 2]
    assert of(Evaluated, two)[0].rates["0.1.0.gate"] == pytest.approx(
        of(Evaluated, one)[0].rates["0.1.0.gate"], abs=0.02
    )


@pytest.mark.parametrize(("first", "then"), [(1, 2), (2, 1)])
def test_a_stopped_run_goes_on_with_another_number_of_devices(
    job, genome, records_of, in_step, stop_after, tmp_path, first, then
):
    data = genome(gate=GATED)
    whole = points(records_of(job(data, artefacts=str(tmp_path / "whole"))))
    begun = records_of(job(data, devices=first), in_step(13) if first > 1 else stop_after(15))
    resumed = records_of(job(data, devices=then))
    assert begun[-1].state == "preempted"
    assert resumed[0].resumed_step > 0
    assert resumed[-1] == Finished("done")
    found = {p.step: p.loss_nats for p in points(begun) + points(resumed)}
    assert found == {p.step: pytest.approx(p.loss_nats, rel=TOLERANCE) for p in whole}


def test_a_batch_that_devices_cannot_share_evenly_is_refused(job, records_of):
    (end,) = records_of(job(devices=3))
    assert (end.state, end.cause) == (
        "failed",
        "train.batch is 8, but a trial is trained on 3 devices; each takes as many rows, so the batch must be divisible by "
        "search.devices_per_trial",
    )


def test_a_process_that_is_killed_ends_the_others_and_the_run_goes_on_from_its_rung(job, genome, records_of):
    records: list[Any] = []
    one = job(genome(gate=GATED), devices=2)

    def emit(record) -> None:
        records.append(record)
        if isinstance(record, RungDone):
            (other,) = others()
            other.send_signal(signal.SIGKILL)
            # Not before the first process has begun with the next steps.
            other.wait(10)

    with pytest.raises(MemberLost, match="device 1 of 2 of run s/1/0 is gone"):
        trial.run(one, emit, lambda: False)
    assert len(of(RungDone, records)) == 1
    assert not others()
    resumed = records_of(one)
    assert resumed[0].resumed_step == 8
    assert resumed[-1] == Finished("done")


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize(
    ("fault", "state", "cause"),
    [
        ("raise", "failed", "ValueError: shapes 3 and 4 do not fit"),
        ("memory", "out_of_memory", "MemoryError: host is full"),
        ("nan", "diverged", "loss was nan at step 3 of 24"),
    ],
)
def test_an_error_on_one_device_is_the_runs(job, genome, records_of, fault, state, cause, rank):
    end = records_of(job(genome(fault=fault, at=3, rank=rank), devices=2))[-1]
    assert end.state == state
    assert cause in end.cause


@pytest.fixture
def ctrl_c_raises():
    """As in a process of a terminal; one that a script started in the background ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_ctrl_c_ends_all_of_them_in_order(job, genome, in_step, ctrl_c_raises):
    records: list[Any] = []
    with pytest.raises(KeyboardInterrupt):
        trial.run(
            job(genome(), devices=2), records.append, in_step(3, lambda: os.kill(os.getpid(), signal.SIGINT))
        )
    assert records[-1].state == "preempted"


def test_a_run_is_stopped_before_its_devices_have_begun(job, genome, records_of, stop_after):
    end = records_of(job(genome(), devices=2), stop_after(3))[-1]
    assert end == Finished("preempted", "run s/1/0 was asked to stop before all of its devices had begun")


def test_others_do_not_outlive_a_process_that_is_killed(job, genome, tmp_path):
    one = replace(job(genome(), devices=2), recipe={**job().recipe, "tokens": 10**7, "rungs": 1})
    caller = multiprocessing.get_context("fork").Process(target=trial.run, args=(one, print, lambda: False))
    caller.start()
    deadline = time.monotonic() + 60
    while not (children := psutil.Process(caller.pid).children()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    caller.kill()
    caller.join()
    _, alive = psutil.wait_procs(children, timeout=60)
    assert not alive
