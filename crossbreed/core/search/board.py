"""The board: the study as its tables show it, read again when something has changed."""

from __future__ import annotations

from dataclasses import dataclass, field

from crossbreed.core.search import agenda
from crossbreed.core.search.agenda import Item
from crossbreed.core.search.candidates import Candidate, Objectives, read
from crossbreed.storage import Repository
from crossbreed.storage.rows import CandidateRow


@dataclass
class Board:
    """Candidates of one study with their runs and objectives, those on the front marked."""

    repository: Repository
    study_id: int
    rungs: int
    objectives: Objectives
    rows: list[CandidateRow] = field(default_factory=list)
    candidates: list[Candidate] = field(default_factory=list)
    _stale: bool = True

    def changed(self) -> None:
        """What is shown is out of date."""
        self._stale = True

    def refresh(self) -> bool:
        """Read what is out of date; whether anything was."""
        if not self._stale:
            return False
        self.rows = self.repository.candidates(self.study_id)
        self.candidates = read(self.rows, self.objectives)
        self._stale = False
        return True

    def waiting(self) -> list[Item]:
        """Runs that wait, by trial number and seed."""
        return agenda.waiting(self.rows, self.rungs, self.objectives.score_way)

    def proposed(self) -> int:
        """Candidates that the search proposed: all but the reference and genomes named on the command line."""
        return sum(row.origin in ("start", "sampler", "listed") for row in self.rows)
