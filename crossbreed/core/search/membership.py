"""How surely a candidate stands on the front: its place among means that are drawn from what its seeds leave open."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from crossbreed.core.ledger import QUANTITIES
from crossbreed.core.search.candidates import Candidate, Objectives
from crossbreed.core.search.front import losses, non_dominated
from crossbreed.core.search.statistics import MIN_SEEDS

DRAWS = 2000
"""Standard error of a probability: at most 0.011."""
BLOCK = 4_000_000
"""Comparisons made at once, which bounds memory."""
SEED = 0x66726F6E74


def front_probabilities(
    candidates: Sequence[Candidate], objectives: Objectives, draws: int = DRAWS
) -> dict[tuple[int, str], float]:
    """Candidate's ``key`` -> probability of being non-dominated, for candidates of three seeds or more.

    In each of ``draws`` draws a candidate's mean in each measured objective is its observed mean plus its standard error
    times a Student t with n - 1 degrees of freedom: the distribution that its t interval is cut from. Quantities of the
    ledger are exact where no router moved them. A candidate of fewer seeds has no probability, since nothing is known of its spread, and stands in
    everybody's way at its mean. What may not stand on the front takes no part. Points of one candidate are drawn apart, though its runs are the
    same. Equal input gives equal numbers.
    """
    running = [
        c for c in candidates if c.eligible and all(math.isfinite(c.means[n]) for n in objectives.names)
    ]
    known = [c for c in running if _spread_known(c, objectives)]
    if not known:
        return {}
    fixed_FM = losses([_means(c, objectives) for c in running if c not in known], objectives.ways)
    fixed_FM = fixed_FM[non_dominated(fixed_FM, ["min"] * len(objectives.ways))]
    mean_KM = losses([_means(c, objectives) for c in known], objectives.ways)
    error_KM = np.array([[_error(c.by_seed[n]) for n in objectives.names] for c in known])
    degrees_KM = np.array([[max(1, len(c.by_seed[n]) - 1) for n in objectives.names] for c in known])
    # A counter-based generator with a fixed seed: the same study shows the same numbers each time.
    random = np.random.Generator(np.random.Philox(SEED))
    on_front_K = np.zeros(len(known))
    at_once = max(1, BLOCK // (len(known) * (len(known) + len(fixed_FM))))
    for start in range(0, draws, at_once):
        count = min(at_once, draws - start)
        t_SKM = random.standard_t(degrees_KM, size=(count, *mean_KM.shape))
        on_front_K += _non_dominated(mean_KM + error_KM * t_SKM, fixed_FM).sum(axis=0)
    return {c.key: float(hits / draws) for c, hits in zip(known, on_front_K, strict=True)}


def _non_dominated(drawn_SKM: NDArray[np.float64], fixed_FM: NDArray[np.float64]) -> NDArray[np.bool_]:
    """(S, K) whether point k of draw s is dominated by none of its draw, nor by a fixed one; smaller is better."""
    samples, _, width = drawn_SKM.shape
    fixed_SFM = np.broadcast_to(fixed_FM, (samples, len(fixed_FM), width))
    rivals_SRM = np.concatenate((drawn_SKM, fixed_SFM), axis=1)
    no_worse = np.ones((samples, drawn_SKM.shape[1], rivals_SRM.shape[1]), dtype=np.bool_)
    better = np.zeros_like(no_worse)
    for m in range(width):
        mine, theirs = drawn_SKM[:, :, None, m], rivals_SRM[:, None, :, m]
        no_worse &= theirs <= mine
        better |= theirs < mine
    return np.asarray(~np.any(no_worse & better, axis=2), dtype=np.bool_)


def _spread_known(candidate: Candidate, objectives: Objectives) -> bool:
    return all(len(candidate.by_seed[n]) >= MIN_SEEDS for n in objectives.names if n not in QUANTITIES)


def _means(candidate: Candidate, objectives: Objectives) -> list[float]:
    return [candidate.means[n] for n in objectives.names]


def _error(by_seed: Mapping[int, float]) -> float:
    """Standard error of the mean; equal values have none, nor has one alone, which only the ledger may have here."""
    values = list(by_seed.values())
    if len(set(values)) <= 1:
        return 0.0
    mean = math.fsum(values) / len(values)
    return math.sqrt(math.fsum((v - mean) ** 2 for v in values) / (len(values) - 1) / len(values))
