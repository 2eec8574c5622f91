"""A table of recorded learning curves, read for replay."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

from crossbreed.core.search.front import Direction, hypervolume, non_dominated

HERE = Path(__file__).resolve().parent
WAYS: tuple[Direction, Direction] = ("max", "min")
"""Score, then decode FLOPs per token at the table's context: known from the ledger before anything is trained."""
TURNED = "-turned"
PLAIN = json.dumps(
    {
        "channel": 3,
        "d_model": 32,
        "gate": "none",
        "heads": 2,
        "layer0.sequence": "attention",
        "layer1.sequence": "attention",
        "passes": 1,
    }
)
"""Draws of the smallest Transformer whose channel mixer is as wide as usual."""


@dataclass(frozen=True)
class Curves:
    """Recorded scores by configuration (N of them) and checkpoint, for seed 0.

    draws:    answers of the replay grid that lead to each configuration, as sorted JSON.
    shares:   checkpoints as shares of a run's tokens.
    score_NC: score at each checkpoint. cost_N: decode FLOPs per token.
    bound:    the best score there is, where the task has one.
    """

    name: str
    tokens: int
    draws: list[str]
    shares: tuple[float, ...]
    score_NC: NDArray[np.float64]
    cost_N: NDArray[np.float64]
    chance: float
    bound: float | None

    @staticmethod
    def read(name: str) -> Curves:
        """A table by name; with "-turned" behind it, what was cheapest costs most and so on. Raises FileNotFoundError when it
        was not recorded."""
        if name.endswith(TURNED):
            plain = Curves.read(name.removesuffix(TURNED))
            return replace(plain, name=name, cost_N=plain.cost_N.max() + plain.cost_N.min() - plain.cost_N)
        stored = pq.read_table(HERE / f"{name}.parquet")
        said = json.loads(stored.schema.metadata[b"recorded"])
        frame = stored.to_pandas()
        first = frame[frame.seed == 0].sort_values(["configuration", "share"])
        score = first.pivot(index="configuration", columns="share", values="score")
        each = first.drop_duplicates("configuration").set_index("configuration").loc[score.index]
        return Curves(
            name,
            int(said["recipe"]["tokens"]),
            list(each.draws),
            tuple(score.columns),
            score.to_numpy(),
            each.decode_flops_at_context.to_numpy(),
            said["score"]["chance"],
            said["score"]["bound"],
        )

    @property
    def reference(self) -> tuple[float, float]:
        """Where hypervolume is measured from: chance, and twice the cost of the plain Transformer.

        This is the driver's rule for a study that names that Transformer as its reference.
        """
        return self.chance, 2 * float(self.cost_N[self._index[PLAIN]])

    def volume(self, rows: list[int]) -> float:
        """Hypervolume of fully trained configurations."""
        return hypervolume(self.final(rows), WAYS, self.reference)

    def final(self, rows: list[int]) -> NDArray[np.float64]:
        return np.column_stack([self.score_NC[rows, -1], self.cost_N[rows]])

    def whole(self) -> float:
        """Hypervolume of the whole table: what a search that trains everything ends with."""
        return self.volume(list(range(len(self.draws))))

    def front(self) -> list[int]:
        every = list(range(len(self.draws)))
        return [int(i) for i in np.flatnonzero(non_dominated(self.final(every), WAYS))]

    def index(self, draws: dict[str, Any]) -> int | None:
        """The configuration that draws lead to, or None where it was not recorded."""
        return self._index.get(json.dumps(draws, sort_keys=True))

    @property
    def _index(self) -> dict[str, int]:
        found: dict[str, int] = self.__dict__.setdefault(
            "_known", {text: i for i, text in enumerate(self.draws)}
        )
        return found
