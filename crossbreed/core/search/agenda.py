"""What each run needs next, read from the tables alone, so that a restarted driver goes on where the last one was."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from crossbreed.core.search.candidates import OWN, SCORE, Candidate, Objectives
from crossbreed.core.search.rungs import Standing
from crossbreed.storage.rows import CandidateRow, SeedRow

Need = Literal["train", "profile", "nothing"]
WAITING = ("queued", "preempted")
HELD = ("leased", "running")
GIVEN = ("reference", "named")
"""Origins of candidates that were given by hand: they are judged whether or not they reach the front."""
STAND_IN = {
    "decode_tokens_per_s": "decode_flops_per_token",
    "prefill_tokens_per_s": "prefill_flops_per_token",
}
"""Before a speed is measured, rungs compare the FLOPs of its phase instead."""


def need(seed: SeedRow, rungs: int) -> Need:
    """What is left to do for a run that has not ended: training and evaluation come first, then timing."""
    own = seed.points.get(OWN)
    if seed.rungs_done < rungs or own is None or not own.evaluations:
        return "train"
    return "nothing" if own.speeds else "profile"


@dataclass(frozen=True)
class Item:
    """A run that waits for a worker."""

    row: CandidateRow
    seed: SeedRow
    need: Need


def waiting(rows: Sequence[CandidateRow], rungs: int) -> list[Item]:
    """Runs that wait, by trial number and seed."""
    return [Item(row, seed, need(seed, rungs)) for row in rows for seed in row.seeds if seed.state in WAITING]


def held(rows: Sequence[CandidateRow]) -> bool:
    """Whether any run is with a worker."""
    return any(seed.state in HELD for row in rows for seed in row.seeds)


def standings(
    rows: Sequence[CandidateRow],
    rung_metrics: Mapping[int, Mapping[int, Mapping[str, float]]],
    objectives: Objectives,
    score: str,
    rungs: int,
) -> list[Standing]:
    """One entry for every rung that the first run of every trial has reached.

    ``rung_metrics``: run id -> rung -> metrics. Later seeds of a trial confirm its mean and are never pruned.
    """
    found = []
    for row in rows:
        if not row.seeds:
            continue
        first = min(row.seeds, key=lambda s: s.run_id)
        for rung, metrics in sorted(rung_metrics.get(first.run_id, {}).items()):
            stays = first.rungs_done == rung + 1 < rungs and first.state == "queued"
            values = tuple(
                _rung_value(n, metrics, row.ledger or {}, objectives, score) for n in objectives.names
            )
            found.append(Standing(first.run_id, rung, values, waiting=stays))
    return found


def _rung_value(
    name: str, metrics: Mapping[str, float], ledger: Mapping[str, Any], objectives: Objectives, score: str
) -> float:
    if name == SCORE:
        value = metrics.get(score)
        return math.nan if value is None else value
    quantity = STAND_IN.get(name, name)
    value = float(ledger.get(quantity, math.nan))
    return -value if name in STAND_IN and objectives.directions[name] == "max" else value


def wanted_seeds(candidates: Sequence[Candidate], seeds: int) -> list[tuple[Candidate, list[int]]]:
    """Fresh seeds still to be run: members of the front, the reference and named genomes get ``seeds`` runs each.

    Runs that ended in any way count, so that a member that diverges on one seed is not tried for ever.
    """
    wanted = []
    for candidate in candidates:
        settled = candidate.on_front or (candidate.row.origin in GIVEN and candidate.seeds)
        if not settled:
            continue
        used = {s.seed for s in candidate.row.seeds}
        free = (n for n in range(seeds + len(used)) if n not in used)
        missing = [next(free) for _ in range(seeds - len(candidate.seeds))]
        if missing:
            wanted.append((candidate, missing))
    return wanted
