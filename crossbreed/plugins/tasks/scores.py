"""Scores from the sums of an evaluation."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from crossbreed.core.contracts.task import IGNORE, Totals
from crossbreed.core.errors import ConfigError


def accuracy(task: str, totals: Totals) -> dict[str, float]:
    """Share of scored positions that are right, whichever classes occur, and the mean loss in nats.

    Raises ConfigError where nothing was scored: a mean of nothing is no score.
    """
    if totals.scored == 0:
        raise ConfigError(f"task {task!r} was evaluated on 0 scored positions; an accuracy needs at least 1.")
    return {"accuracy": totals.correct / totals.scored, "loss_nats": totals.loss_nats / totals.scored}


def most_frequent(labels: NDArray[np.int64]) -> dict[str, float]:
    """What the one answer scores that is right most often, where answers are not equally likely."""
    counts = np.unique(labels[labels != IGNORE], return_counts=True)[1]
    return {"most frequent answer": float(counts.max() / counts.sum())}
