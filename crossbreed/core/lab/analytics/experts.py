"""Which experts work at which depths (Dreamer, section 9 of its sheet): diversity, reuse, specialisation."""

from __future__ import annotations

import math
import statistics
from typing import Any

import numpy as np

from crossbreed.core.lab.analytics.observation import LOAD, Floats, Seen
from crossbreed.core.model.language_model import LanguageModel
from crossbreed.core.model.state import without_depth

TAU = 0.1
"""An expert is used at a depth when its share there reaches this part of the mean share 1 / E."""
MANY_DEPTHS, MANY_SHARE = 7, 0.4
"""Used at many depths: at 7 or more, or at 0.4 L or more (the published figure names no L)."""


def experts(seen: Seen, model: LanguageModel) -> dict[str, Any]:
    """One entry for each pool of experts (weights that several depths share are one pool); {} without any."""
    pools = []
    for sites in model.mixer_sites():
        recorded = {name: None for site in sites for name in seen.totals.get(site, {})}
        for name in recorded:
            label, _, part = name.partition(".")
            if label == LOAD:
                loads = {s: seen.totals[s][name] for s in sites if name in seen.totals.get(s, {})}
                pools.append({"part": part, **_pool(loads)})
    if not pools:
        return {}
    return {"rows": seen.rows, "tau": TAU, "diversity": _spreads(pools), "pools": pools}


def _pool(loads: dict[str, Floats]) -> dict[str, Any]:
    """``loads``: site -> slots per expert, a site for each depth of one pool."""
    load_LE = np.stack(list(loads.values()))
    p_LE = load_LE / np.maximum(load_LE.sum(1, keepdims=True), 1.0)
    depths, count = p_LE.shape
    reuse_E = (p_LE >= TAU / count).sum(0)
    return {
        "sites": list(loads),
        "experts": count,
        "slots": load_LE.sum(1).tolist(),
        "load": [p_E.tolist() if p_E.any() else None for p_E in p_LE],
        "diversity": [diversity(p_E) for p_E in p_LE],
        "reuse": reuse_E.tolist(),
        "used_once": (load_LE > 0).sum(0).tolist(),
        "share_used_at_7": float((reuse_E >= MANY_DEPTHS).mean()),
        "share_used_at_04": float((reuse_E >= MANY_SHARE * depths).mean()),
        "distance": [[js_distance(p, q) for q in p_LE] for p in p_LE],
    }


def diversity(p_E: Floats) -> float | None:
    """exp(entropy) of a distribution: how many equally used experts it is worth. None where nothing was routed."""
    used = p_E[p_E > 0]
    return math.exp(float(-(used * np.log(used)).sum())) if len(used) else None


def js_distance(p_E: Floats, q_E: Floats) -> float | None:
    """Jensen-Shannon distance: the square root of the divergence in bits, 0 for equal and 1 for disjoint ones."""
    if not p_E.sum() or not q_E.sum():
        return None
    middle_E = (p_E + q_E) / 2

    def against_middle(x_E: Floats) -> float:
        on = x_E > 0
        return float((x_E[on] * np.log2(x_E[on] / middle_E[on])).sum())

    return math.sqrt(max(0.0, (against_middle(p_E) + against_middle(q_E)) / 2))


def _spreads(pools: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Least, median and greatest diversity over the depths of each mixer and part, whether depths share a pool or not.

    One mixer's depths alone are alike in a recurrent model and in a layered one, so that their ratio says something.
    """
    found: dict[tuple[str, str], list[float]] = {}
    for pool in pools:
        for site, d in zip(pool["sites"], pool["diversity"], strict=True):
            values = found.setdefault((without_depth(site), pool["part"]), [])
            values += [] if d is None else [d]
    return [
        {"mixer": mixer, "part": part, "min": min(v), "median": statistics.median(v), "max": max(v)}
        for (mixer, part), v in found.items()
        if v
    ]
