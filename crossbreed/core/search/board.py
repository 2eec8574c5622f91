"""The board: the study as its tables show it. What the process that drives it knows to have changed is read again, and
nothing else."""

from __future__ import annotations

from dataclasses import dataclass, field

from crossbreed.core.search import agenda
from crossbreed.core.search.agenda import Course, Item
from crossbreed.core.search.candidates import OWN, Candidate, Objectives
from crossbreed.core.search.roster import Roster
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
    open_rows: list[CandidateRow] = field(default_factory=list)
    _whole: bool = True
    _dirty: set[int] = field(default_factory=set)
    _given: set[int] = field(default_factory=set)
    _grown: bool = False

    def __post_init__(self) -> None:
        self._roster = Roster(self.objectives)

    @property
    def rows(self) -> list[CandidateRow]:
        return self._roster.rows

    @property
    def candidates(self) -> list[Candidate]:
        return self._roster.candidates

    @property
    def keyed(self) -> Objectives:
        return self._roster.keyed

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
            self._roster = Roster(self.objectives)
        else:
            last = self.rows[-1].number if self.rows else -1
            changed = self._dirty | self._given
            read = self.repository.candidates(self.study_id, points=None, numbers=changed, beyond=last)
        self._whole = self._grown = False
        self._dirty, self._given = set(), set()
        self._roster.take(read)
        self.open_rows = [row for row in self.rows if any(s.state not in ENDED for s in row.seeds)]
        return True

    def waiting(self) -> list[Item]:
        """Runs that wait, by trial number and seed."""
        return agenda.waiting(self.open_rows, self.course)

    def read_again_if_held(self) -> bool:
        """Whether any run was with a worker when it was read; then all of them are out of date."""
        held = any(seed.state in agenda.HELD for row in self.open_rows for seed in row.seeds)
        self._whole |= held
        return held

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
