"""The preview: a candidate timed before it is trained, under forced rates where routers will decide."""

from __future__ import annotations

from collections.abc import Iterable

from crossbreed.core.search import tuning
from crossbreed.core.search.tuning import OWN
from crossbreed.storage.rows import CandidateRow, PointRow

FORCED = "forced:"


def routed(row: CandidateRow) -> bool:
    """Whether a candidate has sites at which a router decides."""
    return bool((row.ledger or {}).get("rates"))


def points(row: CandidateRow, forced_rates: Iterable[float] | None) -> tuple[str, ...]:
    """Operating points at which a candidate is timed before it is trained; none where nothing could be said then, or where no
    candidate is timed so early (``forced_rates`` is None)."""
    if forced_rates is None:
        return ()
    return tuple(f"{FORCED}{rate:g}" for rate in forced_rates) if routed(row) else (OWN,)


def timed(row: CandidateRow) -> list[PointRow]:
    """The points at which a candidate was timed before training, on whichever tuning run that was."""
    for run in tuning.tuning(row.seeds):
        found = [
            p
            for p in run.points.values()
            if p.speeds and (p.name.startswith(FORCED) if routed(row) else p.name == OWN)
        ]
        if found:
            return found
    return []


def due(row: CandidateRow, forced_rates: Iterable[float] | None) -> bool:
    """Whether a candidate is still to be timed before it is trained."""
    if any(s.rungs_done > 0 for s in row.seeds):
        return False
    return not set(points(row, forced_rates)) <= {p.name for p in timed(row)}


def untrained(row: CandidateRow) -> bool:
    """Whether no run of a candidate has come to a rung yet."""
    return bool(row.seeds) and all(s.rungs_done == 0 for s in row.seeds)
