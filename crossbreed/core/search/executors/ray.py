"""Jobs on a pool of Ray actors: reused while healthy, replaced after any fault, all gone after ``shutdown``."""

from __future__ import annotations

import logging
import time
from collections import deque
from dataclasses import dataclass, field
from typing import Any

import ray
from ray.exceptions import OutOfMemoryError, RayTaskError

from crossbreed.core.errors import ConfigError
from crossbreed.core.lab.job import Job
from crossbreed.core.lab.records import Finished
from crossbreed.core.search.executors.base import Deliver, Lost, Report, Spool, Taken
from crossbreed.core.search.executors.ray_cluster import connect
from crossbreed.core.search.executors.ray_worker import Seat, Worker
from crossbreed.core.search.executors.resources import Resources

HEALTHY = frozenset({"done", "off_budget", "preempted"})
"""Endings after which a worker is used again. Any other may have left its process in a bad state."""

FAILED_STARTS = 3
"""New workers that may fail in a row before the search ends: something is wrong with all of them."""

WAIT_S = 60.0
"""Jobs that wait for longer than this for a worker to start are spoken of."""

LOW_ON_MEMORY = "low on memory"
"""In Ray's own words for a worker that its memory monitor has killed."""

_log = logging.getLogger("crossbreed.search")


@dataclass(eq=False)
class _Member:
    """An actor of the pool: waiting to be ready, idle, or at a job whose records it streams.

    ``fresh`` until it was ready once; ``seat`` is where it was then. ``gpus``: its share of the GPUs.
    """

    actor: Any
    gpus: float = 0.0
    ready: Any = None
    job: Job | None = None
    stream: Any = None
    ended: str | None = None
    told: bool = False
    seat: Seat | None = None

    @property
    def fresh(self) -> bool:
        return self.seat is None

    def fits(self, job: Job) -> bool:
        """Whether it has what the job needs of a GPU; Ray counts them in ten-thousandths."""
        return job.gpus is None or self.gpus > job.gpus - 1e-4

    def tell_to_stop(self, why: str) -> None:
        if not self.told:
            self.told = True
            self.actor.stop.remote(why)


@dataclass(eq=False)
class RayExecutor:
    """At most ``slots`` workers on ``device``, of ``threads`` CPU threads each, with ``resources`` of the cluster.

    ``address`` None starts a local cluster for this process alone; otherwise an existing one is joined and left running.
    Nothing runs before ``start``, which raises ConfigError when the address cannot be reached. A job is given to a worker
    that has said it is ready; one whose worker cannot be started yet waits, and takes the next that becomes free.
    """

    slots: int
    spool: Spool
    device: str = "cpu"
    threads: int = 1
    resources: Resources = field(default_factory=Resources)
    address: str | None = None
    _stopping: bool = False
    _waiting: deque[Job] = field(default_factory=deque)
    _pool: list[_Member] = field(default_factory=list)
    _gone: list[Seat] = field(default_factory=list)
    _failed_starts: int = 0
    _waiting_since: float | None = None

    def start(self) -> None:
        if ray.is_initialized():
            return
        self.spool.mark()
        connect(self.address, self.slots * self.threads, self.resources.runtime_env)
        # All at once, so that workers import while the driver goes on proposing.
        self._pool = [self._new_member() for _ in range(self.slots)]

    @property
    def running(self) -> int:
        return len(self._waiting) + sum(member.job is not None for member in self._pool)

    def submit(self, job: Job) -> None:
        self._waiting.append(job)
        self._call_up()

    def work(self, deliver: Deliver, timeout: float) -> None:
        if not self.running:
            return
        if self._stopping:
            self._stop_all(deliver)
        self._call_up()
        refs = [member.stream or member.ready for member in self._pool if member.stream or member.ready]
        ready, _ = ray.wait(refs, num_returns=1, timeout=timeout)
        if ready:
            ready, _ = ray.wait(refs, num_returns=len(refs), timeout=0)
        for member in list(self._pool):
            if any(member.stream is ref for ref in ready):
                self._receive(member, deliver)
            elif any(member.ready is ref for ref in ready):
                self._take_on(member, deliver)
        self._speak_of_waiting()

    def kill(self, lease: str) -> None:
        for member in self._pool:
            if member.job is not None and member.job.lease == lease:
                self._dismiss(member)
                return
        self._waiting = deque(job for job in self._waiting if job.lease != lease)

    def refuse(self, lease: str, why: str) -> None:
        for member in self._pool:
            if member.job is not None and member.job.lease == lease:
                member.tell_to_stop(why)

    def stop(self) -> None:
        # Ray is not to be entered from a signal handler; ``work`` passes it on within its timeout.
        self._stopping = True

    def resume(self) -> None:
        self._stopping = False

    def shutdown(self) -> None:
        if not ray.is_initialized():
            return
        for member in self._pool:
            ray.kill(member.actor)
        self._pool = []
        self._waiting.clear()
        ray.shutdown()

    # The pool

    def _new_member(self, gpus: float | None = None) -> _Member:
        # Two threads: one streams a job, the other hears ``stop``. No restarts: a dead worker's job is leased anew.
        options = {"num_cpus": self.threads, "max_concurrency": 2, "max_restarts": 0}
        options |= self.resources.options(gpus)
        actor = ray.remote(Worker).options(**options).remote(self.spool.place.place, self.device)
        return _Member(actor, options["num_gpus"], actor.ready.remote(list(self._gone)))

    def _call_up(self) -> None:
        """Find a worker for every job that waits: one that was asked, an idle one, one that starts, or a new one where there is
        room. One that is to start may never find room: jobs do not wait for it while another is free.

        Where trials are packed, a worker that fits nothing that waits is ended while another one is to be started: what it
        holds of a GPU may be what that one lacks.
        """
        free = [member for member in self._pool if member.job is None]
        free.sort(key=lambda member: (member.fresh, member.ready is None, member.gpus))
        without, starting = [], False
        for job in self._waiting:
            member = next((m for m in free if m.fits(job)), None)
            if member is None:
                without.append(job)
                continue
            free.remove(member)
            starting = starting or member.fresh
            if member.ready is None:
                self._ask(member)
        packed = any(job.gpus is not None for job in self._waiting)
        for member in free if packed and (without or starting) else ():
            self._dismiss(member)
        for job in without:
            if self._room(job):
                self._pool.append(self._new_member(job.gpus))

    def _room(self, job: Job) -> bool:
        """Whether one more worker may be started: of the slots, and of the GPUs that they stand for."""
        if len(self._pool) >= self.slots:
            return False
        least = self.resources.gpus or 0.0
        wanted = least if job.gpus is None else job.gpus
        return sum(m.gpus for m in self._pool) + wanted < self.slots * least + 1e-3

    def _ask(self, member: _Member) -> None:
        member.ready = member.actor.ready.remote(list(self._gone))

    def _take_on(self, member: _Member, deliver: Deliver) -> None:
        """A worker has answered: give it the job that waits longest of those that it fits, or replace it if it is not fit for one."""
        try:
            member.seat = ray.get(member.ready)
        except Exception as error:
            if member.fresh:
                self._failed_starts += 1
                if self._failed_starts >= FAILED_STARTS:
                    raise ConfigError(
                        f"{self._failed_starts} Ray workers in a row could not be started: {_sentence(error)}"
                    ) from error
            self._dismiss(member)
            return
        self._failed_starts, member.ready = 0, None
        job = next((job for job in self._waiting if member.fits(job)), None)
        if job is not None:
            self._waiting.remove(job)
            member.job, member.ended, member.told = job, None, False
            member.stream = member.actor.run.options(num_returns="streaming").remote(job)
            deliver(job.lease, Taken())

    def _dismiss(self, member: _Member) -> None:
        self._pool.remove(member)
        ray.kill(member.actor)
        if member.seat is not None:
            self._gone = [*self._gone[-15:], member.seat]
            for other in self._pool:
                # Whoever was asked before does not wait for the one that is gone now.
                if other.ready is not None and not other.fresh:
                    self._ask(other)

    def _speak_of_waiting(self) -> None:
        """Say once in a while that no worker can be started: the cluster is full, smaller than asked for, or growing."""
        busy = any(member.job is not None for member in self._pool)
        if not self._waiting or busy:
            self._waiting_since = None
            return
        at = time.monotonic()
        if self._waiting_since is None:
            self._waiting_since = at
        elif at - self._waiting_since > WAIT_S:
            self._waiting_since = at
            wanted = self.resources.shown(self.threads)
            _log.warning("No worker has started for %.0f s: the cluster has no room for %s.", WAIT_S, wanted)

    # What jobs report

    def _stop_all(self, deliver: Deliver) -> None:
        for job in self._waiting:
            deliver(
                job.lease, Finished("preempted", f"run {job.key} was stopped before a worker had taken it")
            )
        self._waiting.clear()
        for member in self._pool:
            if member.job is not None:
                member.tell_to_stop("the search was asked to stop")

    def _receive(self, member: _Member, deliver: Deliver) -> None:
        assert member.job is not None
        lease = member.job.lease
        try:
            record = ray.get(next(member.stream))
        except StopIteration:
            self._end(member, deliver, lease, Lost("its worker returned without a last record"))
        except Exception as error:
            # Ray raises the job's own exception, or one of its many for a worker or node that died.
            member.ended = None
            self._end(member, deliver, lease, _lost(error))
        else:
            if isinstance(record, Finished):
                # The stream's end follows; the driver hears of the ending once the worker is free.
                member.ended = record.state
                self._end(member, deliver, lease, record)
            else:
                deliver(lease, record)

    def _end(self, member: _Member, deliver: Deliver, lease: str, last: Report) -> None:
        if member.ended in HEALTHY:
            member.job = member.stream = None
            # The answer comes while the driver stores the results and looks for the next job.
            self._ask(member)
        else:
            self._dismiss(member)
        deliver(lease, last)


def _lost(error: Exception) -> Lost:
    if isinstance(error, OutOfMemoryError) or LOW_ON_MEMORY in str(error):
        return Lost(_sentence(error), "out_of_memory")
    return Lost(_sentence(error), "preempted" if getattr(error, "preempted", False) else "lost")


def _sentence(error: BaseException) -> str:
    """The kind of an error and its first line; of a dead actor also what Ray says of its end."""
    cause = error.cause if isinstance(error, RayTaskError) and isinstance(error.cause, Exception) else error
    lines = [line.strip() for line in str(cause).splitlines() if line.strip()]
    ends = [line for line in lines[1:] if LOW_ON_MEMORY in line or ("node" in line and "died" in line)]
    words = " ".join([*lines[:1], *ends[:1]]) or "no message"
    # Ray goes on with what might have been the reason, and how it would be configured.
    return f"{type(cause).__name__}: {words.partition(' Some common causes')[0]}"
