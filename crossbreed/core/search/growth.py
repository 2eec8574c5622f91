"""How the front grew: its hypervolume over tokens, seconds and trials, kept as events of the study."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from crossbreed.core.search.board import Board
from crossbreed.core.search.candidates import front_volume
from crossbreed.storage import Repository
from crossbreed.storage.rows import CandidateRow
from crossbreed.storage.states import ENDED

GROWTH = "hypervolume"
"""Kind of the event that is added whenever the front's hypervolume changes."""


@dataclass(frozen=True)
class Growth:
    """The front at one moment.

    tokens:      training tokens of finished rungs, over all runs. seconds: of search, over all sessions up to their last change.
    trials:      candidates with a run that came to an end of any kind.
    hypervolume: in the objectives' own units, from the study's fixed ``reference`` point (objective -> value); means over
                 seeds may also lower it.
    """

    tokens: int
    seconds: float
    trials: int
    hypervolume: float
    reference: dict[str, float]


def history(repository: Repository, study_id: int) -> list[Growth]:
    """Every change of the front, oldest first."""
    return [change for _, change in noted(repository, study_id)]


def noted(repository: Repository, study_id: int, *, after: int = 0) -> list[tuple[int, Growth]]:
    """Every change of the front with the event that tells it, of ids above ``after``, oldest first."""
    events = repository.events_of(study_id, GROWTH, after=after)
    return [(event.id, Growth(**event.payload)) for event in events]


def finished(rows: Sequence[CandidateRow]) -> int:
    """Candidates with a run that has ended; those whose seeds are still being confirmed stay among them."""
    return sum(any(s.state in ENDED for s in row.seeds) for row in rows)


class GrowthLog:
    """Writes the history of one study; takes it up where an earlier session left it."""

    def __init__(self, repository: Repository, study_id: int) -> None:
        self.repository, self.study_id = repository, study_id
        self.changes = history(repository, study_id)
        self._earlier_s = self.changes[-1].seconds if self.changes else 0.0

    def note(self, board: Board, reference: dict[str, float], elapsed_s: float) -> None:
        """Add an event when the hypervolume differs from the last one's."""
        volume = front_volume(board.candidates, board.keyed, reference)
        last = self.changes[-1].hypervolume if self.changes else 0.0
        if volume == last:
            return
        change = Growth(
            tokens=self.repository.trained_tokens(self.study_id),
            seconds=self._earlier_s + elapsed_s,
            trials=finished(board.rows),
            hypervolume=volume,
            reference=reference,
        )
        self.changes.append(change)
        self.repository.add_event(self.study_id, GROWTH, asdict(change))

    def stalled(self, trials: int, over: int, share: float) -> bool:
        """Whether the last ``over`` of ``trials`` finished candidates made the hypervolume less than ``share`` larger.

        A front of no volume counts as one that does not grow.
        """
        if trials < over:
            return False
        before = [c.hypervolume for c in self.changes if c.trials <= trials - over]
        then, now = before[-1] if before else 0.0, self.changes[-1].hypervolume if self.changes else 0.0
        return now <= 0 if then <= 0 else now - then < share * then
