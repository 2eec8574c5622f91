"""Who goes on from one rung to the next, and who is pruned there, as one study stands."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from crossbreed.core.search import agenda
from crossbreed.core.search.agenda import Item
from crossbreed.core.search.board import Board
from crossbreed.core.search.rungs import promotions
from crossbreed.core.search.study_setting import StudySetting


@dataclass
class Halving:
    """Successive halving over the rungs of one study; a promotion that was given is kept."""

    board: Board
    setting: StudySetting
    _promoted: set[int] = field(default_factory=set)

    def update(self) -> None:
        """Promote whom the board's results promote."""
        if self.board.rungs > 1:
            self._promoted.update(self._promotions(closing=False))

    def may_train(self, item: Item) -> bool:
        """A first run waits at each rung until it is promoted; later seeds of a candidate go straight through."""
        rungs = self.board.rungs
        first = min(s.run_id for s in item.row.seeds)
        compared = rungs > 1 and item.seed.run_id == first and 0 < item.seed.rungs_done < rungs
        return not compared or item.seed.state == "preempted" or item.seed.run_id in self._promoted

    def close(self, at_rungs: Sequence[Item]) -> None:
        """Nothing else can reach a rung: let the best of the highest go on, and prune those not among the best."""
        chosen = set(self._promotions(closing=True))
        highest = max((i.seed.rungs_done for i in at_rungs if i.seed.run_id in chosen), default=0)
        for item in at_rungs:
            if item.seed.run_id in chosen and item.seed.rungs_done == highest:
                self._promoted.add(item.seed.run_id)
            elif item.seed.run_id not in chosen:
                reduction = self.setting.file.train.reduction
                cause = f"not among the best 1/{reduction:g} of rung {item.seed.rungs_done - 1}"
                self.board.repository.set_run_state(item.seed.run_id, "pruned", cause=cause)
        self.board.changed()

    def _promotions(self, *, closing: bool) -> list[int]:
        board = self.board
        metrics = {
            run_id: {r.rung: r.metrics for r in rungs}
            for run_id, rungs in board.repository.study_rungs(board.study_id).items()
        }
        score = self.setting.task.score.name
        standing = agenda.standings(board.rows, metrics, board.objectives, score, board.rungs)
        reduction = self.setting.file.train.reduction
        return promotions(standing, board.objectives.ways, reduction, board.rungs, closing=closing)
