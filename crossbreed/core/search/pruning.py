"""Pruning before training: a candidate that even at its fastest is beaten by a member of the front which cannot be improved on.

A routed model's speed depends on what its routers will learn, so it is timed under forced rates first. The fastest of them,
the one at which every router takes its cheapest choice among them, is as fast as it can become: an optimistic bound.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from crossbreed.core.contracts.task import Score
from crossbreed.core.ledger import QUANTITIES
from crossbreed.core.search import preview
from crossbreed.core.search.agenda import GIVEN, WAITING
from crossbreed.core.search.board import Board
from crossbreed.core.search.candidates import SCORE, Candidate, Objectives
from crossbreed.core.search.study_setting import StudySetting
from crossbreed.storage.rows import CandidateRow

CHEAPEST = "forced:0"
"""The point at which every router takes its cheapest choice; without it the fastest is not known."""
AT_RATES = tuple(name for name in QUANTITIES if name.endswith("flops_per_token"))
"""Quantities of the ledger that depend on the rates at which routers choose."""
AT_BOUND = 1e-9
"""Relative distance from a task's bound that rounding may leave."""


@dataclass(frozen=True)
class Verdict:
    """Why a candidate need not be trained: ``member`` of the front beats it whatever it learns."""

    member: Candidate
    cause: str


@dataclass(frozen=True)
class Bound:
    """The optimistic bound of one study. Says nothing for a task without a bound or a study without a speed."""

    score: Score
    objectives: Objectives

    def verdict(self, row: CandidateRow, front: Iterable[Candidate]) -> Verdict | None:
        """The first member of ``front`` that holds the task's bound, is faster than the candidate at its fastest, and no
        worse in all that is known of it; None when there is none."""
        speeds = self._optimistic(row)
        if self.score.bound is None or SCORE not in self.objectives.directions or not speeds:
            return None
        for member in front:
            if not self._holds_bound(member):
                continue
            slower = [name for name, speed in speeds.items() if speed < member.means[name]]
            if not slower or any(speed > member.means[name] for name, speed in speeds.items()):
                continue
            if any(self._better(name, row, member) for name in self.objectives.names):
                continue
            name = slower[0]
            cause = (
                f"not trained: {name} is at most {speeds[name]:.4g}, while #{member.row.number} holds the task's bound of "
                f"{self.score.bound:g} at {member.means[name]:.4g}"
            )
            return Verdict(member, cause)
        return None

    def _optimistic(self, row: CandidateRow) -> Mapping[str, float]:
        """Each speed at its fastest, by the upper quartile; {} unless all are known under the study's own keys."""
        points = preview.timed(row)
        if not points or (preview.routed(row) and CHEAPEST not in {p.name for p in points}):
            return {}
        found = {}
        for name in self.objectives.speeds:
            key = self.objectives.keys.get(name)
            fast = [m.q3 for p in points for m in p.measurements if m.metric == name and m.key() == key]
            if len(fast) < len(points):
                return {}
            found[name] = max(fast)
        return found

    def _holds_bound(self, member: Candidate) -> bool:
        bound, mean = self.score.bound, member.means[SCORE]
        if bound is None:
            return False
        slack = AT_BOUND * max(1.0, abs(bound))
        return mean >= bound - slack if self.score.direction == "max" else mean <= bound + slack

    def _better(self, name: str, row: CandidateRow, member: Candidate) -> bool:
        """Whether the candidate is better in a quantity of the ledger, or may be: as nothing is known of it, or as its
        routers may choose cheaper than their nominal rates."""
        if name == SCORE or name in self.objectives.speeds:
            return False
        if name in AT_RATES and preview.routed(row):
            return True
        value, theirs = (row.ledger or {}).get(name), member.means[name]
        if value is None:
            return True
        return bool(value > theirs if self.objectives.directions[name] == "max" else value < theirs)


@dataclass
class Pruner:
    """Prunes what is beaten before training on one study's board, and takes it back where that did not hold up."""

    board: Board
    setting: StudySetting

    def update(self) -> None:
        """Prune untrained candidates that a member of the front beats at their fastest."""
        front = [c for c in self.board.candidates if c.on_front]
        for row in self.board.open_rows if front else ():
            waits = all(s.state in WAITING for s in row.seeds)
            if not waits or row.origin in GIVEN or not preview.untrained(row) or self._due(row):
                continue
            verdict = self._bound().verdict(row, front)
            if verdict is not None:
                for seed in row.seeds:
                    self.board.repository.set_run_state(seed.run_id, "pruned", cause=verdict.cause)
                self.board.changed(row.number)

    def reprieve(self) -> bool:
        """Queue again whom no member beats now that all are confirmed; whether there was anyone."""
        front = [c for c in self.board.candidates if c.on_front and c.confirmed]
        found = [
            row
            for row in self.board.rows
            if row.state == "pruned"
            and preview.untrained(row)
            and not self._due(row)
            and self._bound().verdict(row, front) is None
        ]
        for row in found:
            for seed in row.in_state("pruned"):
                self.board.repository.set_run_state(seed.run_id, "queued")
            self.board.changed(row.number)
        return bool(found)

    def _bound(self) -> Bound:
        return Bound(self.setting.task.score, self.board.keyed)

    def _due(self, row: CandidateRow) -> bool:
        return preview.due(row, self.setting.file.search.forced_rates)
