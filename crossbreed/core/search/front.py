"""Fronts: who is dominated by whom, in layers, with crowding and hypervolume. Pure mathematics on arrays.

Legend: N points, M objectives; ``directions`` has one of ``"max"`` and ``"min"`` per objective.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Direction = Literal["max", "min"]
Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]

BLOCK = 512
"""Rows compared at once: keeps pairwise arrays small for tens of thousands of points."""


def losses(values: object, directions: Sequence[Direction]) -> Floats:
    """``values`` (N, M) with every objective turned so that smaller is better. Raises ValueError on a wrong shape."""
    array = np.asarray(values, dtype=np.float64).reshape(-1, len(directions))
    unknown = [d for d in directions if d not in ("max", "min")]
    if unknown:
        raise ValueError(f"an objective's direction is 'max' or 'min', got {unknown[0]!r}")
    return array * np.where(np.asarray(directions) == "max", -1.0, 1.0)


def non_dominated(values: object, directions: Sequence[Direction]) -> Mask:
    """(N,) True where no other row is at least as good in all objectives and better in one.

    Equal rows are all kept. A row with a NaN or an infinity is never on the front and dominates nobody.
    """
    loss_NM = losses(values, directions)
    keep_N = np.zeros(len(loss_NM), dtype=np.bool_)
    index = np.flatnonzero(_finite(loss_NM))
    # In lexical order nobody is dominated by a later row, so each block meets only the front of those before it.
    index = index[np.lexsort(loss_NM[index].T[::-1])]
    front_FM = np.empty((0, loss_NM.shape[1]))
    for start in range(0, len(index), BLOCK):
        block = index[start : start + BLOCK]
        block = block[~_dominated(loss_NM[block], front_FM)]
        block = block[~_dominated(loss_NM[block], loss_NM[block])]
        keep_N[block] = True
        front_FM = np.concatenate((front_FM, loss_NM[block]))
    return keep_N


def _dominated(rows_NM: Floats, by_KM: Floats) -> Mask:
    """(N,) whether a row is dominated by any of ``by_KM``; smaller is better."""
    found_N = np.zeros(len(rows_NM), dtype=np.bool_)
    for start in range(0, len(by_KM), BLOCK):
        rivals_KM = by_KM[start : start + BLOCK]
        no_worse_NK = np.ones((len(rows_NM), len(rivals_KM)), dtype=np.bool_)
        better_NK = np.zeros_like(no_worse_NK)
        for m in range(rows_NM.shape[1]):
            no_worse_NK &= rivals_KM[:, m] <= rows_NM[:, m, None]
            better_NK |= rivals_KM[:, m] < rows_NM[:, m, None]
        found_N |= np.any(no_worse_NK & better_NK, axis=1)
    return found_N


def ranks(values: object, directions: Sequence[Direction]) -> NDArray[np.int64]:
    """(N,) layer of each row: 0 on the front, 1 on the front of the rest, and so on; rows not finite come last."""
    loss_NM = losses(values, directions)
    rank_N = np.full(len(loss_NM), -1, dtype=np.int64)
    left_N = _finite(loss_NM)
    layer = 0
    while left_N.any():
        index = np.flatnonzero(left_N)
        index = index[non_dominated(loss_NM[index], ["min"] * len(directions))]
        rank_N[index] = layer
        left_N[index] = False
        layer += 1
    rank_N[rank_N < 0] = layer
    return rank_N


def crowding(values: object, directions: Sequence[Direction]) -> Floats:
    """(N,) crowding distance of each row among its layer (Deb 2002, NSGA-II): extremes are infinite, crowds small."""
    loss_NM = losses(values, directions)
    rank_N = ranks(values, directions)
    distance_N = np.zeros(len(loss_NM))
    for layer in np.unique(rank_N):
        index = np.flatnonzero(rank_N == layer)
        rows = loss_NM[index]
        if not np.isfinite(rows).all():
            continue
        for m in range(rows.shape[1]):
            order = index[np.argsort(rows[:, m], kind="stable")]
            column = loss_NM[order, m]
            span = column[-1] - column[0]
            distance_N[order[[0, -1]]] = np.inf
            if span > 0:
                distance_N[order[1:-1]] += (column[2:] - column[:-2]) / span
    return distance_N


def best_first(values: object, directions: Sequence[Direction]) -> NDArray[np.int64]:
    """Row numbers by layer, then by crowding (lonely ones first), then by number."""
    return np.lexsort((-crowding(values, directions), ranks(values, directions))).astype(np.int64)


def hypervolume(values: object, directions: Sequence[Direction], reference: Sequence[float]) -> float:
    """Volume between the front of ``values`` and a fixed ``reference`` point, exact in any number of objectives.

    A point that is not better than the reference in every objective adds nothing. Raises ValueError when the reference
    is not finite.
    """
    loss_NM = losses(values, directions)
    reference_M = losses([reference], directions)[0]
    if not np.isfinite(reference_M).all():
        raise ValueError(f"the hypervolume's reference point must be finite, got {list(reference)}")
    inside_N = _finite(loss_NM) & np.all(loss_NM < reference_M, axis=1)
    return _volume(loss_NM[inside_N], reference_M)


def _finite(loss_NM: Floats) -> Mask:
    """(N,) rows without a NaN or an infinity."""
    return np.asarray(np.isfinite(loss_NM).all(axis=1), dtype=np.bool_)


def _volume(loss_NM: Floats, reference_M: Floats) -> float:
    """Slice along the last objective and sum the volumes of the slices, each one objective lower."""
    if not len(loss_NM):
        return 0.0
    if loss_NM.shape[1] == 1:
        return float(reference_M[0] - loss_NM.min())
    front_NM = loss_NM[non_dominated(loss_NM, ["min"] * loss_NM.shape[1])]
    front_NM = front_NM[np.argsort(front_NM[:, -1], kind="stable")]
    edges = np.append(front_NM[:, -1], reference_M[-1])
    return float(
        sum(
            _volume(front_NM[: i + 1, :-1], reference_M[:-1]) * (edges[i + 1] - edges[i])
            for i in range(len(front_NM))
            if edges[i + 1] > edges[i]
        )
    )
