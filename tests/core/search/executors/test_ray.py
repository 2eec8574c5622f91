"""Which workers of a pool are asked for a job, and which are started: the pool's own bookkeeping, without a cluster."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from crossbreed.core.artefacts import Artefacts
from crossbreed.core.search.executors.base import Spool
from crossbreed.core.search.executors.ray import RayExecutor, _Member
from crossbreed.core.search.executors.ray_worker import Seat


@dataclass
class Asked:
    """Stands for an actor; counts how often it is asked whether it is ready."""

    times: int = 0
    ready: Any = field(init=False)

    def __post_init__(self) -> None:
        self.ready = SimpleNamespace(remote=self._remote)

    def _remote(self, gone: list[Seat]) -> str:
        self.times += 1
        return "an answer to come"


@pytest.fixture
def pool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RayExecutor:
    executor = RayExecutor(3, Spool(Artefacts.at(tmp_path)))
    monkeypatch.setattr(executor, "_new_member", lambda gpus: _Member(Asked(), ready="to be started"))
    return executor


def test_a_free_worker_is_asked_while_another_finds_no_room_to_start(pool: RayExecutor) -> None:
    free = _Member(Asked(), seat=Seat("here", 1))
    # As after a node has died: its replacement waits for a place in the cluster.
    pool._pool = [_Member(Asked(), ready="never answered"), free]
    pool.submit(SimpleNamespace(lease="a", gpus=None))  # type: ignore[arg-type]
    assert free.actor.times == 1
    assert len(pool._pool) == 2
    # One answer to come is enough for one job.
    pool._call_up()
    assert free.actor.times == 1


def test_no_more_workers_are_started_than_jobs_wait_and_slots_are_there(pool: RayExecutor) -> None:
    for lease in "abcd":
        pool._waiting.append(SimpleNamespace(lease=lease, gpus=None))  # type: ignore[arg-type]
    pool._call_up()
    assert len(pool._pool) == 3
    pool._call_up()
    assert len(pool._pool) == 3
