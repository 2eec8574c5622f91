"""Runs: one seed of a trial each. Who may write about a run is whoever holds its lease.

A run is leased to a worker, comes back in order (a rung done, a phase done), ends, or is taken from a dead worker.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from functools import cache
from typing import Any, Literal

from sqlalchemy import Select, Update, bindparam, case, func, or_, select, update
from sqlalchemy.orm import Session

from crossbreed.core.errors import ConfigError, StorageError, UnknownName
from crossbreed.storage import plain, schema
from crossbreed.storage.database import Database
from crossbreed.storage.rows import RunRow
from crossbreed.storage.states import ENDED, check_state, following, refusal
from crossbreed.storage.studies import now
from crossbreed.storage.trials import missing_trial
from crossbreed.storage.upsert import insert_missing

MAX_ATTEMPTS = 3
"""Leases a run may lose in a row before it is given up as lost."""

HELD = ("leased", "running")
Role = Literal["tune", "report"]


class Runs:
    """The part of the repository about runs, their leases and their states."""

    database: Database

    def add_run(
        self,
        trial_id: int,
        seed: int,
        *,
        recipe: Any,
        identities: Mapping[str, str],
        role: Role = "tune",
    ) -> RunRow:
        """Queue one seed of a trial; the run that is there already is returned as it is."""
        at = now()
        row = {
            "trial_id": trial_id,
            "seed": seed,
            "role": role,
            "state": "queued",
            "attempts": 0,
            "rungs_done": 0,
            "recipe": plain.plain(recipe),
            "identities": plain.plain(identities),
            "created_at": at,
            "updated_at": at,
        }
        with self.database.writing() as session:
            insert_missing(session, schema.Run, row, ["trial_id", "seed"])
            query = select(schema.Run).where(schema.Run.trial_id == trial_id, schema.Run.seed == seed)
            run = session.scalars(query).one()
            follow_tuning(session, run)
            return run_rows(session, run_query().where(schema.Run.id == run.id))[0]

    def lease_run(self, run_id: int, worker: str, *, seconds: float) -> str | None:
        """Lease a queued or preempted run to ``worker``; returns the token its records must carry.

        None when somebody else was faster or the run has ended.
        """
        with self.database.writing() as session:
            run = locked_run(session, run_id)
            if run.state not in ("queued", "preempted"):
                return None
            run.lease, run.worker = uuid.uuid4().hex, worker
            run.lease_expires_at = now() + timedelta(seconds=seconds)
            run.attempts += 1
            become(session, run, "leased")
            return run.lease

    def renew_lease(self, run_id: int, lease: str, *, seconds: float) -> bool:
        """Keep a lease for ``seconds`` more; False when the run is not held under it any more."""
        with self.database.writing() as session:
            run = locked_run(session, run_id)
            if run.lease != lease or run.state not in HELD:
                return False
            run.lease_expires_at = now() + timedelta(seconds=seconds)
            return True

    def release_run(self, run_id: int, lease: str) -> bool:
        """Put a run back into the queue in order, as between two rungs; False when ``lease`` is stale.

        Late records under this lease are accepted until the run is leased again.
        """
        with self.database.writing() as session:
            run = locked_run(session, run_id)
            if run.lease != lease:
                return False
            if run.state in HELD:
                become(session, run, "queued", orderly=True)
            return True

    def lose_run(self, run_id: int, lease: str, cause: str, *, ending: str = "lost") -> bool:
        """Take a run from a worker that died: queued again, or ended as ``ending`` after MAX_ATTEMPTS leases.

        False when ``lease`` is stale or the run is back already.
        """
        with self.database.writing() as session:
            run = locked_run(session, run_id)
            if run.lease != lease or run.state not in HELD:
                return False
            run.lease = None
            _give_up_or_queue(session, run, cause, ending)
            return True

    def requeue_expired(
        self, study_id: int, *, at: datetime | None = None, everything: bool = False
    ) -> list[RunRow]:
        """Take runs from workers whose lease has expired: queued again, or ``lost`` after MAX_ATTEMPTS leases.

        ``everything`` takes all leased runs, as after the driver that owned the workers died. Returns those changed.
        """
        query = select(schema.Run).join(schema.Trial).where(schema.Trial.study_id == study_id)
        query = query.where(schema.Run.state.in_(HELD)).with_for_update(of=schema.Run)
        if not everything:
            query = query.where(schema.Run.lease_expires_at < (at or now()))
        with self.database.writing() as session:
            taken = session.scalars(query).all()
            for run in taken:
                run.lease = None
                _give_up_or_queue(session, run, f"worker {run.worker} died or fell silent", "lost")
            session.flush()
            return run_rows(session, run_query().where(schema.Run.id.in_([run.id for run in taken])))

    def set_run_state(
        self, run_id: int, state: str, *, cause: str | None = None, traceback: str | None = None
    ) -> None:
        """Move a run by the driver's own decision, such as pruning it. Its lease, if any, becomes stale.

        Raises StorageError when ``state`` cannot follow the present one.
        """
        with self.database.writing() as session:
            run = locked_run(session, run_id)
            become(session, run, state, cause, traceback, orderly=True)
            run.lease = None

    def run(self, run_id: int) -> RunRow:
        with self.database.reading() as session:
            rows = run_rows(session, run_query().where(schema.Run.id == run_id))
            if not rows:
                raise StorageError(f"there is no run with id {run_id}.")
            return rows[0]

    def runs(
        self, study_id: int, states: Sequence[str] | None = None, *, number: int | None = None
    ) -> list[RunRow]:
        """Runs of a study by trial number and seed; only those in ``states``, or of trial ``number``, if given."""
        query = run_query().where(schema.Trial.study_id == study_id)
        if number is not None:
            query = query.where(schema.Trial.number == number)
        if states is not None:
            query = query.where(schema.Run.state.in_(states))
        with self.database.reading() as session:
            return run_rows(session, query.order_by(schema.Trial.number, schema.Run.seed))

    def run_by_key(self, key: str) -> RunRow:
        """The run study/number/seed. Raises ConfigError for another form, UnknownName when a part does not exist."""
        match = re.fullmatch(r"([^/]+)/(\d{1,9})/(\d{1,9})", key)
        if match is None:
            raise ConfigError(f"run {key!r} breaks the rule: study/number/seed, such as quickstart/3/0.")
        name, number, seed = match[1], int(match[2]), int(match[3])
        with self.database.reading() as session:
            names = session.scalars(select(schema.Study.name)).all()
            if name not in names:
                raise UnknownName("study", name, names)
            query = run_query().where(schema.Study.name == name, schema.Trial.number == number)
            rows = run_rows(session, query.order_by(schema.Run.seed))
            found = [row for row in rows if row.seed == seed]
            if not rows:
                study = session.scalars(select(schema.Study.id).where(schema.Study.name == name)).one()
                raise ConfigError(f"run {key!r} does not exist: {missing_trial(session, study, number)}")
            if not found:
                raise UnknownName("run", key, [row.key for row in rows])
            return found[0]

    def run_states(self, study_id: int) -> dict[str, int]:
        """How many runs of a study are in each state that occurs."""
        query = select(schema.Run.state, func.count()).join(schema.Trial)
        query = query.where(schema.Trial.study_id == study_id).group_by(schema.Run.state)
        with self.database.reading() as session:
            return {row[0]: row[1] for row in session.execute(query)}


def _give_up_or_queue(session: Session, run: schema.Run, cause: str, ending: str) -> None:
    if run.attempts >= MAX_ATTEMPTS:
        become(session, run, ending, f"{cause}; {run.attempts} leases in a row were lost")
    else:
        become(session, run, "queued")


def locked_run(session: Session, run_id: int) -> schema.Run:
    """The run's row, locked until the transaction ends. Raises StorageError when there is none."""
    # Nobody else can have changed a row that this transaction has locked already, so it is read once.
    locked: dict[int, schema.Run] = session.info.setdefault("locked_runs", {})
    if run_id not in locked:
        run = session.scalars(_LOCKED, {"run": run_id}).one_or_none()
        if run is None:
            raise StorageError(f"there is no run with id {run_id}.")
        locked[run_id] = run
    return locked[run_id]


def touch(run: schema.Run) -> datetime:
    """Mark a locked run as changed now; the time. Every write about a run does, so that readers find it."""
    run.updated_at = now()
    run.revision += 1
    return run.updated_at


def touch_held(session: Session, run_id: int, lease: str | None) -> bool:
    """Mark a run as changed now without reading it; False when ``lease`` is not its present one (None: it has none).

    It is locked until the transaction ends. Raises StorageError when there is no such run.
    """
    # What was locked before may have changes of its own, not yet written, and goes on from them.
    if run_id not in session.info.get("locked_runs", ()):
        changed = session.connection().execute(_TOUCHED, {"run": run_id, "held": lease, "at": now()})
        if changed.rowcount:
            return True
    run = locked_run(session, run_id)
    if run.lease != lease:
        return False
    touch(run)
    return True


def become(
    session: Session,
    run: schema.Run,
    state: str,
    cause: str | None = None,
    traceback: str | None = None,
    *,
    orderly: bool = False,
) -> None:
    """Move a run to ``state`` if that may follow, with its times and its trial; ``orderly``: no lease of it was lost."""
    check_state(state)
    if state != run.state and state not in following(run.state):
        raise refusal(run_key(session, run), run.state, state)
    at = touch(run)
    run.state, run.cause, run.traceback = state, cause or None, traceback or None
    if state not in HELD:
        run.lease_expires_at = None
    run.finished_at = at if state in ENDED else None
    if state == "running" and run.started_at is None:
        run.started_at = at
    if orderly:
        run.attempts = 0
    follow_tuning(session, run)


def follow_tuning(session: Session, run: schema.Run) -> None:
    """A trial has the state of that tuning run of its which went furthest; report runs do not change it.

    A setting that diverged is one of several: only where all have failed has the trial.
    """
    if run.role != "tune":
        return
    session.flush()
    session.connection().execute(_FOLLOWED, {"followed": run.trial_id})


def _followed() -> Update:
    """The statement that brings a trial level with its tuning runs where it is not; the trial need not be read for that."""
    trial, run = schema.Trial, schema.Run
    furthest = (
        select(run.state, run.cause)
        .where(run.trial_id == bindparam("followed"), run.role == "tune")
        .order_by(case(_FURTHEST, value=run.state, else_=len(_FURTHEST)), run.id)
        .limit(1)
        .subquery()
    )
    state, cause = furthest.c.state, furthest.c.cause
    stale = or_(trial.state != state, trial.cause.is_distinct_from(cause))
    return update(trial).where(trial.id == bindparam("followed"), stale).values(state=state, cause=cause)


_ORDER = ("running", "leased", "queued", "preempted", "done", "off_budget", "pruned")
_FURTHEST = {state: place for place, state in enumerate(_ORDER)}
"""Place of a tuning run's state: at work, then waiting, then how well it ended; all others come after these."""

# What most records need is put together once: that takes longer than SQLite needs to run it.
_FOLLOWED = _followed()
_LOCKED = (
    select(schema.Run)
    .where(schema.Run.id == bindparam("run"))
    .with_for_update()
    # What this transaction read before the lock may be older than the row that it locks.
    .execution_options(populate_existing=True)
)
_TOUCHED = (
    update(schema.Run)
    .where(schema.Run.id == bindparam("run"), schema.Run.lease.is_not_distinct_from(bindparam("held")))
    .values(revision=schema.Run.revision + 1, updated_at=bindparam("at"))
)


def run_key(session: Session, run: schema.Run) -> str:
    query = select(schema.Study.name, schema.Trial.number).join_from(schema.Trial, schema.Study)
    name, number = session.execute(query.where(schema.Trial.id == run.trial_id)).one()
    return f"{name}/{number}/{run.seed}"


@cache
def run_query() -> Select[schema.Run, int, int, str]:
    query = select(schema.Run, schema.Trial.number, schema.Study.id, schema.Study.name)
    # Not every write goes through the session's own objects, so that these are read anew.
    query = query.execution_options(populate_existing=True)
    return query.join_from(schema.Run, schema.Trial).join(schema.Study)


def run_rows(session: Session, query: Select[schema.Run, int, int, str]) -> list[RunRow]:
    return [
        RunRow(
            id=run.id,
            key=f"{name}/{number}/{run.seed}",
            study_id=study_id,
            trial_id=run.trial_id,
            number=number,
            seed=run.seed,
            role=run.role,
            state=run.state,
            cause=run.cause,
            traceback=run.traceback,
            attempts=run.attempts,
            lease=run.lease,
            worker=run.worker,
            lease_expires_at=run.lease_expires_at,
            rungs_done=run.rungs_done,
            recipe=run.recipe,
            identities=run.identities,
            environment=run.environment,
            created_at=run.created_at,
            started_at=run.started_at,
            finished_at=run.finished_at,
            updated_at=run.updated_at,
        )
        for run, number, study_id, name in session.execute(query)
    ]
