"""The board: the study as its tables show it, read again when something has changed."""

from __future__ import annotations

from dataclasses import dataclass, field

from crossbreed.core.search import agenda
from crossbreed.core.search.agenda import Course, Item
from crossbreed.core.search.candidates import Candidate, Objectives, read
from crossbreed.storage import Repository
from crossbreed.storage.rows import CandidateRow
from crossbreed.storage.states import ENDED


@dataclass
class Board:
    """Candidates of one study with their runs and objectives, those on the front marked.

    ``objectives`` are the study's, ``keyed`` the same with the keys under which its speeds are measured.
    """

    repository: Repository
    study_id: int
    course: Course
    objectives: Objectives
    rows: list[CandidateRow] = field(default_factory=list)
    candidates: list[Candidate] = field(default_factory=list)
    keyed: Objectives = field(default_factory=lambda: Objectives({}))
    _stale: bool = True

    def changed(self) -> None:
        """What is shown is out of date."""
        self._stale = True

    def refresh(self) -> bool:
        """Read what is out of date; whether anything was."""
        if not self._stale:
            return False
        self.rows = self.repository.candidates(self.study_id, points=None)
        self.keyed = self.objectives.over(self.rows)
        self.candidates = read(self.rows, self.keyed)
        self._stale = False
        return True

    def waiting(self) -> list[Item]:
        """Runs that wait, by trial number and seed."""
        return agenda.waiting(self.open_rows, self.course)

    @property
    def rungs(self) -> int:
        return self.course.rungs

    @property
    def open_rows(self) -> list[CandidateRow]:
        """Candidates with a run that has not ended."""
        return [row for row in self.rows if any(s.state not in ENDED for s in row.seeds)]

    def proposed(self) -> int:
        """Candidates that the search proposed: all but the reference and genomes named on the command line."""
        return sum(row.origin in ("start", "sampler", "listed") for row in self.rows)
