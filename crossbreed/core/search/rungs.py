"""Which candidates go on to their next rung: successive halving over several objectives, decided as results come in.

A rung's candidates are ordered by non-dominated layer, then crowding (MO-ASHA, Schmucker et al. 2021, with NSGA-II's
order). The best 1/reduction of them go on; the others wait, and are pruned when nothing better can come any more.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from crossbreed.core.search.front import Direction, best_first


@dataclass(frozen=True)
class Standing:
    """A candidate whose training has reached the end of ``rung`` (from 0), with its objectives there.

    ``waiting``: it stopped there and has neither gone on nor ended.
    """

    trial_id: int
    rung: int
    values: tuple[float, ...]
    waiting: bool


def promotions(
    standings: Iterable[Standing],
    directions: Sequence[Direction],
    reduction: float,
    rungs: int,
    *,
    closing: bool,
) -> list[tuple[int, int]]:
    """Waiting candidates, as (trial id, rung), that may go on, those on the highest rung first.

    ``standings`` has one entry for every rung that every candidate has reached. ``closing``: none can still reach a lower
    rung, so shares are rounded up and at least one of each rung goes on. Nobody goes on without finite values.

    A share is of those that have reached the rung so far, so an early best that is overtaken later has gone on as well.
    """
    by_rung: dict[int, list[Standing]] = {}
    for standing in standings:
        by_rung.setdefault(standing.rung, []).append(standing)
    chosen = []
    for rung in sorted(by_rung, reverse=True):
        if rung >= rungs - 1:
            continue
        there = sorted(by_rung[rung], key=lambda s: s.trial_id)
        share = len(there) / reduction
        quota = math.ceil(share) if closing else math.floor(share)
        order = best_first([s.values for s in there], directions)
        chosen += [
            (there[i].trial_id, rung)
            for i in order[:quota]
            if there[i].waiting and all(map(math.isfinite, there[i].values))
        ]
    return chosen


def evidence(
    standings: Iterable[Standing], done: int, enough: int, rungs: int
) -> dict[int, tuple[float, ...]] | None:
    """What a sampler learns from: trial id -> values at the highest rung that ``enough`` of them have reached, else the first.

    None where whole runs say enough: ``done`` of them are at least ``enough``, or there is one rung only. All values are of one
    rung, so they compare; a candidate that has not reached it teaches nothing (BOHB's rule, Falkner et al. 2018).
    """
    if rungs == 1 or done >= enough:
        return None
    at: dict[int, dict[int, tuple[float, ...]]] = {}
    for standing in standings:
        if standing.rung < rungs - 1:
            at.setdefault(standing.rung, {})[standing.trial_id] = standing.values
    reached = [rung for rung, values in at.items() if len(values) >= enough]
    return at.get(max(reached, default=0), {})
