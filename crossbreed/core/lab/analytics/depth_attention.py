"""Which earlier depths a token attends to (Dreamer, section 9 of its sheet)."""

from __future__ import annotations

from typing import Any

from crossbreed.core.lab.analytics.observation import DEPTH_TOKENS, DEPTH_WEIGHT, Seen
from crossbreed.core.model.state import without_depth


def depth_attention(seen: Seen) -> dict[str, Any]:
    """Mean weight from depth l to depth j, per head, for every mixer that attends over depths; {} without any.

    ``weights[h][i][j]`` belongs to ``sites[i]``; the row of depth l is as long as the depths seen from there, or None where
    no token read.
    """
    mixers: dict[str, dict[str, Any]] = {}
    for site, totals in seen.totals.items():
        if DEPTH_WEIGHT in totals:
            tokens = int(totals[DEPTH_TOKENS])
            mixer = mixers.setdefault(
                without_depth(site),
                {"sites": [], "tokens": [], "weights": [[] for _ in totals[DEPTH_WEIGHT]]},
            )
            mixer["sites"].append(site)
            mixer["tokens"].append(tokens)
            for rows, sum_S in zip(mixer["weights"], totals[DEPTH_WEIGHT], strict=True):
                rows.append((sum_S / tokens).tolist() if tokens else None)
    if not mixers:
        return {}
    return {"rows": seen.rows, "mixers": [{"mixer": name, **found} for name, found in mixers.items()]}
