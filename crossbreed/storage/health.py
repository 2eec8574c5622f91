"""How a study fares: what went wrong and how often, and under what software runs were made."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import func, select

from crossbreed.storage import schema
from crossbreed.storage.rows import Failure, RunRow
from crossbreed.storage.runs import Runs, run_query, run_rows

FAILING = ("failed", "diverged", "out_of_memory", "lost")
"""States of runs that ended as nobody wished."""

_Run, _Trial = schema.Run, schema.Trial


class Health(Runs):
    """The part of the repository about the state of a study."""

    def failures(self, study_id: int, *, limit: int = 50) -> list[Failure]:
        """Causes of runs that ended badly, the most frequent first; each with its latest run. At most ``limit``."""
        last, count = func.max(_Run.id), func.count()
        query = (
            select(_Run.state, _Run.cause, count, last)
            .join(_Trial)
            .where(_Trial.study_id == study_id, _Run.state.in_(FAILING))
            .group_by(_Run.state, _Run.cause)
            .order_by(count.desc(), last.desc())
            .limit(limit)
        )
        with self.database.reading() as session:
            found = session.execute(query).all()
        latest = self._by_id([run_id for *_, run_id in found])
        return [Failure(state, cause, count, latest[run_id]) for state, cause, count, run_id in found]

    def at_work(self, study_id: int) -> list[RunRow]:
        """The runs that somebody holds now."""
        return self.runs(study_id, ("leased", "running"))

    def latest_runs(self, study_id: int, limit: int) -> list[RunRow]:
        """The runs that began last, the latest first: their environments and plugins are those in use."""
        query: Any = run_query().where(_Trial.study_id == study_id, _Run.started_at.is_not(None))
        with self.database.reading() as session:
            return run_rows(session, query.order_by(_Run.started_at.desc(), _Run.id.desc()).limit(limit))

    def _by_id(self, run_ids: Sequence[int]) -> dict[int, RunRow]:
        with self.database.reading() as session:
            return {row.id: row for row in run_rows(session, run_query().where(_Run.id.in_(run_ids)))}
