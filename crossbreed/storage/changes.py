"""What readers that keep up with a study ask: whether anything changed, and what."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlalchemy import String, func, select, type_coerce

from crossbreed.storage import schema
from crossbreed.storage.queries import OWN, Queries
from crossbreed.storage.rows import Changes, Revision, Stamp
from crossbreed.storage.trials import MANY

_Trial, _Run = schema.Trial, schema.Run


class Following(Queries):
    """The part of the repository for readers that keep up.

    Everything is told by counters in the rows that were changed. They are compared one by one, never to a latest one, so that
    it does not matter in which order transactions that ran side by side were committed.
    """

    def stamp(self, study_id: int) -> Stamp:
        """A cheap value that moves whenever a trial is added, anything is recorded about one, or an event is noted."""
        trials = select(func.count(), func.coalesce(func.sum(_Trial.revision), 0)).where(
            _Trial.study_id == study_id
        )
        runs = select(func.coalesce(func.sum(_Run.revision), 0), func.max(_Run.updated_at)).join(_Trial)
        event = select(func.coalesce(func.max(schema.Event.id), 0)).where(schema.Event.study_id == study_id)
        with self.database.reading() as session:
            count, of_trials = session.execute(trials).one()
            of_runs, latest = session.execute(runs.where(_Trial.study_id == study_id)).one()
            return Stamp(count, int(of_trials) + int(of_runs), session.scalar(event) or 0, latest)

    def revisions(self, study_id: int) -> dict[int, Revision]:
        """Number -> revision of every trial of a study, in one statement that reads indexes alone."""
        count = _Trial.revision + func.coalesce(func.sum(_Run.revision), 0)
        # A time is compared as it is stored: reading thousands as times would take longer than finding them.
        latest = type_coerce(func.max(_Run.updated_at), String)
        query = select(_Trial.number, _Trial.id, count, latest).outerjoin(_Run, _Run.trial_id == _Trial.id)
        query = query.where(_Trial.study_id == study_id).group_by(_Trial.id).order_by(_Trial.number)
        with self.database.reading() as session:
            return {row[0]: (row[1], int(row[2]), str(row[3])) for row in session.execute(query)}

    def changes(
        self, study_id: int, known: Mapping[int, Revision], *, points: Sequence[str] | None = (OWN,)
    ) -> Changes:
        """What changed in a study since a reading whose revisions are ``known`` ({}: everything), in one snapshot.

        Candidates are read as by ``candidates``. One that is known and not among the new revisions is gone. Where thousands
        changed, others may be among the rows.
        """
        with self.database.reading():
            revisions = self.revisions(study_id)
            moved = [number for number, revision in revisions.items() if known.get(number) != revision]
            named = moved if len(moved) < MANY else None
            rows = self.candidates(study_id, points=points, numbers=named) if moved else []
            return Changes(self.stamp(study_id), revisions, tuple(rows))
