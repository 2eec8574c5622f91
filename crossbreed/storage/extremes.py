"""The least and the greatest value of each objective over a trial's runs, found by the database.

Enough to tell most candidates of a large study apart from its front without reading them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Select, case, func, select

from crossbreed.storage import schema
from crossbreed.storage.database import Database
from crossbreed.storage.queries import OWN

_Trial, _Run, _Point = schema.Trial, schema.Run, schema.OperatingPoint
_Measured, _Judged = schema.Measurement, schema.Evaluation
KEY = ("phase", "batch", "tokens", "dtype", "device", "policy", "compiled")
COUNTED = ("done", "off_budget")
"""States of runs whose numbers may count."""

SpeedKey = tuple[Any, ...]
Span = tuple[float, float]


@dataclass(frozen=True)
class Bounds:
    """A trial's number, its runs, how many of them are done and how many report runs, and for each objective its least and
    greatest value."""

    number: int
    runs: int
    done: int
    reports: int
    spans: dict[str, Span]


class Extremes:
    """The part of the repository that aggregates."""

    database: Database

    def speed_keys(self, study_id: int, metric: str, point: str, batch: int | None = 1) -> Counter[SpeedKey]:
        """How many measurements of ``metric`` at an operating point a study has under each key; ``batch`` None: of any."""
        columns = [getattr(_Measured, name) for name in KEY]
        query = _of_study(select(*columns, func.count()).select_from(_Measured).join(_Point), study_id)
        query = query.where(_Point.name == point, _Measured.metric == metric)
        if batch is not None:
            query = query.where(_Measured.batch == batch)
        with self.database.reading() as session:
            return Counter({tuple(key): n for *key, n in session.execute(query.group_by(*columns))})

    def bounds(
        self,
        study_id: int,
        *,
        score: str | None,
        speeds: dict[str, SpeedKey],
        quantities: Sequence[str],
        points: Sequence[str] = (OWN,),
    ) -> list[Bounds]:
        """Every trial with runs, by number, over all its operating points. ``score``: the objective that is the score, if any; ``speeds``: objective -> key;
        ``quantities``: of the ledger, at ``points``."""
        done = func.sum(case((_Run.state == "done", 1), else_=0))
        reports = func.sum(case((_Run.role == "report", 1), else_=0))
        query = select(_Trial.id, _Trial.number, func.count(_Run.id), done, reports).join(_Run)
        query = query.where(_Trial.study_id == study_id).group_by(_Trial.id, _Trial.number)
        with self.database.reading() as session:
            trials = session.execute(query.order_by(_Trial.number)).all()
            spans: dict[str, dict[int, Span]] = {}
            if score is not None:
                spans[score] = self._spans(_judged(study_id))
            for name, key in speeds.items():
                spans[name] = self._spans(_measured(study_id, name, key))
            for name in quantities:
                spans[name] = self._spans(_counted_up(study_id, name, points))
        return [
            Bounds(
                number,
                runs,
                int(ended),
                int(reported),
                {name: found[i] for name, found in spans.items() if i in found},
            )
            for i, number, runs, ended, reported in trials
        ]

    def _spans(self, query: Select[Any]) -> dict[int, Span]:
        with self.database.reading() as session:
            return {i: (low, high) for i, low, high in session.execute(query) if low is not None}

    def divergence(self, study_id: int) -> dict[str, tuple[int, int]]:
        """Family -> runs that diverged, and runs that trained and ended without."""
        diverged = func.sum(case((_Run.state == "diverged", 1), else_=0))
        trained = _Run.state.in_(COUNTED) | ((_Run.state == "pruned") & (_Run.rungs_done > 0))
        query = select(_Trial.family, diverged, func.sum(case((trained, 1), else_=0))).join(_Run)
        query = query.where(_Trial.study_id == study_id).group_by(_Trial.family)
        with self.database.reading() as session:
            return {family: (int(bad), int(good)) for family, bad, good in session.execute(query)}


def _judged(study_id: int) -> Select[Any]:
    score = _Judged.score
    query: Any = select(_Trial.id, func.min(score), func.max(score)).select_from(_Judged).join(_Point)
    found: Select[Any] = _of_study(query, study_id).where(_Run.state.in_(COUNTED)).group_by(_Trial.id)
    return found


def _measured(study_id: int, metric: str, key: SpeedKey) -> Select[Any]:
    median = _Measured.median
    query: Any = select(_Trial.id, func.min(median), func.max(median)).select_from(_Measured)
    query = _of_study(query.join(_Point), study_id).where(_Run.state.in_(COUNTED))
    wanted = zip((getattr(_Measured, name) for name in KEY), key, strict=True)
    same = [column == value for column, value in wanted]
    found: Select[Any] = query.where(_Measured.metric == metric, *same).group_by(_Trial.id)
    return found


def _counted_up(study_id: int, name: str, points: Sequence[str]) -> Select[Any]:
    """A quantity of the ledger at the rates that trained routers chose, at nominal ones where none are stored."""
    value = func.coalesce(_Point.ledger[name].as_float(), _Trial.ledger[name].as_float())
    query: Any = select(_Trial.id, func.min(value), func.max(value)).join(_Run, _Run.trial_id == _Trial.id)
    query = query.outerjoin(_Point, (_Point.run_id == _Run.id) & _Point.name.in_(points))
    found: Select[Any] = query.where(_Trial.study_id == study_id, _Run.state.in_(COUNTED)).group_by(_Trial.id)
    return found


def _of_study(query: Any, study_id: int) -> Any:
    query = query.join(_Run, _Point.run_id == _Run.id).join(_Trial, _Run.trial_id == _Trial.id)
    return query.where(_Trial.study_id == study_id)
