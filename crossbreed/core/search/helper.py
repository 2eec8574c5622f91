"""A helper: a second process that trains what waits in a study that another one drives, here or on another host."""

from __future__ import annotations

import time
from collections.abc import Callable

from crossbreed.core.errors import ConfigError
from crossbreed.core.search.agenda import Course, Item
from crossbreed.core.search.board import Board
from crossbreed.core.search.breeding import Breeder
from crossbreed.core.search.candidates import Objectives
from crossbreed.core.search.dispatch import Fitting
from crossbreed.core.search.driver import POLL_S, DriverOptions, End
from crossbreed.core.search.executors.base import Executor, Spool
from crossbreed.core.search.halving import Halving
from crossbreed.core.search.hold import Pulse
from crossbreed.core.search.intake import Intake
from crossbreed.core.search.interrupts import orderly
from crossbreed.core.search.jobs import Jobs
from crossbreed.core.search.orders import paused
from crossbreed.core.search.others import HELP, HELPER, timed_here
from crossbreed.core.search.study_setting import StudySetting
from crossbreed.storage import Driver as Process
from crossbreed.storage import Repository
from crossbreed.storage.drivers import DriverRow
from crossbreed.storage.studies import now

LOOK_S = 1.0
"""How often a helper with nothing to do looks at the study."""


class Helper:
    """Leases runs of a driven study, trains and judges them through an executor of its own, and stores what they report.

    It proposes nothing, prunes nothing and times nothing: speeds are the driver's device's, and while the driver times on
    this host the helper begins nothing. It ends when the driver has ended.
    """

    def __init__(
        self,
        repository: Repository,
        study_id: int,
        setting: StudySetting,
        start_executor: Callable[[Spool], Executor],
        options: DriverOptions,
    ) -> None:
        self.repository, self.study_id, self.setting = repository, study_id, setting
        self._start_executor, self._max_hours = start_executor, options.max_hours
        self.here = Process.here()
        rungs = len(setting.file.train.rung_tokens())
        objectives = Objectives.of(setting.file)
        course = Course(
            objectives.score_way,
            rungs,
            setting.file.search.forced_rates,
            Fitting(repository, study_id, setting),
        )
        self.board = Board(repository, study_id, course, objectives)
        self.halving = Halving(self.board, setting)
        self.jobs = Jobs(
            repository,
            study_id,
            setting,
            self.board,
            Intake(repository, study_id, rungs, Breeder(repository, study_id, setting)),
            Spool.of(repository.artefacts, setting.file.name),
            options.device,
            self.here,
            HELPER,
            packing=options.packing,
        )
        self._stopping = False
        self._looked_at = 0.0

    def request_stop(self) -> None:
        """Begin nothing more and let workers stop at their next step with a checkpoint. Safe in a signal handler."""
        self._stopping = True
        self.jobs.stop()

    def run(self) -> End:
        """Help until the driver has ended. Raises ConfigError when nobody drives the study."""
        if self._driver() is None:
            raise ConfigError(
                f"study {self.setting.file.name!r} is not being driven, so there is nobody to help; run this without --join."
            )
        jobs = self.jobs
        with Pulse(
            self.repository, self.study_id, self.setting.file.name, jobs.leases, self.request_stop
        ) as pulse:
            try:
                with orderly(self.request_stop, lambda: self._stopping):
                    jobs.start(self._start_executor)
                    self._offer(jobs.slots)
                    return self._loop(pulse)
            finally:
                jobs.shutdown()
                self._offer(0)

    def _offer(self, slots: int) -> None:
        self.repository.add_event(
            self.study_id, HELP, {"helper": self.here.signature(HELPER), "slots": slots}
        )

    def _loop(self, pulse: Pulse) -> End:
        while True:
            if self._stopping and not self.jobs.running:
                if pulse.fault is not None:
                    raise pulse.fault
                return "interrupted"
            if not self._stopping:
                driven = self._begin()
                if not self.jobs.running and not driven:
                    return "out_of_time" if self._out_of_time else "done"
            self.jobs.work(POLL_S)

    @property
    def _out_of_time(self) -> bool:
        return self._max_hours is not None and self.jobs.pace.elapsed_s > 3600 * self._max_hours

    def _begin(self) -> bool:
        """Give free workers what waits; False when there is nobody to help any more."""
        if time.monotonic() - self._looked_at < LOOK_S:
            return True
        self._looked_at = time.monotonic()
        driver = self._driver()
        if self._out_of_time or driver is None:
            return False
        if paused(self.repository, self.study_id, driver):
            return True
        self._look()
        for item in self._waiting():
            if not self.jobs.free or not self.jobs.submit(item, unless=self._timed_here):
                break
        return True

    def _look(self) -> None:
        self.board.changed()
        if self.board.refresh():
            self.halving.update()

    def _waiting(self) -> list[Item]:
        given = self.jobs.run_ids()
        waiting = [item for item in self.board.waiting() if item.seed.run_id not in given]
        return [item for item in waiting if item.need == "train" and self.halving.may_train(item)]

    def _timed_here(self) -> bool:
        """Whether the driver times a model on this host, or is about to."""
        return timed_here(self.repository, self.study_id, self.here)

    def _driver(self) -> DriverRow | None:
        """Who drives the study, None when nobody does."""
        row = self.repository.driver(self.study_id)
        if row is None or row.driver.certainly_dead():
            return None
        return row if row.driver.host == self.here.host or row.expires_at > now() else None
