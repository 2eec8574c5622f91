"""What searches, fronts and charts read, each in a number of statements that does not grow with the study."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from functools import cache
from typing import Any

from sqlalchemy import ColumnElement, false, func, literal, or_, select
from sqlalchemy.orm import Session

from crossbreed.storage import schema
from crossbreed.storage.rows import (
    THROUGHPUT,
    Analysed,
    AnalyticsRow,
    ArtefactRow,
    BreakdownRow,
    CandidateRow,
    CurveRow,
    EvaluationRow,
    MeasurementRow,
    PointRow,
    RunDetail,
    RungRow,
    SeedRow,
    TrialDetail,
)
from crossbreed.storage.runs import Runs
from crossbreed.storage.trials import Trials

OWN = "own"
"""The operating point at which a model takes its own decisions."""

_Trial, _Run, _Point = schema.Trial, schema.Run, schema.OperatingPoint
_MEASUREMENT = tuple(getattr(schema.Measurement, name) for name in MeasurementRow.__dataclass_fields__)
_EVALUATION = tuple(getattr(schema.Evaluation, name) for name in EvaluationRow.__dataclass_fields__)
_LIGHT_MEASUREMENT = tuple(c for c in _MEASUREMENT if c.key != "backends")
_LIGHT_EVALUATION = tuple(c for c in _EVALUATION if c.key != "metrics")
_LEFT_OUT: dict[str, Any] = {}
"""In the place of data that was not asked for: decoding it takes most of the time of a reading."""


class Queries(Trials, Runs):
    """The part of the repository that joins tables for readers."""

    def candidates(
        self,
        study_id: int,
        *,
        states: Sequence[str] | None = None,
        points: Sequence[str] | None = (OWN,),
        details: bool = True,
        metrics: Sequence[str] | None = None,
        numbers: Collection[int] | None = None,
        beyond: int | None = None,
    ) -> list[CandidateRow]:
        """Every trial of a study, by number, with its seeds and their results: at most five statements.

        ``numbers`` and ``beyond`` keep trials of these numbers, and those numbered higher: what has changed.
        ``states`` keeps trials in these states. ``points`` keeps operating points of these names, None all of them.
        ``details`` False leaves out ledgers, certificates, settings, rates, backends and evaluations' metrics, which are most
        of the bytes: what samplers and fronts over scores and speeds need. ``metrics`` keeps measurements of these names,
        ``numbers`` trials of these numbers.
        """
        chosen: list[ColumnElement[bool]] = [_Trial.study_id == study_id]
        if states is not None:
            chosen.append(_Trial.state.in_(states))
        if numbers is not None:
            higher = false() if beyond is None else _Trial.number > beyond
            chosen.append(or_(_Trial.number.in_(numbers), higher))
        named = chosen if points is None else [*chosen, _Point.name.in_(points)]
        with self.database.reading() as session:
            seeds = _seeds(session, chosen, _points(session, named, details, metrics))
            rows = _rows(session, _trials_query(details).where(*chosen))
            return [CandidateRow(*[*row, tuple(seeds.get(row[0], ()))]) for row in rows]

    def point(self, run_id: int, name: str) -> PointRow | None:
        """A run's results at one operating point, None where there are none."""
        with self.database.reading() as session:
            chosen = [_Run.id == run_id, _Point.name == name]
            return _points(session, chosen, details=True).get(run_id, {}).get(name)

    def points_like(self, study_id: int, prefix: str) -> dict[str, list[PointRow]]:
        """Operating points whose names begin with ``prefix``, by the key study/number/seed of their run."""
        chosen = [_Trial.study_id == study_id, _Point.name.startswith(prefix, autoescape=True)]
        with self.database.reading() as session:
            points = _points(session, chosen, details=True)
            keys = {run.id: run.key for run in self.runs(study_id)} if points else {}
            return {keys[run_id]: list(found.values()) for run_id, found in sorted(points.items())}

    def throughputs(self) -> list[tuple[Any, Any, MeasurementRow]]:
        """(genome, realised rates, measurement) of every throughput of every study, for cost models to fit."""
        rate = schema.Measurement.unit == THROUGHPUT
        query = select(schema.Architecture.genome, _Point.rates, *_MEASUREMENT).join_from(
            schema.Measurement, _Point
        )
        query = query.join(_Run, _Point.run_id == _Run.id).join(_Trial, _Run.trial_id == _Trial.id)
        query = query.join(schema.Architecture, _Trial.architecture_id == schema.Architecture.id).where(rate)
        with self.database.reading() as session:
            rows = _rows(session, query.order_by(schema.Measurement.id))
            return [(genome, rates, MeasurementRow(*fields)) for genome, rates, *fields in rows]

    def trial_detail(self, study_id: int, number: int) -> TrialDetail:
        """One candidate in full: genome, ledger, certificate, and each run's rungs, points and artefacts."""
        with self.database.reading() as session:
            trial = self.trial(study_id, number)
            runs = self.runs(study_id, number=number)
            points = _points(session, [_Run.trial_id == trial.id], details=True)
            rungs = _rungs(session, _Trial.id == trial.id)
            artefacts: dict[int, list[ArtefactRow]] = defaultdict(list)
            artefact = schema.Artefact
            for a in session.scalars(select(artefact).join(_Run).where(_Run.trial_id == trial.id)):
                artefacts[a.run_id].append(ArtefactRow(a.kind, a.path, a.sha256, a.bytes))
            return TrialDetail(
                trial,
                tuple(
                    RunDetail(r, tuple(rungs.get(r.id, ())), points.get(r.id, {}), tuple(artefacts[r.id]))
                    for r in runs
                ),
            )

    def analysed(self, study_id: int) -> list[Analysed]:
        """Every run and operating point of a study at which routers were looked at, by candidate and seed."""
        query = (
            select(_Trial.number, _Run.seed, _Run.id, _Point.name)
            .join(_Run, _Run.trial_id == _Trial.id)
            .join(_Point, _Point.run_id == _Run.id)
            .where(_Trial.study_id == study_id, _Point.id.in_(select(schema.Analytics.operating_point_id)))
            .order_by(_Trial.number, _Run.seed, _Point.id)
        )
        with self.database.reading() as session:
            return [Analysed(*row) for row in _rows(session, query)]

    def analytics(self, run_id: int, point: str = OWN) -> dict[str, AnalyticsRow]:
        """What router analytics found about a run at an operating point, by kind; {} where nobody looked."""
        found = schema.Analytics
        columns = tuple(getattr(found, name) for name in AnalyticsRow.__dataclass_fields__)
        query = select(*columns).join(_Point).where(_Point.run_id == run_id, _Point.name == point)
        with self.database.reading() as session:
            return {row[0]: AnalyticsRow(*row) for row in _rows(session, query.order_by(found.id))}

    def breakdowns(self, study_id: int, number: int | None = None) -> list[BreakdownRow]:
        """Where the loss of every evaluation of a study, or of one of its candidates, comes from, in order of candidates; none of
        those stored before it was kept."""
        table = schema.Evaluation
        query = (
            select(_Trial.number, _Run.seed, _Point.name, table.tokens, table.breakdown)
            .select_from(table)
            .join(_Point, table.operating_point_id == _Point.id)
            .join(_Run, _Point.run_id == _Run.id)
            .join(_Trial, _Run.trial_id == _Trial.id)
            .where(_Trial.study_id == study_id, table.breakdown.is_not(None))
            .order_by(_Trial.number, _Run.seed, _Point.id, table.tokens)
        )
        if number is not None:
            query = query.where(_Trial.number == number)
        with self.database.reading() as session:
            return [BreakdownRow(*row) for row in _rows(session, query)]

    def rungs(self, run_id: int) -> list[RungRow]:
        """The finished rungs of a run, first to last."""
        with self.database.reading() as session:
            return _rungs(session, _Run.id == run_id).get(run_id, [])

    def study_rungs(self, study_id: int) -> dict[int, list[RungRow]]:
        """The finished rungs of every run of a study that has any, by run id, in one statement."""
        with self.database.reading() as session:
            return _rungs(session, _Trial.study_id == study_id)

    def trained_tokens(self, study_id: int) -> int:
        """Training tokens up to the last finished rung of every run of a study, together."""
        rung = schema.Rung
        last = (
            select(func.max(rung.tokens).label("tokens"))
            .join(_Run, _Run.id == rung.run_id)
            .join(_Trial, _Trial.id == _Run.trial_id)
            .where(_Trial.study_id == study_id)
            .group_by(rung.run_id)
            .subquery()
        )
        with self.database.reading() as session:
            return int(session.scalar(select(func.sum(last.c.tokens))) or 0)

    def curve(self, run_id: int, *, at_most: int | None = None) -> list[CurveRow]:
        """A run's training curve by step; with ``at_most``, evenly thinned in SQL to about that many points.

        The last point is always there, so a thinned curve has at most one more.
        """
        return self.curves([run_id], at_most=at_most)[run_id]

    def curves(self, run_ids: Sequence[int], *, at_most: int | None = None) -> dict[int, list[CurveRow]]:
        """The curves of several runs in one statement, each thinned as by ``curve``."""
        found: dict[int, list[CurveRow]] = {run_id: [] for run_id in run_ids}
        with self.database.reading() as session:
            for run_id, *fields in _rows(session, _curve_query(run_ids, at_most)):
                found[run_id].append(CurveRow(*fields))
        return found


def _rows(session: Session, query: Any) -> Iterator[Any]:
    """The rows of a statement built from a list of columns, whose types no checker can follow."""
    return iter(session.execute(query))


def _curve_query(run_ids: Sequence[int], at_most: int | None) -> Any:
    point = schema.CurvePoint
    columns = (point.run_id, point.step, point.tokens, point.loss_nats, point.lr, point.grad_norm, point.aux)
    query = select(*columns).where(point.run_id.in_(run_ids))
    if at_most is None:
        return query.order_by(point.run_id, point.step)
    place = func.row_number().over(partition_by=point.run_id, order_by=point.step).label("place")
    count = func.count().over(partition_by=point.run_id).label("count")
    numbered = query.add_columns(place, count).subquery()
    c = numbered.c
    # Integer division rounds down, so that a curve of up to at_most points has stride 1 and is whole.
    stride = (c["count"] + (at_most - 1)) // at_most
    kept = or_((c.place - 1) % stride == 0, c.place == c["count"])
    return select(*(c[column.key] for column in columns)).where(kept).order_by(c.run_id, c.step)


def _rungs(session: Session, chosen: ColumnElement[bool]) -> dict[int, list[RungRow]]:
    """Rungs by run id, in order, of the runs and trials chosen."""
    rung = schema.Rung
    found: dict[int, list[RungRow]] = defaultdict(list)
    for r in session.scalars(
        select(rung).join(_Run).join(_Trial).where(chosen).order_by(rung.run_id, rung.rung)
    ):
        found[r.run_id].append(RungRow(r.rung, r.tokens, r.metrics, r.checkpoint, r.sha256, r.recorded_at))
    return found


# Statements without their choice of rows, put together once: that takes longer than SQLite needs to find one candidate.


@cache
def _trials_query(details: bool) -> Any:
    heavy: tuple[Any, ...] = (_Trial.certificate, _Trial.ledger) if details else (literal(None),) * 2
    query = select(
        _Trial.id,
        _Trial.number,
        schema.Architecture.hash,
        _Trial.family,
        _Trial.origin,
        _Trial.draws,
        _Trial.state,
        _Trial.cause,
        *heavy,
    )
    return query.join(schema.Architecture).order_by(_Trial.number)


@cache
def _runs_query() -> Any:
    query = select(
        _Run.trial_id,
        _Run.role,
        _Run.recipe["lr"].as_float(),
        _Run.id,
        _Run.seed,
        _Run.state,
        _Run.cause,
        _Run.rungs_done,
        _Run.identities,
    )
    return query.join(_Trial).order_by(_Run.trial_id, _Run.seed)


@cache
def _points_queries(details: bool) -> tuple[Any, Any, Any]:
    """The statements for points, for their measurements and for their evaluations."""
    nothing = literal(None)
    data = (_Point.settings, _Point.rates, _Point.ledger, _Point.certificate) if details else (nothing,) * 4
    points = select(_Point.run_id, _Point.id, _Point.name, *data).select_from(_Point).order_by(_Point.id)
    measurement, evaluation = schema.Measurement, schema.Evaluation
    columns = _MEASUREMENT if details else _LIGHT_MEASUREMENT
    measurements = select(measurement.operating_point_id, *columns).join_from(measurement, _Point)
    columns = _EVALUATION if details else _LIGHT_EVALUATION
    evaluations = select(evaluation.operating_point_id, *columns).join_from(evaluation, _Point)
    ordered = points, measurements.order_by(measurement.id), evaluations.order_by(evaluation.tokens)
    joined = (query.join(_Run, _Point.run_id == _Run.id) for query in ordered)
    points, measurements, evaluations = (query.join(_Trial, _Run.trial_id == _Trial.id) for query in joined)
    return points, measurements, evaluations


def _seeds(
    session: Session, chosen: Sequence[ColumnElement[bool]], points: dict[int, dict[str, PointRow]]
) -> dict[int, list[SeedRow]]:
    """Runs with their points by trial id, in order of seed."""
    found: dict[int, list[SeedRow]] = defaultdict(list)
    for trial_id, role, lr, *fields in _rows(session, _runs_query().where(*chosen)):
        found[trial_id].append(SeedRow(*[*fields, points.get(fields[0], {}), role, lr]))
    return found


def _points(
    session: Session,
    chosen: Sequence[ColumnElement[bool]],
    details: bool,
    metrics: Sequence[str] | None = None,
) -> dict[int, dict[str, PointRow]]:
    """Operating points with their results by run id, then by name, for the rows of run, trial and point chosen."""
    of_points, of_measurements, of_evaluations = (q.where(*chosen) for q in _points_queries(details))
    rows = list(_rows(session, of_points))
    if not rows:
        return {}
    measurements: dict[int, list[MeasurementRow]] = defaultdict(list)
    left_out = () if details else (_LEFT_OUT,)
    if metrics is not None:
        of_measurements = of_measurements.where(schema.Measurement.metric.in_(metrics))
    for point_id, *fields in _rows(session, of_measurements):
        measurements[point_id].append(MeasurementRow(*fields, *left_out))
    evaluations: dict[int, list[EvaluationRow]] = defaultdict(list)
    for point_id, tokens, *fields in _rows(session, of_evaluations):
        evaluations[point_id].append(
            EvaluationRow(tokens, *fields) if details else EvaluationRow(tokens, _LEFT_OUT, *fields)
        )
    found: dict[int, dict[str, PointRow]] = defaultdict(dict)
    for run_id, point_id, name, *fields in rows:
        results = tuple(measurements.get(point_id, ())), tuple(evaluations.get(point_id, ()))
        found[run_id][name] = PointRow(name, *[*fields, *results])
    return found
