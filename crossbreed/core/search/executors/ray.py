"""Jobs on a pool of Ray actors: reused while healthy, replaced after any fault, all gone after ``shutdown``."""

from __future__ import annotations

import os
import queue
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import RayError

from crossbreed.core.errors import ConfigError
from crossbreed.core.lab import trial
from crossbreed.core.lab.job import Job
from crossbreed.core.lab.records import Finished, Record
from crossbreed.core.search.executors.base import Deliver, Lost, Spool

SHARED_MEMORY = 128 * 1024 * 1024
"""Ray's object store on a local cluster, bytes. Records are small; Ray's default takes a third of the machine."""

ANSWER_S = 5.0
"""Longest wait for a given address to answer."""

HEALTHY = frozenset({"done", "off_budget", "preempted"})
"""Endings after which a worker is used again. Any other may have left its process in a bad state."""


class _Worker:
    """The actor. ``run`` streams the records of one job; ``stop`` works while it runs."""

    def __init__(self, spool: str) -> None:
        self._spool = Spool(Path(spool))
        self._stopping = threading.Event()

    def run(self, job: Job) -> Iterator[Record]:
        out: queue.SimpleQueue[Record | BaseException | None] = queue.SimpleQueue()

        def emit(record: Record) -> None:
            self._spool.append(job.lease, record)
            out.put(record)

        def work() -> None:
            try:
                trial.run(job, emit, self._stopping.is_set)
                out.put(None)
            # Whatever escapes is carried to the driver, which sees the job as lost with this cause.
            except BaseException as error:
                out.put(error)

        threading.Thread(target=work, name=job.key, daemon=True).start()
        while (item := out.get()) is not None:
            if isinstance(item, BaseException):
                raise item
            yield item

    def stop(self) -> None:
        self._stopping.set()


@dataclass
class _Slot:
    """A running job: its actor, its stream, and the last ending seen."""

    job: Job
    actor: Any
    stream: Any
    ended: str | None = None
    told: bool = False

    def tell_to_stop(self) -> None:
        if not self.told:
            self.told = True
            self.actor.stop.remote()


class RayExecutor:
    """``slots`` workers of ``threads`` CPU threads (and ``gpus`` GPUs) each.

    ``address`` None starts a local cluster for this process alone; otherwise an existing one is joined and left running.
    Nothing runs before ``start``, which raises ConfigError when the address cannot be reached.
    """

    def __init__(
        self, slots: int, spool: Spool, *, threads: int = 1, gpus: float = 0.0, address: str | None = None
    ) -> None:
        self.slots, self.threads, self.gpus = slots, threads, gpus
        self._spool = spool
        self._stopping = False
        self._running: list[_Slot] = []
        self._idle: list[Any] = []
        self._address = address

    def start(self) -> None:
        if ray.is_initialized():
            return
        self._connect(self._address)
        # All at once, so that workers import while the driver goes on proposing.
        self._idle = [self._new_actor() for _ in range(self.slots)]

    def _connect(self, address: str | None) -> None:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        # A worker without a GPU keeps its view of the devices as it is, instead of an empty one.
        os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
        quiet = {"logging_level": "error", "log_to_driver": False}
        if address is None:
            # Said outright: left out, Ray would join whatever cluster it finds running on this machine.
            ray.init(
                address="local",
                num_cpus=self.slots * self.threads,
                object_store_memory=SHARED_MEMORY,
                include_dashboard=False,
                **quiet,
            )
            return
        _check_answers(address)
        try:
            ray.init(address=address, **quiet)
        except (ConnectionError, RayError, ValueError, RuntimeError) as error:
            raise ConfigError(
                f"Ray cluster {address!r} cannot be reached: {str(error).splitlines()[0]}. "
                "A cluster that asks for a token needs RAY_AUTH_MODE=token, and its token in RAY_AUTH_TOKEN or "
                "~/.ray/auth_token."
            ) from error

    @property
    def running(self) -> int:
        return len(self._running)

    def submit(self, job: Job) -> None:
        actor = self._idle.pop() if self._idle else self._new_actor()
        stream = actor.run.options(num_returns="streaming").remote(job)
        self._running.append(_Slot(job, actor, stream))

    def _new_actor(self) -> Any:
        # Two threads: one streams a job, the other hears ``stop``. No restarts: a dead worker's job is leased anew.
        options = {"num_cpus": self.threads, "num_gpus": self.gpus, "max_concurrency": 2, "max_restarts": 0}
        return ray.remote(_Worker).options(**options).remote(str(self._spool.folder))

    def work(self, deliver: Deliver, timeout: float) -> None:
        if not self._running:
            return
        if self._stopping:
            for slot in self._running:
                slot.tell_to_stop()
        streams = [slot.stream for slot in self._running]
        ready, _ = ray.wait(streams, num_returns=1, timeout=timeout)
        if ready:
            ready, _ = ray.wait(streams, num_returns=len(streams), timeout=0)
        for slot in [s for s in self._running if any(s.stream is r for r in ready)]:
            self._receive(slot, deliver)

    def _receive(self, slot: _Slot, deliver: Deliver) -> None:
        try:
            record = ray.get(next(slot.stream))
        except StopIteration:
            self._end(slot, deliver, "its worker returned without a last record")
        except Exception as error:
            # Ray raises the job's own exception, or one of its many for a worker or node that died.
            slot.ended = None
            self._end(slot, deliver, f"{type(error).__name__}: {_first_line(error)}")
        else:
            if isinstance(record, Finished):
                # The stream's end follows; the driver hears of the ending once the slot is free.
                slot.ended = record.state
                self._end(slot, deliver, "", record)
            else:
                deliver(slot.job.lease, record)

    def _end(self, slot: _Slot, deliver: Deliver, cause: str, last: Record | None = None) -> None:
        self._running.remove(slot)
        if slot.ended in HEALTHY:
            self._idle.append(slot.actor)
        else:
            ray.kill(slot.actor)
        deliver(slot.job.lease, Lost(cause) if last is None else last)

    def stop(self) -> None:
        # Ray is not to be entered from a signal handler; ``work`` passes it on within its timeout.
        self._stopping = True

    def shutdown(self) -> None:
        if not ray.is_initialized():
            return
        for actor in (*self._idle, *(slot.actor for slot in self._running)):
            ray.kill(actor)
        self._idle, self._running = [], []
        ray.shutdown()


def _first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else "no message"


def _check_answers(address: str) -> None:
    """Raise ConfigError unless something listens at HOST:PORT: Ray itself would try for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdecimal():
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=ANSWER_S).close()
    except (OSError, OverflowError) as error:
        raise ConfigError(
            f"Ray cluster {address!r} cannot be reached: nothing answers at this address ({error})."
        ) from error
