"""Jobs in this process, one at a time: for notebooks, debugging and machines without Ray."""

from __future__ import annotations

import logging
from functools import partial

from crossbreed.core.lab import trial
from crossbreed.core.lab.job import Job
from crossbreed.core.lab.team import MemberLost
from crossbreed.core.search.executors.base import Deliver, Lost

_log = logging.getLogger("crossbreed.search")


class InlineExecutor:
    """Runs the submitted job inside ``work``; its records are delivered as they come, so nothing needs a spool.

    Jobs submitted after a stop end at their first step, until ``resume``.
    """

    slots = 1

    def __init__(self) -> None:
        self._job: Job | None = None
        self._stopping = False
        self._given_up = False

    @property
    def running(self) -> int:
        return 0 if self._job is None else 1

    def start(self) -> None:
        """This process is ready."""

    def submit(self, job: Job) -> None:
        if self._job is not None:
            raise RuntimeError(f"run {self._job.key} is still to be worked on")
        self._job, self._given_up = job, False

    def work(self, deliver: Deliver, timeout: float) -> None:
        job = self._job
        if job is None:
            return
        try:
            trial.run(job, partial(deliver, job.lease), lambda: self._stopping or self._given_up)
        except MemberLost as error:
            deliver(job.lease, Lost(str(error)))
        finally:
            self._job = None

    def kill(self, lease: str) -> None:
        """This process cannot end without the search: the job stops at its next step, and what it reports is not taken."""
        self._given_up = True

    def refuse(self, lease: str, why: str) -> None:
        _log.warning(why)
        self._given_up = True

    def stop(self) -> None:
        self._stopping = True

    def resume(self) -> None:
        self._stopping = False

    def shutdown(self) -> None:
        self._stopping = True
