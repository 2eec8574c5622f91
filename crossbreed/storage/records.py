"""Storing what workers report. Every record carries its lease: one from a stale lease is refused by returning False.

All writes are keyed (run and rung, run and step, operating point and key), so a record that is sent again after a
lost acknowledgement changes nothing. ``Repository.batch`` puts many into one transaction.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from sqlalchemy import bindparam, delete, select
from sqlalchemy.orm import Session

from crossbreed.core.artefacts import confined
from crossbreed.core.errors import NotFinite, StorageError
from crossbreed.storage import plain, schema
from crossbreed.storage.database import Database
from crossbreed.storage.runs import become, locked_run, run_key, touch, touch_held
from crossbreed.storage.states import ENDED
from crossbreed.storage.studies import now
from crossbreed.storage.upsert import upsert, upsert_id


class CurveLike(Protocol):
    """A point of a training curve, as a trial reports it."""

    @property
    def step(self) -> int: ...
    @property
    def tokens(self) -> int: ...
    @property
    def loss_nats(self) -> float: ...
    @property
    def lr(self) -> float: ...
    @property
    def grad_norm(self) -> float: ...
    @property
    def aux(self) -> Mapping[str, float]: ...


MEASUREMENT_KEY = ("metric", "phase", "batch", "tokens", "dtype", "device", "policy", "compiled")
_MEASURED = ("median", "q1", "q3", "repeats", "stable", "threads", "unit", "backends", "neighbours")


class Records:
    """The part of the repository that workers' records go through."""

    database: Database

    def record_started(self, run_id: int, lease: str, environment: Mapping[str, Any]) -> bool:
        """The worker began: the run is running, in this environment."""
        with self.database.writing() as session:
            run = _held(session, run_id, lease)
            if run is None:
                return False
            run.environment = plain.plain(environment)
            if run.state == "leased":
                become(session, run, "running")
            return True

    def record_curve(self, run_id: int, lease: str, points: Sequence[CurveLike]) -> bool:
        """Points of the training curve; a step trained again after a restart replaces the earlier one."""
        rows = [
            {
                "run_id": run_id,
                "step": p.step,
                "tokens": p.tokens,
                "loss_nats": plain.finite(p.loss_nats),
                "lr": plain.finite(p.lr),
                "grad_norm": plain.finite(p.grad_norm),
                "aux": plain.plain(p.aux) or None,
            }
            for p in points
        ]
        with self.database.writing() as session:
            if not touch_held(session, run_id, lease):
                return False
            upsert(session, schema.CurvePoint, rows, ["run_id", "step"])
            return True

    def record_rung(
        self,
        run_id: int,
        lease: str,
        *,
        rung: int,
        tokens: int,
        metrics: Mapping[str, float],
        checkpoint: str | None = None,
        sha256: str | None = None,
    ) -> bool:
        """Rung number ``rung`` (from 0) is done, after ``tokens`` training tokens in all, and left a checkpoint."""
        row = {
            "run_id": run_id,
            "rung": rung,
            "lease": lease,
            "tokens": tokens,
            "metrics": plain.plain(metrics),
            "checkpoint": checkpoint,
            "sha256": sha256,
            "recorded_at": now(),
        }
        with self.database.writing() as session:
            run = _held(session, run_id, lease)
            if run is None:
                return False
            # What is marked about the run is written once, with how far it is.
            with session.no_autoflush:
                held = session.get(schema.Rung, (run_id, rung), populate_existing=True)
            if held is None or held.lease != lease:
                upsert(session, schema.Rung, [row], ["run_id", "rung"])
                run.rungs_done = max(run.rungs_done, rung + 1)
            return True

    def record_profile(
        self,
        run_id: int,
        lease: str,
        point: str,
        measurements: Sequence[Any],
        *,
        rates: Mapping[str, Sequence[float]] | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> bool:
        """Measurements at an operating point: objects with the fields of ``MeasurementRow``.

        ``rates`` are those of the few tokens measured: they stand only until an evaluation of the point says its own, which
        its ledger and certificate go by.

        Raises NotFinite for a median or quartile that is not finite and positive: such a number would be an
        unbeatable point of a front.
        """
        for m in measurements:
            for name in ("q1", "median", "q3"):
                value = getattr(m, name)
                if not math.isfinite(value) or value <= 0:
                    raise NotFinite(
                        f"measurement {m.metric} at {point!r} has {name} {value}; it must be finite and positive."
                    )
        with self.database.writing() as session:
            if not touch_held(session, run_id, lease):
                return False
            seen = None if _evaluated(session, run_id, point) else rates
            point_id = _point(session, run_id, point, rates=seen, settings=settings)
            rows = [
                {"operating_point_id": point_id}
                | {name: getattr(m, name) for name in MEASUREMENT_KEY + _MEASURED}
                | {"backends": plain.plain(m.backends)}
                for m in measurements
            ]
            upsert(session, schema.Measurement, rows, ["operating_point_id", *MEASUREMENT_KEY])
            return True

    def record_evaluation(
        self,
        run_id: int,
        lease: str,
        point: str,
        *,
        tokens: int,
        metrics: Mapping[str, float],
        score: float | None,
        rows: int,
        unscored_rows: int = 0,
        rates: Mapping[str, Sequence[float]] | None = None,
        ledger: Any = None,
        certificate: Any = None,
        settings: Mapping[str, Any] | None = None,
        tolerance: float | None = None,
        breakdown: Mapping[str, Any] | None = None,
    ) -> bool:
        """The task's metrics at an operating point after ``tokens`` training tokens, with what the point really cost, how far the score
        may move with the batch size (``lab.evaluate``), and where the loss comes from (``lab.breakdown``)."""
        with self.database.writing() as session:
            if not touch_held(session, run_id, lease):
                return False
            point_id = _point(
                session, run_id, point, rates=rates, settings=settings, ledger=ledger, certificate=certificate
            )
            row = {
                "operating_point_id": point_id,
                "tokens": tokens,
                "metrics": plain.plain(metrics),
                "score": plain.finite(score),
                "rows": rows,
                "unscored_rows": unscored_rows,
                "tolerance": tolerance,
                "breakdown": None if breakdown is None else plain.plain(breakdown),
            }
            upsert(session, schema.Evaluation, [row], ["operating_point_id", "tokens"])
            return True

    def record_analytics(
        self,
        run_id: int,
        lease: str | None,
        point: str,
        findings: Mapping[str, Any],
        *,
        version: int,
        tokens: int,
        rows: int,
    ) -> bool:
        """What router analytics found at an operating point, by kind, in place of all that was found there before.

        ``lease`` None: of a run that nobody holds. ``version``: of the findings' form; ``tokens``: trained on so far; ``rows``: evaluation rows looked at.
        """
        with self.database.writing() as session:
            if not touch_held(session, run_id, lease):
                return False
            point_id = _point(session, run_id, point)
            table = schema.Analytics
            session.execute(delete(table).where(table.operating_point_id == point_id))
            about = {"operating_point_id": point_id, "version": version, "tokens": tokens, "rows": rows}
            found = [
                {**about, "kind": kind, "payload": plain.plain(payload), "recorded_at": now()}
                for kind, payload in findings.items()
            ]
            upsert(session, table, found, ["operating_point_id", "kind"])
            return True

    def record_artefact(
        self, run_id: int, lease: str, *, kind: str, path: str, sha256: str, bytes: int
    ) -> bool:
        """A file of the run, ``path`` relative to the artefacts; the same path again replaces it. Raises ConfigError where it leads out."""
        row = {"run_id": run_id, "kind": kind, "path": confined(path), "sha256": sha256, "bytes": bytes}
        with self.database.writing() as session:
            if not touch_held(session, run_id, lease):
                return False
            upsert(session, schema.Artefact, [row], ["run_id", "path"])
            return True

    def record_finished(
        self, run_id: int, lease: str, state: str, *, cause: str = "", traceback: str = ""
    ) -> bool:
        """The run ended in ``state`` (or was preempted). Raises StorageError when that cannot follow its state."""
        with self.database.writing() as session:
            run = _held(session, run_id, lease)
            if run is None:
                return False
            if run.state in ENDED or run.state == "preempted":
                if run.state != state:
                    raise StorageError(
                        f"run {run_key(session, run)} ended as {run.state!r} and cannot end again as {state!r}."
                    )
                return True
            become(session, run, state, cause, traceback, orderly=True)
            return True


def _held(session: Session, run_id: int, lease: str) -> schema.Run | None:
    """The run when ``lease`` is its present lease, marked as changed now; None when it is stale."""
    run = locked_run(session, run_id)
    if run.lease != lease:
        return None
    touch(run)
    return run


def _evaluated(session: Session, run_id: int, name: str) -> bool:
    """Whether the operating point has been judged."""
    return session.scalars(_EVALUATED, {"run": run_id, "point": name}).first() is not None


_EVALUATED = (
    select(schema.Evaluation.id)
    .join(schema.OperatingPoint)
    .where(schema.OperatingPoint.run_id == bindparam("run"), schema.OperatingPoint.name == bindparam("point"))
    .limit(1)
)


def _point(session: Session, run_id: int, name: str, **data: Any) -> int:
    """The id of the operating point, made when missing; what is given replaces what is stored, None leaves it."""
    row = {"run_id": run_id, "name": name} | {k: plain.plain(v) for k, v in data.items()}
    given = {k: v for k, v in row.items() if v is not None}
    return upsert_id(session, schema.OperatingPoint, given, ["run_id", "name"])
