"""One study, followed: what the pages show of all its candidates, read again only where it changed."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

from crossbreed.core.search.board import PROPOSED
from crossbreed.core.search.candidates import OWN, Candidate, Objectives
from crossbreed.core.search.growth import Growth, noted
from crossbreed.core.search.layers import ROUTER_SITES
from crossbreed.core.search.roster import Roster
from crossbreed.storage import Repository
from crossbreed.storage.rows import CandidateRow, Revision, Stamp

T = TypeVar("T")
KEPT = 64
"""Things made of one reading of a study that are kept at once."""


@dataclass(frozen=True)
class Results:
    """All candidates of a study, each at every operating point that competes, with the objectives they were read under, speed
    keys included.

    judged: see ``Roster``. version: grows whenever there is anything else to show; the curve of a run that goes on is no part
    of it.
    Tabs share one of these as long as nothing changes, and with it whatever was made of it (``kept``).
    """

    candidates: tuple[Candidate, ...]
    objectives: Objectives
    judged: int = 0
    version: int = 0
    _kept: dict[Hashable, Any] = field(default_factory=dict, compare=False, repr=False, init=False)
    _making: threading.RLock = field(default_factory=threading.RLock, compare=False, repr=False, init=False)

    def kept(self, what: Hashable, make: Callable[[], T]) -> T:
        """What ``make`` gives, made once however many tabs ask for it; nobody may change it. ``what``: tells it from the rest
        that is made of these results, and holds all that it depends on beside them."""
        with self._making:
            # What was asked for last is at the end, and what nobody asked for longest is let go.
            found: T = self._kept.pop(what) if what in self._kept else make()
            self._kept[what] = found
            if len(self._kept) > KEPT:
                del self._kept[next(iter(self._kept))]
            return found

    @cached_property
    def front(self) -> tuple[Candidate, ...]:
        return tuple(c for c in self.candidates if c.on_front)

    @cached_property
    def own(self) -> tuple[Candidate, ...]:
        """Every candidate once, at its own decisions."""
        return tuple(c for c in self.candidates if c.point == OWN)

    @cached_property
    def trials(self) -> dict[str, int]:
        """How many candidates are in each state that occurs, the most frequent first."""
        return dict(Counter(c.row.state for c in self.own).most_common())

    @cached_property
    def runs(self) -> dict[str, int]:
        """How many runs are in each state that occurs, the most frequent first."""
        return dict(Counter(seed.state for c in self.own for seed in c.row.seeds).most_common())

    @cached_property
    def proposed(self) -> int:
        """Candidates that were drawn."""
        return sum(c.row.origin in PROPOSED for c in self.own)

    @cached_property
    def _by_number(self) -> dict[int, Candidate]:
        return {c.row.number: c for c in self.own}

    def find(self, number: int | None) -> Candidate | None:
        """The candidate of that number at its own decisions, None when there is none."""
        return None if number is None else self._by_number.get(number)


class Follower:
    """Follows one study for any number of threads: who asks at a stamp that others asked at before gets what they got.

    ``objectives`` are those of the study file.
    """

    def __init__(self, repository: Repository, study_id: int, objectives: Objectives) -> None:
        self.repository, self.study_id = repository, study_id
        self._lock = threading.Lock()
        self._at: Stamp | None = None
        self._asked: Stamp | None = None
        self._roster = Roster(objectives)
        self._results = Results((), objectives)
        self._revisions: Mapping[int, Revision] = {}
        self._growth: list[tuple[int, Growth]] = []
        self._growth_at = -1

    def results(self, at: Stamp) -> Results:
        """The study as it was at a stamp, or later."""
        with self._lock:
            self._catch_up(at)
            return self._results

    def revision(self, number: int, at: Stamp) -> Revision | None:
        """What a later reading of a candidate and the curves of its runs is compared by; None where there is none of that
        number."""
        with self._lock:
            self._catch_up(at)
            return self._revisions.get(number)

    def growth(self, at: Stamp) -> list[Growth]:
        """How the front grew up to a stamp, oldest first."""
        with self._lock:
            if at.event != self._growth_at:
                last = self._growth[-1][0] if self._growth else 0
                self._growth = [*self._growth, *noted(self.repository, self.study_id, after=last)]
                self._growth_at = at.event
            return [change for _, change in self._growth]

    def _catch_up(self, at: Stamp) -> None:
        """Look, unless the last look was for this stamp or found it; what it found may be later than what was asked for."""
        if at not in (self._at, self._asked):
            self._look()
            self._asked = at

    def _look(self) -> None:
        roster, first = self._roster, self._at is None
        found = self.repository.changes(self.study_id, self._revisions, points=roster.objectives.points)
        for row in found.rows:
            _lighten(row)
        # Most records of a running search are points of curves, which change nothing that is shown of all candidates.
        changed = [row for row in found.rows if first or row != roster.row(row.number)]
        gone = self._revisions.keys() - found.revisions.keys()
        if changed or gone or first:
            roster.take(changed, gone)
            self._results = Results(
                tuple(roster.candidates), roster.keyed, roster.judged, self._results.version + 1
            )
        self._at, self._revisions = found.stamp, found.revisions


def _lighten(row: CandidateRow) -> None:
    """Let go of a ledger's lines by part, most of what is kept of a candidate; routers' lines tell which it has. The page of
    one candidate reads them itself."""
    for ledger in (row.ledger, *(point.ledger for seed in row.seeds for point in seed.points.values())):
        if ledger is not None and "parts" in ledger:
            ledger["parts"] = [p for p in ledger["parts"] if p["site"].rsplit(".", 1)[-1] in ROUTER_SITES]
