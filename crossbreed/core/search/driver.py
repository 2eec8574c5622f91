"""The driver: the one process that proposes, queues, dispatches and stores. Workers only report to it.

Everything it decides follows from the tables, so a driver that dies is replaced by running the same command again: what
was leased goes back into the queue, what workers kept on disk is stored, and runs go on from their last checkpoint.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from crossbreed.core.errors import ArtefactsLost, DatabaseLost
from crossbreed.core.genome import Architecture
from crossbreed.core.search import agenda, taking_up, tuning
from crossbreed.core.search.agenda import Course, Item
from crossbreed.core.search.board import Board
from crossbreed.core.search.breeding import Breeder
from crossbreed.core.search.candidates import Candidate, Objectives
from crossbreed.core.search.dispatch import Fitting
from crossbreed.core.search.executors.base import Executor, Spool
from crossbreed.core.search.growth import GrowthLog
from crossbreed.core.search.halving import Halving
from crossbreed.core.search.hold import Hold
from crossbreed.core.search.intake import Intake
from crossbreed.core.search.interrupts import orderly
from crossbreed.core.search.jobs import Jobs
from crossbreed.core.search.orders import Order, Orders
from crossbreed.core.search.others import DRIVER, Others
from crossbreed.core.search.packing import Packing
from crossbreed.core.search.progress import Activity, Progress
from crossbreed.core.search.pruning import Pruner
from crossbreed.core.search.stopping import Limits, Stopping
from crossbreed.core.search.study_setting import StudySetting
from crossbreed.storage import Driver as Process
from crossbreed.storage import Repository
from crossbreed.storage.rows import SeedRow

POLL_S = 0.25
"""Longest wait for reports; also how fast a stop is noticed between reports."""
PROGRESS_S = 0.5
AHEAD = 4
"""Candidates proposed ahead for each of several workers, helpers' included: a pause of all costs about half a run of each."""
LOOK_S = 2.0
"""How often a driver looks at what helpers hold."""

End = Literal["done", "interrupted", "stopped", "out_of_time", "out_of_tokens"]


@dataclass(frozen=True)
class DriverOptions:
    """How this session runs, beside what the study file says."""

    device: str = "cpu"
    max_hours: float | None = None
    max_trials: int | None = None
    max_tokens: int | None = None
    named: tuple[Architecture, ...] = ()
    on_progress: Callable[[Progress], None] | None = None
    packing: Packing | None = None


class Driver:
    """Drives one study until its front has its seeds, time is up, or it is asked to stop."""

    def __init__(
        self,
        repository: Repository,
        study_id: int,
        setting: StudySetting,
        start_executor: Callable[[Spool], Executor],
        options: DriverOptions,
    ) -> None:
        self.repository, self.study_id, self.setting = repository, study_id, setting
        self.options = options
        self._start_executor = start_executor
        self.file, self.search = setting.file, setting.file.search
        rungs = len(setting.file.train.rung_tokens())
        objectives = Objectives.of(setting.file)
        course = Course(
            objectives.score_way, rungs, self.search.forced_rates, Fitting(repository, study_id, setting)
        )
        self.board = Board(repository, study_id, course, objectives)
        self.halving, self.pruner = Halving(self.board, setting), Pruner(self.board, setting)
        self.breeder = Breeder(repository, study_id, setting)
        self.growth = GrowthLog(repository, study_id)
        limits = Limits.of(
            self.search, hours=options.max_hours, trials=options.max_trials, tokens=options.max_tokens
        )
        self.stopping = Stopping(limits, repository, study_id)
        self.jobs = Jobs(
            repository,
            study_id,
            setting,
            self.board,
            Intake(repository, study_id, rungs, self.breeder),
            Spool.of(repository.artefacts, setting.file.name),
            options.device,
            Process.here(),
            DRIVER,
            self._show,
            options.packing,
        )
        self._reference: dict[str, float] = {}
        self.others = Others(repository, study_id)
        self.interrupted = False
        self._helped, self._ahead, self._looked_at = False, 0, 0.0
        self._profiling = False
        self._judged_again: set[int] = set()
        self._stopping = self._paused = self._ordered = False
        self._shown_at = 0.0

    def interrupt(self) -> None:
        """``request_stop`` by the user's wish."""
        self.interrupted = True
        self.request_stop()

    def request_stop(self) -> None:
        """Submit nothing more and let workers stop at their next step with a checkpoint. Safe in a signal handler."""
        self._stopping = True
        self.jobs.stop()

    def obey(self, order: Order) -> None:
        """Do what another process asked for: a pause leaves a checkpoint of every run, and the study held. Any thread."""
        if order == "stop":
            self._ordered = True
            self.request_stop()
            return
        self._paused = order == "pause"
        if self._paused:
            self.jobs.stop()
        elif not self._stopping:
            self.jobs.resume()

    def run(self) -> End:
        """Drive to the end. Raises StudyBusy when another driver holds the study, or has taken it over, and DatabaseLost or
        ArtefactsLost when the database or the store does not answer: workers have stopped then, with what they report in the spool.

        Ctrl-C once is ``request_stop``; twice raises KeyboardInterrupt at once, with everything reported so far stored.
        """
        with Hold(
            self.repository, self.study_id, self.file.name, self.jobs.leases, self.request_stop
        ) as hold:
            try:
                with (
                    orderly(self.interrupt, lambda: self._stopping),
                    Orders(self.repository, self.study_id, self.obey),
                ):
                    self._take_up()
                    self.jobs.start(self._start_executor)
                    return self._loop(hold)
            except (DatabaseLost, ArtefactsLost):
                self.jobs.drain()
                raise
            finally:
                self.jobs.shutdown()

    def _take_up(self) -> None:
        """Go on from what is stored, and add the reference to a new study."""
        taking_up.settle(self.repository, self.study_id, self.setting, self.jobs.spool, self.jobs.intake)
        rows = self.repository.candidates(self.study_id)
        self.breeder.recall(rows)
        if not any(row.origin == "reference" for row in rows):
            self.breeder.add_reference()
        for architecture in self.options.named:
            self.breeder.add_named(architecture)
        point = self.setting.hypervolume_reference(self.board.objectives)
        self._reference = self.repository.fix_reference_point(self.study_id, point)

    def _loop(self, hold: Hold) -> End:
        while True:
            self._look_at_others()
            self._refresh()
            self._show()
            wait = POLL_S
            if self._stopping:
                if not self.jobs.running:
                    if hold.fault is not None:
                        raise hold.fault
                    return "stopped" if self._ordered else "interrupted"
            # While the study is paused, what runs comes to its checkpoint and nothing else begins.
            elif not self._paused:
                if not self._fill() and not self._busy():
                    if self.stopping.halted is not None and self._work_left():
                        return "out_of_time" if self.stopping.halted == "max_hours" else "out_of_tokens"
                    return "done"
                if self.jobs.running and self._propose_ahead():
                    # What was reported meanwhile is stored before the next one.
                    wait = 0.0
            self.jobs.work(wait)

    def _look_at_others(self, *, now: bool = False) -> bool:
        """Whether helpers hold runs of the study; what dead ones held is queued again. Looks once in a while, or ``now``."""
        if now or time.monotonic() - self._looked_at > LOOK_S:
            self._looked_at = time.monotonic()
            leases = [lease for _, lease in self.jobs.leases()]
            living, taken = self.others.take_back(leases)
            # What was taken back waits again, so that a look that finds any is no end of the search.
            self._helped = bool(living or taken)
            self._ahead = self.others.slots()
            if self._helped:
                self.board.changed()
        return self._helped

    def _busy(self) -> bool:
        """Whether anybody works on the study, or did when the tables were read: a helper may have put its run back since."""
        if self.jobs.running or self._look_at_others(now=True):
            return True
        return self.board.read_again_if_held()

    @property
    def ended_by(self) -> str | None:
        """The rule that ended the session before the study was done, in a sentence."""
        rule = self.stopping.halted if self._work_left() else None
        rule = rule or self.stopping.winding_down
        if rule is None and self.breeder.exhausted is not None:
            return self.breeder.exhausted
        limits = self.stopping.limits
        if rule is None and limits.limited and not self._may_propose():
            rule = "max_trials"
        return None if rule is None else self.stopping.sentence(rule)

    def _refresh(self) -> None:
        while self.board.refresh():
            self.halving.update()
            self.growth.note(self.board, self._reference, self.jobs.pace.elapsed_s)
            self._end_unneeded()
            self.pruner.update()
        self.stopping.look(self.board, self.growth, self.jobs.pace.elapsed_s)

    def _end_unneeded(self) -> None:
        """End trained tuning runs whose architecture has a better setting: they need no timing."""
        for item in self.board.waiting():
            if item.need == "nothing":
                cause = tuning.off_budget(item.seed)
                state = "done" if cause is None else "off_budget"
                self.repository.set_run_state(item.seed.run_id, state, cause=cause)
                self.board.changed(item.row.number)

    # What to do next

    def _fill(self) -> bool:
        """Give free workers something to do; False when nothing is left but what is running."""
        while self.jobs.free:
            waiting = self._waiting()
            to_train = [i for i in waiting if i.need == "train" and self.halving.may_train(i)]
            to_time = self._to_time(waiting, training=bool(to_train))
            if to_time:
                # A model is timed with the device to itself: nothing else runs, neither training nor another profile.
                if not self.jobs.running:
                    if to_time[0].again:
                        self._judged_again.add(to_time[0].seed.run_id)
                    self.jobs.submit(to_time[0], once=lambda: not self.others.work_here())
                return True
            if self.stopping.halted is not None:
                return False
            if to_train:
                self.jobs.submit(to_train[0])
            elif self._may_propose():
                self._propose()
            elif self._busy():
                return True
            elif not self._close():
                return False
            self._refresh()
        return True

    def _propose(self) -> None:
        repeated = self.breeder.repeated
        self.breeder.add_next(
            self.board.rows, self.board.candidates, self.board.objectives, self.halving.standings
        )
        self.board.grown()
        if self.breeder.repeated > repeated:
            # One more seed of some candidate.
            self.board.changed()

    def _to_time(self, waiting: Sequence[Item], *, training: bool) -> list[Item]:
        """Runs to be timed now. Once begun, all that wait are timed, so that training pauses once for many of them.

        It begins when enough trained ones wait, or when nothing is left to train beside them: then candidates are proposed
        ahead and timed together before the first of them is trained.
        """
        previews = [] if self.stopping.halted is not None else [i for i in waiting if i.need == "preview"]
        trained = [i for i in waiting if i.need == "profile"] + self._to_judge_again()
        more = self._may_propose() and len(previews) < self._timed_together
        idle = self.stopping.halted is not None or not (training or more)
        if not previews and not trained:
            self._profiling = False
        elif idle or len(trained) >= self.search.profile_after:
            self._profiling = True
        return [*previews, *trained] if self._profiling else []

    def _to_judge_again(self) -> list[Item]:
        """Ended runs that lack points, each once a session."""
        if not self.setting.file.points:
            return []
        return [item for item in self.board.unjudged() if item.seed.run_id not in self._judged_again]

    @property
    def _timed_together(self) -> int:
        """Candidates that are proposed before the first of them is timed and trained."""
        slots = self.jobs.slots + self._ahead
        return self.search.ahead or (1 if slots == 1 else AHEAD * slots)

    def _propose_ahead(self) -> bool:
        """Propose one candidate more while all workers are at work; whether it did.

        Helpers get what they could begin now. Of several workers the last ones leave none idle that way: what is proposed
        while they train has not seen their results, as with any other runs beside each other.
        """
        if self._profiling or self.stopping.halted is not None or not self._may_propose():
            return False
        waiting = self._waiting()
        begins = [i for i in waiting if i.need == "train" and self.halving.may_train(i)]
        ready = len(begins) + sum(i.need == "preview" for i in waiting)
        wanted = self._ahead
        if not begins and self.jobs.slots > 1:
            wanted = max(wanted, self._timed_together)
        if ready >= wanted:
            return False
        self._propose()
        return True

    def _waiting(self) -> list[Item]:
        """Runs that wait, without those given to a worker since the tables were read."""
        given = self.jobs.run_ids()
        return [i for i in self.board.waiting() if i.seed.run_id not in given]

    def _work_left(self) -> bool:
        return bool(self._waiting()) or self._may_propose() or bool(self._wanted_seeds())

    def _wanted_seeds(self) -> list[tuple[Candidate, SeedRow, list[int]]]:
        settings = len(self.file.train.settings)
        wanted = agenda.wanted_seeds(self.board.candidates, self.search.seeds, settings)
        return [found for found in wanted if self.breeder.can_build(found[0].row)]

    def _may_propose(self) -> bool:
        if self.stopping.winding_down is not None or self.breeder.exhausted is not None:
            return False
        return self.board.proposed() + self.breeder.repeated < self.stopping.limits.trials

    def _close(self) -> bool:
        """Nothing waits and nothing runs: let the best of each rung go on, prune the rest, then confirm the front."""
        at_rungs = [i for i in self._waiting() if i.need == "train"]
        if at_rungs:
            self.halving.close(at_rungs)
            return True
        wanted = self._wanted_seeds()
        for candidate, chosen, seeds in wanted:
            for seed in seeds:
                self.breeder.add_report(candidate.row, chosen, seed)
            self.board.changed(candidate.row.number)
        return bool(wanted) or self.pruner.reprieve()

    # What a view sees

    def _show(self) -> None:
        if self.options.on_progress is None or time.monotonic() - self._shown_at < PROGRESS_S:
            return
        self._shown_at = time.monotonic()
        self.options.on_progress(self.progress())

    def progress(self, activity: Activity | None = None) -> Progress:
        """The search as it stands."""
        states = self.repository.run_states(self.study_id)
        named = sum(row.origin == "named" for row in self.board.rows)
        proposed, limit = named + self.board.proposed(), self.stopping.limits.trials + named
        if activity is None:
            activity = (
                "stopping"
                if self._stopping
                else "paused"
                if self._paused
                else "profiling"
                if self._profiling
                else "training"
            )
        return Progress(
            activity=activity,
            states=states,
            trials=proposed,
            trial_limit=limit,
            infeasible=sum(row.state == "infeasible" for row in self.board.rows),
            candidates=tuple(self.board.candidates),
            running=self.jobs.keys(),
            waiting=tuple(self.jobs.pace.waiting.values()),
            tokens_per_s=self.jobs.pace.tokens_per_s(),
            elapsed_s=self.jobs.pace.elapsed_s,
            eta_s=self.jobs.pace.eta_s(self._jobs_left(states, limit - proposed), self.jobs.slots),
            hypervolume=self.growth.changes[-1].hypervolume if self.growth.changes else 0.0,
        )

    def _jobs_left(self, states: Mapping[str, int], unproposed: int) -> int:
        """Jobs until the end, about: two for each run (train, profile), and fresh seeds for a front as it is now."""
        open_runs = sum(states.get(s, 0) for s in ("queued", "leased", "running", "preempted"))
        seeds = sum(len(missing) for _, _, missing in self._wanted_seeds())
        return 2 * (open_runs + seeds + max(0, unproposed))
