"""The candidates that matter to a study's front, read without the rest: a front of thousands is asked for often."""

from __future__ import annotations

import numpy as np

from crossbreed.core.ledger import QUANTITIES
from crossbreed.core.search.candidates import OWN, SCORE, Candidate, Objectives, read
from crossbreed.core.search.front import Floats, losses, non_dominated
from crossbreed.core.search.statistics import MIN_SEEDS
from crossbreed.storage import Repository
from crossbreed.storage.extremes import Bounds

MANY = 10_000
"""Candidates that a statement can name; where more matter, all are read."""


def front_candidates(
    repository: Repository, study_id: int, objectives: Objectives
) -> tuple[list[Candidate], Objectives]:
    """All candidates that are on the front or have a say in who is, and the objectives with their keys.

    A candidate of fewer than three report runs is left out when another such one is better whatever their seeds count for: its worst
    values dominate the other's best. Who is on the front, and with which probability, is as among all candidates.
    """
    objectives = fix_keys(repository, study_id, objectives)
    keys = objectives.keys
    bounds = repository.bounds(
        study_id,
        score=SCORE if SCORE in objectives.directions else None,
        speeds={name: keys[name] for name in objectives.speeds if name in keys},
        quantities=[name for name in objectives.names if name in QUANTITIES],
        points=objectives.points,
    )
    numbers = relevant(bounds, objectives)
    rows = repository.candidates(
        study_id, points=objectives.points, numbers=numbers if len(numbers) < MANY else None
    )
    return read(rows, objectives), objectives


def fix_keys(repository: Repository, study_id: int, objectives: Objectives) -> Objectives:
    """The objectives with the key that most measurements of the study were made under (see ``Objectives.over``)."""
    counts = {name: repository.speed_keys(study_id, name, OWN) for name in objectives.speeds}
    return objectives.with_keys(counts)


def relevant(bounds: list[Bounds], objectives: Objectives) -> list[int]:
    """Numbers of the candidates that may be on the front or change who is."""
    whole = [b for b in bounds if all(name in b.spans for name in objectives.names)]
    few = [b for b in whole if b.reports < MIN_SEEDS]
    many = [b.number for b in whole if b.reports >= MIN_SEEDS]
    if not few:
        return many
    best_NM = _corner(few, objectives, worst=False)
    # Only what surely may stand on the front can keep others away from it: its runs have ended well.
    sure_N = np.array([b.runs == b.done for b in few])
    worst_KM = _corner(few, objectives, worst=True)[sure_N]
    worst_KM = worst_KM[non_dominated(worst_KM, ["min"] * len(objectives.names))]
    behind_N = np.zeros(len(few), dtype=np.bool_)
    for rival_M in worst_KM:
        behind_N |= np.all(rival_M <= best_NM, axis=1) & np.any(rival_M < best_NM, axis=1)
    return sorted([*many, *(b.number for b, behind in zip(few, behind_N, strict=True) if not behind)])


def _corner(bounds: list[Bounds], objectives: Objectives, *, worst: bool) -> Floats:
    """(N, M) losses at the worst or the best end of each span."""
    spans_NM2 = np.array([[b.spans[name] for name in objectives.names] for b in bounds])
    end_M = [int((way == "max") != worst) for way in objectives.ways]
    return losses(spans_NM2[:, np.arange(len(end_M)), end_M], objectives.ways)
