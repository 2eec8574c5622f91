"""Trials that share a GPU: how much of it each is given, and which workers that takes. No GPU is needed for either."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from crossbreed.core.artefacts import Artefacts
from crossbreed.core.errors import ConfigError
from crossbreed.core.host import Registry
from crossbreed.core.lab.job import Job
from crossbreed.core.search import executors
from crossbreed.core.search.driver import DriverOptions
from crossbreed.core.search.executors import ray as ray_executor
from crossbreed.core.search.executors.base import Spool
from crossbreed.core.search.executors.ray import RayExecutor
from crossbreed.core.search.executors.ray_worker import Seat
from crossbreed.core.search.executors.resources import Resources
from crossbreed.core.search.packing import MARGIN, PROCESS_BYTES, Packing
from tests.core.search.material import Scripted, drive, setting, toy_registry

GIB = 1024**3


@pytest.fixture(scope="module")
def toys() -> Registry:
    return toy_registry()


@pytest.mark.parametrize(("most", "expected"), [(1, 1.0), (4, 1 / 4), (64, 1 / 18)])
def test_a_share_holds_the_peak_with_its_margin(most: int, expected: float) -> None:
    packing = Packing(most, 80 * GIB)
    assert packing.share(1.9 * GIB) == pytest.approx(expected)
    for peak in (0.0, 1e9, 7e9, 2e10, 5e10):
        share = packing.share(peak)
        assert share == 1.0 or share * packing.device_bytes >= MARGIN * peak + PROCESS_BYTES
        assert round(1 / share) <= most


def test_what_fits_nowhere_gets_a_whole_gpu() -> None:
    assert Packing(8, 80 * GIB).share(1000 * GIB) == 1.0


def test_training_is_given_its_share_and_timing_takes_any_worker_alone(
    tmp_path: Path, toys: Registry
) -> None:
    executor, packing = Scripted(slots=3), Packing(8, 3 * PROCESS_BYTES)
    study = setting(toys, search={"trials": 3, "seeds": 1})
    drive(tmp_path / "packed.db", study, executor, DriverOptions(packing=packing))[1].close()
    assert {job.gpus for job in executor.log if "train" in job.phases} == {1 / 2}
    assert {job.gpus for job in executor.log if "profile" in job.phases} == {None}
    for jobs in executor.together:
        assert len(jobs) == 1 or not any("profile" in job.phases for job in jobs)


def test_the_batch_that_is_trained_decides_and_not_the_budgets(tmp_path: Path, toys: Registry) -> None:
    shares = []
    for batch in (8, 32768):
        executor = Scripted()
        study = setting(toys, train={"tokens": 16 * 32768, "batch": batch}, search={"trials": 0, "seeds": 1})
        packing = Packing(8, 2 * PROCESS_BYTES + GIB)
        drive(tmp_path / f"{batch}.db", study, executor, DriverOptions(packing=packing))[1].close()
        shares.append(max(job.gpus or 0.0 for job in executor.log))
    assert shares == [1 / 2, 1.0]


class Pool:
    """A Ray executor whose workers are names: what was started with which share, asked and ended."""

    def __init__(self, slots: int, least: float, monkeypatch: pytest.MonkeyPatch) -> None:
        self.executor = RayExecutor(slots, Spool(Artefacts.at("unused")), resources=Resources(gpus=least))
        self.started: list[float] = []
        self.ended: list[Any] = []
        monkeypatch.setattr(ray_executor.ray, "kill", self.ended.append)
        monkeypatch.setattr(self.executor, "_ask", lambda member: setattr(member, "ready", "asked"))
        monkeypatch.setattr(self.executor, "_new_member", self._new)

    def _new(self, gpus: float | None = None) -> Any:
        share = (self.executor.resources.gpus or 0.0) if gpus is None else gpus
        self.started.append(share)
        return ray_executor._Member(f"{len(self.started)}", share, "starting")

    def submit(self, gpus: float | None) -> None:
        job = Job(study="s", number=0, seed=0, lease=f"{len(self.started)}-{gpus}", architecture={}, task={}, recipe={}, artefacts="")  # fmt: skip
        self.executor.submit(replace(job, gpus=gpus))

    def answer(self) -> None:
        """Whoever was asked or started takes what it fits."""
        for member in self.executor._pool:
            if member.ready is not None:
                member.ready, member.seat = None, Seat("here", 1)
                member.job = next((j for j in self.executor._waiting if member.fits(j)), None)
                if member.job is not None:
                    self.executor._waiting.remove(member.job)

    def finish(self) -> None:
        for member in self.executor._pool:
            member.job = None


def test_workers_are_started_with_the_shares_of_their_jobs_while_the_gpu_has_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pool = Pool(4, 1 / 4, monkeypatch)
    for share in (1 / 2, 1 / 4, 1 / 4, 1 / 4):
        pool.submit(share)
        pool.answer()
    assert pool.started == [1 / 2, 1 / 4, 1 / 4]
    assert pool.executor.running == 4
    # The fourth waits until one is done, and takes its worker.
    pool.finish()
    pool.executor._call_up()
    pool.answer()
    assert pool.started == [1 / 2, 1 / 4, 1 / 4]
    assert pool.executor.running == 1
    assert pool.ended == []


def test_small_workers_make_room_for_a_large_job(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = Pool(4, 1 / 4, monkeypatch)
    for _ in range(4):
        pool.submit(1 / 4)
        pool.answer()
    pool.finish()
    pool.submit(1.0)
    assert pool.ended == ["1", "2", "3", "4"]
    assert pool.started == [1 / 4] * 4 + [1.0]


def test_an_idle_worker_goes_when_the_one_that_starts_may_need_its_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pool = Pool(4, 1 / 2, monkeypatch)
    for _ in range(2):
        pool.submit(1 / 2)
        pool.answer()
    # Half of each of two GPUs may be taken: a whole one is there by the sum, and perhaps not by place.
    pool.submit(1.0)
    assert pool.started == [1 / 2, 1 / 2, 1.0]
    pool.executor._pool[0].job = None
    pool.executor._call_up()
    assert pool.ended == ["1"]


def test_without_shares_workers_are_kept_and_any_takes_any_job(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = Pool(2, 0.0, monkeypatch)
    for _ in range(2):
        pool.submit(None)
        pool.answer()
    pool.finish()
    pool.submit(None)
    pool.answer()
    assert pool.started == [0.0, 0.0]
    assert pool.ended == []


def test_packing_takes_more_workers_than_gpus_and_their_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    memory = iter((80 * GIB, 40 * GIB))
    monkeypatch.setattr(
        "torch.cuda.get_device_properties",
        lambda i: type("Properties", (), {"total_memory": next(memory)}),
    )
    place = executors.choose("ray", per_gpu=4)
    assert (place.workers, place.resources.gpus) == (8, 1 / 4)
    assert place.packing == Packing(4, 40 * GIB)
    assert executors.choose("ray", per_gpu=4, device="cpu").packing is None
    assert executors.choose("ray").packing is None


def test_a_cluster_has_to_say_how_large_its_gpus_are() -> None:
    with pytest.raises(ConfigError, match="add gpu_memory_bytes to the file of --ray-resources"):
        executors.choose("ray", per_gpu=2, device="cuda", address="auto")
    given = Resources(gpu_memory_bytes=24 * GIB)
    place = executors.choose("ray", per_gpu=2, device="cuda", address="auto", resources=given)
    assert place.packing == Packing(2, 24 * GIB)
    assert place.resources.gpus == 1 / 2


def test_training_peaks_are_measured_once_a_candidate_unless_the_study_leaves_them_out(
    tmp_path: Path, toys: Registry
) -> None:
    for peaks in (True, False):
        executor = Scripted()
        study = setting(toys, search={"trials": 1, "seeds": 2, "peaks": peaks})
        drive(tmp_path / f"{peaks}.db", study, executor)[1].close()
        measured = {job.key for job in executor.log if job.memory}
        assert measured == ({"tiny/0/0", "tiny/1/0"} if peaks else set())
