"""What each run needs next, read from the tables alone, so that a restarted driver goes on where the last one was."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from crossbreed.core.search import preview, tuning
from crossbreed.core.search.candidates import OWN, SCORE, Candidate, Objectives
from crossbreed.core.search.front import Direction
from crossbreed.core.search.rungs import Standing
from crossbreed.storage.rows import CandidateRow, SeedRow
from crossbreed.storage.states import ENDED

Need = Literal["preview", "train", "profile", "siblings", "nothing"]
WAITING = ("queued", "preempted")
HELD = ("leased", "running")
GIVEN = ("reference", "named")
"""Origins of candidates that were given by hand: they are judged whether or not they reach the front."""
STAND_IN = {
    "decode_tokens_per_s": "decode_flops_per_token",
    "prefill_tokens_per_s": "prefill_flops_per_token",
}
"""Before a speed is measured, rungs compare the FLOPs of its phase instead."""


@dataclass(frozen=True)
class Item:
    """A run that waits for a worker, or to be ended."""

    row: CandidateRow
    seed: SeedRow
    need: Need

    @property
    def again(self) -> bool:
        """Whether the run has ended and is only added to: its state stays."""
        return self.seed.state in ENDED


@dataclass(frozen=True)
class Course:
    """What every run of a study goes through.

    direction:    of the score. rungs: how many.
    forced_rates: at which routed candidates are timed before they are trained, without any they are not; None: nor are others.
    points:       trial number -> operating points at which its runs are judged and timed beside their own decisions.
    """

    direction: Direction
    rungs: int = 1
    forced_rates: tuple[float, ...] | None = ()
    points: Callable[[int], tuple[str, ...]] = lambda number: ()

    def lacks(self, number: int, seed: SeedRow) -> bool:
        """Whether a run has still to be judged or timed at one of its points."""
        found = (seed.points.get(name) for name in self.points(number))
        return any(point is None or not point.evaluations or not point.speeds for point in found)


def needs(row: CandidateRow, course: Course) -> list[Item]:
    """What is left to do for each run of a candidate that waits, by seed: training and evaluation first, then timing.

    The first tuning run is timed before anything is trained (``preview``); its ``siblings`` at the other settings wait for
    it. A tuning run that is trained waits for them: only the best of them is timed, the others need ``nothing`` more.
    """
    waiting = [seed for seed in row.seeds if seed.state in WAITING]
    best = tuning.chosen(row.seeds, course.direction) if waiting else None
    ahead = bool(waiting) and preview.due(row, course.forced_rates)
    first = min((s.seed for s in row.seeds if s.role == "tune" and s.state not in ENDED), default=None)
    settled = bool(waiting) and tuning.settled(row.seeds)
    found = []
    for seed in waiting:
        own = seed.points.get(OWN)
        need: Need = "profile"
        if seed.rungs_done < course.rungs or own is None or not own.evaluations:
            need = "train"
            if ahead and seed.role == "tune":
                need = "preview" if seed.seed == first else "siblings"
        elif seed.role == "tune" and not settled:
            need = "siblings"
        else:
            chosen = seed.role == "report" or (best is not None and best.run_id == seed.run_id)
            if not chosen or (own.speeds and not course.lacks(row.number, seed)):
                need = "nothing"
        found.append(Item(row, seed, need))
    return found


def waiting(rows: Sequence[CandidateRow], course: Course) -> list[Item]:
    """Runs that wait, by trial number and seed."""
    return [item for row in rows for item in needs(row, course)]


def standings(
    rows: Sequence[CandidateRow],
    rung_metrics: Mapping[int, Mapping[int, Mapping[str, float]]],
    objectives: Objectives,
    score: str,
    rungs: int,
) -> list[Standing]:
    """One entry for every rung that all settings of a trial have reached, unless they ended before: the best setting's.

    ``rung_metrics``: run id -> rung -> metrics. Report runs are never compared at rungs.
    """
    found = []
    for row in rows:
        runs = tuning.tuning(row.seeds)
        for rung in range(max((s.rungs_done for s in runs), default=0)):
            there = [s for s in runs if rung in rung_metrics.get(s.run_id, {})]
            if not there or any(s.rungs_done <= rung and s.state not in ENDED for s in runs):
                break
            best = ranked(there, rung, rung_metrics, score, objectives.score_way)[0]
            metrics, ledger = rung_metrics[best.run_id][rung], row.ledger or {}
            values = tuple(_rung_value(n, metrics, ledger, objectives, score) for n in objectives.names)
            waits = any(s.rungs_done == rung + 1 < rungs and s.state in WAITING for s in runs)
            found.append(Standing(row.trial_id, rung, values, waiting=waits))
    return found


def ranked(
    runs: Sequence[SeedRow],
    rung: int,
    rung_metrics: Mapping[int, Mapping[int, Mapping[str, float]]],
    score: str,
    direction: Direction,
) -> list[SeedRow]:
    """Settings of one trial that have reached a rung, best score first; a score that is no number comes last."""
    sign = -1.0 if direction == "max" else 1.0

    def place(seed: SeedRow) -> tuple[bool, float, int]:
        value = rung_metrics[seed.run_id][rung].get(score)
        known = value is not None and math.isfinite(value)
        return not known, sign * value if known and value is not None else 0.0, seed.seed

    return sorted(runs, key=place)


def _rung_value(
    name: str, metrics: Mapping[str, float], ledger: Mapping[str, Any], objectives: Objectives, score: str
) -> float:
    if name == SCORE:
        value = metrics.get(score)
        return math.nan if value is None else value
    quantity = STAND_IN.get(name, name)
    value = float(ledger.get(quantity, math.nan))
    return -value if name in STAND_IN and objectives.directions[name] == "max" else value


def wanted_seeds(
    candidates: Sequence[Candidate], seeds: int, settings: int
) -> list[tuple[Candidate, SeedRow, list[int]]]:
    """Report runs still to be made: candidates with a point on the front, the reference and named genomes get ``seeds`` fresh ones each.

    Each comes with the tuning run that chose its setting. They are numbered after the tuning runs, one for each of ``settings``. Runs that ended in any way count, so that a
    member that diverges on one seed is not tried for ever.
    """
    wanted = []
    members = {c.row.number for c in candidates if c.on_front}
    for candidate in candidates:
        if candidate.point != OWN or candidate.chosen is None:
            continue
        if candidate.row.number not in members and candidate.row.origin not in GIVEN:
            continue
        used = {s.seed for s in candidate.row.seeds}
        free = (n for n in range(settings, settings + seeds + len(used)) if n not in used)
        # Of whatever version of the plugins: those of another one than its numbers are were run all the same.
        made = sum(s.role == "report" for s in candidate.row.seeds)
        missing = [next(free) for _ in range(seeds - made)]
        if missing:
            wanted.append((candidate, candidate.chosen, missing))
    return wanted
