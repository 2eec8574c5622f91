"""The roster: all candidates of a study with their objectives, kept level with its tables by what has changed.

A study of thousands of candidates changes by one at a time; reading all of them for each would cost more than what is asked.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence

from crossbreed.core.search.candidates import Candidate, KeyCounts, Objectives, candidates_of, marked, place
from crossbreed.storage.rows import CandidateRow


class Roster:
    """Candidates of one study by number, those on the front marked.

    objectives: the study's. keyed: the same with the keys under which its speeds are measured. rows, candidates: new lists
    after every change, so that what was taken of them before stays as it was. judged: grows whenever anything is known anew of
    candidates that may stand on the front, which is all that fronts and effects are made of.
    """

    def __init__(self, objectives: Objectives) -> None:
        self.objectives = objectives
        self.keyed = Objectives({})
        self.rows: list[CandidateRow] = []
        self.candidates: list[Candidate] = []
        self.judged = 0
        self._by_number: dict[int, CandidateRow] = {}
        self._read: dict[int, list[Candidate]] = {}
        self._places: dict[int, list[list[float]]] = {}
        self._counts: KeyCounts = Counter()

    def row(self, number: int) -> CandidateRow | None:
        """What was read last of a candidate, None before anything was."""
        return self._by_number.get(number)

    def take(self, changed: Sequence[CandidateRow], gone: Collection[int] = ()) -> None:
        """Put ``changed`` rows in the place of those of their numbers; those numbered ``gone`` are there no more."""
        before = {n: _judged(self._read.get(n, ())) for n in (*(r.number for r in changed), *gone)}
        for number in gone:
            self._counts.subtract(self.objectives.keys_of(self._by_number.pop(number)))
            del self._read[number], self._places[number]
        for row in changed:
            known = self._by_number.get(row.number)
            if known is not None:
                self._counts.subtract(self.objectives.keys_of(known))
            self._counts.update(self.objectives.keys_of(row))
            self._by_number[row.number] = row
        keyed = self.objectives.under(self._counts)
        if keyed != self.keyed:
            # Another key has become the study's own: every speed is read under it.
            self.keyed, changed = keyed, list(self._by_number.values())
            self.judged += 1
        for row in changed:
            found = self._read[row.number] = candidates_of(row, keyed)
            self._places[row.number] = [place(c, keyed) for c in found]
        self.judged += any(_judged(self._read.get(n, ())) != known for n, known in before.items())
        order = sorted(self._by_number)
        self.rows = [self._by_number[n] for n in order]
        found = [c for n in order for c in self._read[n]]
        self.candidates = marked(found, [p for n in order for p in self._places[n]], keyed)


def _judged(found: Sequence[Candidate]) -> list[Candidate]:
    return [c for c in found if c.eligible]
