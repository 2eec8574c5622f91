"""What a mixer costs at one depth, and on average over tokens that do not all go equally deep.

A depth mixer states the mean over all depths of a stage. The first d depths of a deep stage cost what a stage of d depths
does, so that two means give one depth: (d + 1) mean(d + 1) - d mean(d).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import starmap

from crossbreed.core.contracts.capabilities import Execution
from crossbreed.core.ledger import Cost, Phase, Work
from crossbreed.plugins.costs.bill import PHASES, PerPhase, Triple

Mean = Callable[[int], PerPhase]
"""Costs of a mixer in a stage of so many depths."""


def reads_at(mean: Mean, depth: int, phase: int) -> tuple[Work, ...]:
    """The reads at one depth, the first being 0."""
    through = [read.times(depth + 1) for read in mean(depth + 1)[phase].reads]
    if not depth:
        return tuple(through)
    before = [read.times(-depth) for read in mean(depth)[phase].reads]
    return tuple(starmap(Work.plus, zip(through, before, strict=True)))


def weighed(
    mean: Mean,
    depths: tuple[int, ...],
    reached: list[Triple],
    costs: PerPhase,
    execution: Mapping[Phase, Execution],
) -> PerPhase:
    """``costs`` with reads that are means over the tokens which read at each of ``depths``, where a phase skips work.

    Where it computes and masks, every depth counts the same.
    """
    found: list[Cost] = []
    for p, phase in enumerate(PHASES):
        shares = [tokens[p] if execution[phase] == "sparse" else 1.0 for tokens in reached]
        total = sum(shares)
        reads = costs[p].reads
        if total:
            at = [reads_at(mean, depth, p) for depth in depths]
            reads = tuple(
                _sum([work[i].times(share / total) for work, share in zip(at, shares, strict=True)])
                for i in range(len(reads))
            )
        found.append(costs[p]._replace(reads=reads))
    train, prefill, decode = found
    return train, prefill, decode


def _sum(works: list[Work]) -> Work:
    total = Work()
    for work in works:
        total = total.plus(work)
    return total
