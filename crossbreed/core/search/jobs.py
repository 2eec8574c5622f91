"""The jobs that are with workers: leased, handed over, their reports stored, and ended when their workers do not come back."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from crossbreed.core.errors import NotFinite
from crossbreed.core.lab.job import Job
from crossbreed.core.lab.records import Finished, Record, Started, Waiting
from crossbreed.core.search.agenda import Item
from crossbreed.core.search.board import Board
from crossbreed.core.search.deadlines import Deadlines
from crossbreed.core.search.dispatch import job_for, settled
from crossbreed.core.search.executors.base import Executor, Lost, Report, Spool, Taken
from crossbreed.core.search.hold import RUN_LEASE_S
from crossbreed.core.search.intake import Intake, run_folder
from crossbreed.core.search.others import TIMER
from crossbreed.core.search.packing import Packing
from crossbreed.core.search.progress import Pace
from crossbreed.core.search.study_setting import StudySetting
from crossbreed.storage import Driver as Process
from crossbreed.storage import Repository

DRAIN_S = 30.0
"""Longest wait for workers to stop by themselves while the database is away."""
DRAIN_POLL_S = 0.25
ENDINGS = {"lost": "lost", "out_of_memory": "out_of_memory"}
"""How a run ends whose workers went that way again and again."""


@dataclass
class _Active:
    """A job with a worker, or on its way to one; ``since`` is when it last came a step further, None before it began and
    while it waits for its device."""

    item: Item
    job: Job
    folder: str
    flops_per_token: float
    begun: float = field(default_factory=time.monotonic)
    since: float | None = None
    started: bool = False
    refused: bool = False


@dataclass
class Jobs:
    """What one process has given to its executor for one study. Its leases are signed by ``here`` as ``role``."""

    repository: Repository
    study_id: int
    setting: StudySetting
    board: Board
    intake: Intake
    spool: Spool
    device: str
    here: Process
    role: str
    on_record: Callable[[], None] = lambda: None
    packing: Packing | None = None
    pace: Pace = field(default_factory=Pace)
    executor: Executor | None = None
    _active: dict[str, _Active] = field(default_factory=dict)
    _held_back: tuple[Job, Callable[[], bool]] | None = None
    _stopping: bool = False

    def __post_init__(self) -> None:
        self._deadlines = Deadlines(self.setting)

    def start(self, start_executor: Callable[[Spool], Executor]) -> None:
        self.executor = start_executor(self.spool)

    def stop(self) -> None:
        """Let workers stop at their next step with a checkpoint. Safe in a signal handler."""
        self._stopping = True
        if self.executor is not None:
            self.executor.stop()

    def resume(self) -> None:
        """Let workers take jobs again."""
        self._stopping = False
        if self.executor is not None:
            self.executor.resume()

    def shutdown(self) -> None:
        if self.executor is not None:
            self.executor.shutdown()

    @property
    def running(self) -> int:
        return self._started().running + (self._held_back is not None)

    @property
    def slots(self) -> int:
        return self._started().slots

    @property
    def free(self) -> bool:
        return self.running < self.slots

    def keys(self) -> tuple[str, ...]:
        """study/number/seed of every job."""
        return tuple(active.job.key for active in self._active.values())

    def run_ids(self) -> set[int]:
        return {active.item.seed.run_id for active in self._active.values()}

    def leases(self) -> list[tuple[int, str]]:
        """Run id and lease of every job."""
        return [(active.item.seed.run_id, lease) for lease, active in list(self._active.items())]

    def submit(
        self,
        item: Item,
        *,
        once: Callable[[], bool] | None = None,
        unless: Callable[[], bool] | None = None,
    ) -> bool:
        """Lease a run and give it to the executor; False when somebody else was faster.

        Both conditions are asked with the lease in the tables, where others see it. ``once``: of a job that needs
        its device alone; the executor gets it when that holds. ``unless``: if it holds the lease is given back, and False returned.
        """
        run_id, executor = item.seed.run_id, self._started()
        executor.start()
        # Where nothing can be kept nothing is begun: no run is to end for it.
        self.repository.artefacts.reach()
        signature = self.here.signature(self.role if once is None else TIMER)
        with self.repository.batch():
            if item.again:
                # Its last lease stays its own: an ended run is added to, not taken up.
                lease = self.repository.run(run_id).lease
            else:
                lease = self.repository.lease_run(run_id, signature, seconds=RUN_LEASE_S)
            trial, run = self.repository.trial(self.study_id, item.row.number), self.repository.run(run_id)
            siblings = self.repository.runs(self.study_id, number=item.row.number)
        if lease is None:
            self.board.changed(item.row.number)
            return False
        if unless is not None and unless():
            self.repository.release_run(run_id, lease)
            self.board.changed()
            return False
        folder = run_folder(self.setting.file.name, item.row.number, item.seed.seed)
        place = self.repository.artefacts.under(folder).place
        judged = self.board.course.points(trial.number)
        job = job_for(item, trial, run, lease, place, self.setting, self.device, judged)
        job = replace(job, speeds=settled(siblings))
        if self.packing is not None and "train" in job.phases:
            job = replace(job, gpus=self.packing.of(trial, self.setting))
        flops = float((trial.ledger or {}).get("training_flops_per_token") or 0.0)
        self._active[lease] = _Active(item, job, folder, flops)
        self.board.given(item.row.number)
        if once is None or once():
            executor.submit(job)
        else:
            self._held_back = (job, once)
        return True

    def work(self, timeout: float) -> None:
        """Store what jobs report, and end those that are overdue; returns after the first reports or ``timeout`` seconds."""
        if self._held_back is not None:
            job, once = self._held_back
            if self._stopping:
                self._held_back = None
                cause = f"run {job.key} was stopped before a worker had taken it"
                self._receive(job.lease, Finished("preempted", cause))
            elif once():
                self._held_back = None
                self._started().submit(job)
        executor = self._started()
        if executor.running:
            executor.work(self._receive, timeout)
        else:
            # Nothing to wait for here: a helper's run, or the end of one.
            time.sleep(timeout)
        self._end_overdue()

    def drain(self) -> None:
        """Let workers stop with a checkpoint while the database is away: what they report is in the spool."""
        if self.executor is None:
            return
        self.stop()
        deadline = time.monotonic() + DRAIN_S
        while self.executor.running and time.monotonic() < deadline:
            self.executor.work(lambda lease, report: None, DRAIN_POLL_S)

    def _started(self) -> Executor:
        if self.executor is None:
            raise RuntimeError("the executor is started by run()")
        return self.executor

    def _receive(self, lease: str, report: Report) -> None:
        active = self._active.get(lease)
        if active is None:
            # Of a job that was ended here while its last words were on their way.
            return
        if isinstance(report, Lost):
            self._lost(active, report)
        elif isinstance(report, Taken):
            active.since = time.monotonic()
        elif self._store(active, report):
            active.started = True
            self._deadlines.heard(active.job, report, time.monotonic() - active.begun)
            if isinstance(report, Waiting):
                active.since = None
            elif self._deadlines.is_step(report):
                active.since = time.monotonic()
            if isinstance(report, Finished):
                self._forget(lease)
            else:
                tokens = self.setting.file.train.batch * self.setting.task.length
                self.pace.heard(lease, report, tokens)
                self.on_record()

    def _store(self, active: _Active, record: Record) -> bool:
        """Store a record; False when that ended the job, because no front could hold what it says."""
        run_id, lease = active.item.seed.run_id, active.job.lease
        if active.item.again and isinstance(record, Started | Finished):
            # Where it was trained, and how that ended, is not for this job to say.
            if isinstance(record, Finished) and record.state != "done":
                self._tell("points_left_out", active, record.cause)
            return True
        try:
            taken = self.intake.take(run_id, active.item.row.number, active.folder, lease, record)
        except NotFinite as error:
            self._end(lease, f"non_finite: {error}")
            return False
        if not taken and not active.refused:
            active.refused = True
            self._refuse(active)
        return True

    def _refuse(self, active: _Active) -> None:
        """Tell a late worker what has become of its run."""
        run = self.repository.run(active.item.seed.run_id)
        now = f"is held by {run.worker} now" if run.state in ("leased", "running") else f"is {run.state} now"
        why = (
            f"Records of run {run.key} under lease {active.job.lease} are refused: the lease is stale, and the run {now}. "
            "The worker stops; what it had stored before stays."
        )
        self._started().refuse(active.job.lease, why)
        self._tell("record_refused", active, why)

    def _lost(self, active: _Active, lost: Lost) -> None:
        """Store what the dead worker had written down, then queue the run again, or give it up."""
        run_id, lease = active.item.seed.run_id, active.job.lease
        kept: Iterable[Record] = self.spool.read(lease)
        self.intake.take_all(run_id, active.item.row.number, active.folder, lease, kept)
        if active.item.again:
            self._tell("points_left_out", active, lost.cause)
        elif lost.how == "preempted":
            self.repository.record_finished(run_id, lease, "preempted", cause=lost.cause)
        else:
            self.repository.lose_run(run_id, lease, lost.cause, ending=ENDINGS[lost.how])
        self._tell("worker_lost", active, lost.cause)
        self._forget(lease)

    def _end_overdue(self) -> None:
        now = time.monotonic()
        for lease, active in list(self._active.items()):
            if active.since is None:
                continue
            allowed = self._deadlines.seconds(active.flops_per_token, started=active.started)
            if now - active.since > allowed:
                self._end(
                    lease,
                    f"deadline: nothing was finished for {allowed:.0f} s; search.deadline_s sets the limit",
                )

    def _end(self, lease: str, cause: str) -> None:
        """End a job and its worker with a failure of the run's own."""
        active = self._active[lease]
        self._started().kill(lease)
        if active.item.again:
            self._tell("points_left_out", active, cause)
        else:
            self.repository.record_finished(active.item.seed.run_id, lease, "failed", cause=cause)
        self._forget(lease)

    def _forget(self, lease: str) -> None:
        active = self._active.pop(lease)
        self.spool.discard(lease)
        self.pace.ended(lease, time.monotonic() - active.begun)
        self.board.changed(active.item.row.number)

    def _tell(self, kind: str, active: _Active, cause: str) -> None:
        payload = {"trial": active.item.row.number, "seed": active.item.seed.seed, "cause": cause}
        self.repository.add_event(self.study_id, kind, payload)
