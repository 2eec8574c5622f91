"""Tuning: which of an architecture's settings is its best, known once all of them have run their course.

Every architecture is tuned over the same learning rates, one run each. The best one's is the architecture's setting; the
numbers that are reported come from fresh runs at it, since the best of several noisy scores is too good on average.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from crossbreed.core.search.front import Direction
from crossbreed.storage.rows import PointRow, SeedRow
from crossbreed.storage.states import ENDED

OWN = "own"
USABLE = ("queued", "preempted", "leased", "running", "done", "off_budget")
"""States of a trained run that its architecture may still be judged by; a run that failed afterwards counts as worst."""


def tuning(seeds: Sequence[SeedRow]) -> list[SeedRow]:
    """The runs that choose a setting, by number."""
    return sorted((s for s in seeds if s.role == "tune"), key=lambda s: s.seed)


def own_point(seed: SeedRow) -> PointRow | None:
    """A trained and evaluated run at its own decisions, None before."""
    own = seed.points.get(OWN)
    return own if own is not None and own.evaluations else None


def settled(seeds: Sequence[SeedRow]) -> bool:
    """Whether every setting has been trained and evaluated to the end, or has ended before."""
    return all(s.state in ENDED or own_point(s) is not None for s in tuning(seeds))


def chosen(seeds: Sequence[SeedRow], direction: Direction) -> SeedRow | None:
    """The run of the best setting: within the budget before outside, then by score, then the first of equals.

    None while a setting is still at work, and where none came to a score.
    """
    if not settled(seeds):
        return None
    sign = -1.0 if direction == "max" else 1.0

    def place(seed: SeedRow) -> tuple[bool, float, int]:
        return off_budget(seed) is not None, sign * (_score(seed) or 0.0), seed.seed

    able = [s for s in tuning(seeds) if s.state in USABLE and _score(s) is not None]
    return min(able, key=place, default=None)


def off_budget(seed: SeedRow) -> str | None:
    """Why a run is outside its budget at the rates its routers really chose; None where it is not."""
    own = own_point(seed)
    certificate: dict[str, Any] = (own.certificate if own is not None else None) or {}
    if certificate.get("feasible") is False:
        return str(certificate.get("reason"))
    return seed.cause or seed.state if seed.state == "off_budget" else None


def _score(seed: SeedRow) -> float | None:
    own = own_point(seed)
    return None if own is None else own.evaluations[-1].score
