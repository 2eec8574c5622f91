"""Where candidates' losses come from: tables by class of positions and along the text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from crossbreed.storage.rows import BreakdownRow

if TYPE_CHECKING:
    import pandas as pd

KEY = ("trial", "seed", "point", "tokens")
SUMS = ("labelled", "accuracy", "loss_nats")


def by_class(found: Sequence[BreakdownRow]) -> pd.DataFrame:
    """One row per evaluation and class of positions: labelled positions, the share that is right, mean loss in nats."""
    return _table("class", [(row, part["class"], part) for row in found for part in row.breakdown["classes"]])


def by_position(found: Sequence[BreakdownRow]) -> pd.DataFrame:
    """One row per evaluation and bin along its documents, named by its first position."""
    cells = []
    for row in found:
        along = row.breakdown["positions"]
        sums = zip(along["labelled"], along["right"], along["loss_nats"], strict=True)
        for n, part in enumerate(sums):
            at = dict(zip(("labelled", "right", "loss_nats"), part, strict=True))
            cells.append((row, n * along["width"], at))
    return _table("position", cells)


def _table(what: str, cells: Sequence[tuple[BreakdownRow, Any, dict[str, Any]]]) -> pd.DataFrame:
    import pandas as pd

    rows = []
    for row, name, part in cells:
        labelled = part["labelled"]
        # Of no positions there is no mean.
        means = (part["right"] / labelled, part["loss_nats"] / labelled) if labelled else (None, None)
        rows.append((row.number, row.seed, row.point, row.tokens, name, labelled, *means))
    return pd.DataFrame(rows, columns=[*KEY, what, *SUMS])
