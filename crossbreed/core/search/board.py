"""The board: the study as its tables show it. What has changed is read again, and nothing else.

A study of thousands of candidates changes by one at a time; reading all of them for each would cost more than deciding.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from crossbreed.core.search import agenda
from crossbreed.core.search.agenda import Course, Item
from crossbreed.core.search.candidates import OWN, Candidate, KeyCounts, Objectives, candidates_of, marked
from crossbreed.storage import Repository
from crossbreed.storage.rows import CandidateRow
from crossbreed.storage.states import ENDED

PROPOSED = ("start", "sampler", "listed")


@dataclass
class Board:
    """Candidates of one study with their runs and objectives, those on the front marked.

    ``objectives`` are the study's, ``keyed`` the same with the keys under which its speeds are measured. ``open_rows``:
    candidates with a run that has not ended.
    """

    repository: Repository
    study_id: int
    course: Course
    objectives: Objectives
    rows: list[CandidateRow] = field(default_factory=list)
    candidates: list[Candidate] = field(default_factory=list)
    open_rows: list[CandidateRow] = field(default_factory=list)
    keyed: Objectives = field(default_factory=lambda: Objectives({}))
    _by_number: dict[int, CandidateRow] = field(default_factory=dict)
    _points: dict[int, list[Candidate]] = field(default_factory=dict)
    _counts: KeyCounts = field(default_factory=Counter)
    _whole: bool = True
    _dirty: set[int] = field(default_factory=set)
    _given: set[int] = field(default_factory=set)
    _grown: bool = False

    def changed(self, number: int | None = None) -> None:
        """What is shown of a candidate is out of date; of all of them, without a number."""
        if number is None:
            self._whole = True
        else:
            self._dirty.add(number)

    def given(self, number: int) -> None:
        """A run of a candidate is with a worker of this process, which knows that: it is read with the next change."""
        self._given.add(number)

    def grown(self) -> None:
        """A candidate has been added."""
        self._grown = True

    def refresh(self) -> bool:
        """Read what is out of date; whether anything was."""
        if not (self._whole or self._dirty or self._grown):
            return False
        if self._whole:
            read = self.repository.candidates(self.study_id, points=None)
            self._by_number, self._points, self._counts = {}, {}, Counter()
        else:
            last = max(self._by_number, default=-1)
            changed = self._dirty | self._given
            read = self.repository.candidates(self.study_id, points=None, numbers=changed, beyond=last)
        self._whole = self._grown = False
        self._dirty, self._given = set(), set()
        self._take(read)
        return True

    def _take(self, read: list[CandidateRow]) -> None:
        for row in read:
            known = self._by_number.get(row.number)
            if known is not None:
                self._counts.subtract(self.objectives.keys_of(known))
            self._counts.update(self.objectives.keys_of(row))
        keyed = self.objectives.under(self._counts)
        if keyed != self.keyed:
            # Another key has become the study's own: every speed is read under it.
            self.keyed = keyed
            read = list({**self._by_number, **{r.number: r for r in read}}.values())
        self._by_number.update((row.number, row) for row in read)
        self._points.update((row.number, candidates_of(row, keyed)) for row in read)
        self.rows = [self._by_number[n] for n in sorted(self._by_number)]
        self.candidates = marked([c for row in self.rows for c in self._points[row.number]], keyed)
        self.open_rows = [row for row in self.rows if any(s.state not in ENDED for s in row.seeds)]

    def waiting(self) -> list[Item]:
        """Runs that wait, by trial number and seed."""
        return agenda.waiting(self.open_rows, self.course)

    def unjudged(self) -> list[Item]:
        """Ended runs whose numbers count and that lack points which the study file names now: nothing is trained for those."""
        return [
            Item(candidate.row, seed, "profile")
            for candidate in self.candidates
            if candidate.point == OWN
            for seed in candidate.done
            if self.course.lacks(candidate.row.number, seed)
        ]

    @property
    def rungs(self) -> int:
        return self.course.rungs

    def proposed(self) -> int:
        """Candidates that the search proposed: all but the reference and genomes named on the command line."""
        return sum(row.origin in PROPOSED for row in self.rows)
