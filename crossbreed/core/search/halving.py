"""Who goes on from one rung to the next, and who is pruned there, as one study stands.

Halving works inside a candidate first, over its settings, then between candidates, each by its best setting.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from crossbreed.core.search import agenda, tuning
from crossbreed.core.search.agenda import GIVEN, Item
from crossbreed.core.search.board import Board
from crossbreed.core.search.rungs import Standing, promotions
from crossbreed.core.search.study_setting import StudySetting
from crossbreed.storage.rows import CandidateRow, SeedRow
from crossbreed.storage.states import ENDED

RungMetrics = Mapping[int, Mapping[int, Mapping[str, float]]]
"""Run id -> rung -> metrics."""


@dataclass
class Halving:
    """Successive halving over the rungs of one study; a promotion that was given is kept.

    standings: one entry for every rung that a candidate has reached, as last looked at.
    """

    board: Board
    setting: StudySetting
    standings: list[Standing] = field(default_factory=list)
    _promoted: set[tuple[int, int]] = field(default_factory=set)

    def update(self) -> None:
        """Drop settings that are beaten, and promote whom the board's results promote."""
        if self.board.rungs == 1:
            return
        metrics = self._metrics()
        for row in self.board.open_rows:
            self._drop_settings(row, metrics)
        self.standings = standings = self._standings(metrics)
        self._promoted.update(self._promotions(standings, closing=False))
        # A genome given by hand is compared with, not selected.
        given = {row.trial_id for row in self.board.rows if row.origin in GIVEN}
        self._promoted.update((s.trial_id, s.rung) for s in standings if s.trial_id in given)

    def may_train(self, item: Item) -> bool:
        """A tuning run waits at each rung until its candidate is promoted; report runs go straight through."""
        at_rung = 0 < item.seed.rungs_done < self.board.rungs
        if item.seed.role != "tune" or not at_rung or item.seed.state == "preempted":
            return True
        return (item.row.trial_id, item.seed.rungs_done - 1) in self._promoted

    def close(self, at_rungs: Sequence[Item]) -> None:
        """Nothing else can reach a rung: let the best of the highest go on, and prune those not among the best."""
        chosen = set(self._promotions(self._standings(self._metrics()), closing=True))
        highest = max((rung for _, rung in chosen), default=0)
        self._promoted.update(place for place in chosen if place[1] == highest)
        for item in at_rungs:
            rung = item.seed.rungs_done - 1
            if (item.row.trial_id, rung) not in chosen:
                reduction = self.setting.file.train.reduction
                self._prune(item.row, item.seed, f"not among the best 1/{reduction:g} of rung {rung}")
        self.board.changed()

    def _drop_settings(self, row: CandidateRow, metrics: RungMetrics) -> None:
        """Prune the settings of a candidate that are not among its best at the last rung all of them have reached."""
        runs = tuning.tuning(row.seeds)
        alive = [s for s in runs if s.state not in ENDED]
        if len(runs) == 1 or not alive:
            return
        rung = min(s.rungs_done for s in alive) - 1
        there = [s for s in runs if rung in metrics.get(s.run_id, {})]
        if rung < 0 or rung >= self.board.rungs - 1 or not there:
            return
        quota = len(runs)
        for _ in range(rung + 1):
            quota = math.ceil(quota / self.setting.file.train.reduction)
        best = agenda.ranked(
            there, rung, metrics, self.setting.task.score.name, self.board.objectives.score_way
        )
        for seed in best[quota:]:
            if seed.rungs_done == rung + 1 and seed.state in agenda.WAITING:
                cause = f"lr {seed.lr:g} is not among the best {quota} of {len(runs)} settings at rung {rung}"
                self._prune(row, seed, cause)

    def _prune(self, row: CandidateRow, seed: SeedRow, cause: str) -> None:
        self.board.repository.set_run_state(seed.run_id, "pruned", cause=cause)
        self.board.changed(row.number)

    def _metrics(self) -> RungMetrics:
        board = self.board
        return {
            run_id: {r.rung: r.metrics for r in rungs}
            for run_id, rungs in board.repository.study_rungs(board.study_id).items()
        }

    def _standings(self, metrics: RungMetrics) -> list[Standing]:
        board, score = self.board, self.setting.task.score.name
        return agenda.standings(board.rows, metrics, board.objectives, score, board.rungs)

    def _promotions(self, standings: Sequence[Standing], *, closing: bool) -> list[tuple[int, int]]:
        reduction = self.setting.file.train.reduction
        return promotions(standings, self.board.objectives.ways, reduction, self.board.rungs, closing=closing)
