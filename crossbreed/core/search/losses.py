"""Where candidates' losses come from: by class of positions, and along the text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from crossbreed.core.search.candidates import OWN
from crossbreed.core.search.lengths import times_of
from crossbreed.core.search.statistics import OverSeeds
from crossbreed.storage.rows import BreakdownRow

if TYPE_CHECKING:
    import pandas as pd

KEY = ("trial", "seed", "point", "tokens")
SUMS = ("labelled", "accuracy", "loss_nats")

Measure = Literal["loss_nats", "accuracy"]
MEASURES: tuple[Measure, ...] = ("loss_nats", "accuracy")
"""Means over labelled positions: loss in nats a token, and the share that is right."""


@dataclass(frozen=True)
class Part(OverSeeds):
    """Some of the positions of evaluations, over runs.

    name: a class, or the first position of a bin along documents. labelled: positions in one evaluation. by_seed: seed -> mean over
    them; empty where none is labelled.
    """

    name: str | int
    labelled: int
    by_seed: Mapping[int, float]


@dataclass(frozen=True)
class _Cell:
    """Labelled positions of one evaluation, with how many are right and the sum of their losses in nats (None: not finite)."""

    row: BreakdownRow
    name: str | int
    labelled: int
    right: int
    loss_nats: float | None

    def mean(self, of: Measure) -> float | None:
        """None where nothing is labelled, and where it was not finite."""
        total = self.right if of == "accuracy" else self.loss_nats
        return None if total is None or not self.labelled else total / self.labelled


def classes(found: Sequence[BreakdownRow], of: Measure) -> list[Part]:
    """What runs make of each class of positions at the training length, in the task's order."""
    return _parts(_by_class(row for row in _last(found) if row.point == OWN), of)


def along(found: Sequence[BreakdownRow], of: Measure) -> dict[int, list[Part]]:
    """Multiple of the training length -> what runs make of each bin along documents of such texts, first to last."""
    by_times: dict[int, list[BreakdownRow]] = {}
    for row in _last(found):
        times = times_of(row.point)
        if times is not None:
            by_times.setdefault(times, []).append(row)
    return {times: _parts(_by_position(rows), of) for times, rows in sorted(by_times.items())}


def by_class(found: Sequence[BreakdownRow]) -> pd.DataFrame:
    """One row per evaluation and class of positions: labelled positions, the share that is right, mean loss in nats."""
    return _table("class", _by_class(found))


def by_position(found: Sequence[BreakdownRow]) -> pd.DataFrame:
    """One row per evaluation and bin along its documents, named by its first position."""
    return _table("position", _by_position(found))


def _last(found: Sequence[BreakdownRow]) -> Iterable[BreakdownRow]:
    """Of every run and operating point the evaluation after most training."""
    return {(row.number, row.seed, row.point): row for row in found}.values()


def _by_class(found: Iterable[BreakdownRow]) -> Iterator[_Cell]:
    for row in found:
        for part in row.breakdown["classes"]:
            yield _Cell(row, part["class"], part["labelled"], part["right"], part["loss_nats"])


def _by_position(found: Iterable[BreakdownRow]) -> Iterator[_Cell]:
    for row in found:
        bins = row.breakdown["positions"]
        for n, sums in enumerate(zip(bins["labelled"], bins["right"], bins["loss_nats"], strict=True)):
            yield _Cell(row, n * bins["width"], *sums)


def _parts(cells: Iterable[_Cell], of: Measure) -> list[Part]:
    by_name: dict[str | int, list[_Cell]] = {}
    for cell in cells:
        by_name.setdefault(cell.name, []).append(cell)
    return [
        Part(name, same[0].labelled, {c.row.seed: mean for c in same if (mean := c.mean(of)) is not None})
        for name, same in by_name.items()
    ]


def _table(what: str, cells: Iterable[_Cell]) -> pd.DataFrame:
    import pandas as pd

    rows = [
        (c.row.number, c.row.seed, c.row.point, c.row.tokens, c.name, c.labelled, c.mean("accuracy"), c.mean("loss_nats"))
        for c in cells
    ]  # fmt: skip
    # Without a type, a column in which nothing is known would hold objects.
    return pd.DataFrame(rows, columns=[*KEY, what, *SUMS]).astype(dict.fromkeys(MEASURES, float))
