"""Scores from the sums of an evaluation, and the report on what training and evaluation share."""

from __future__ import annotations

from typing import NamedTuple

from crossbreed.core.contracts.task import Totals
from crossbreed.core.errors import ConfigError


class Overlap(NamedTuple):
    """Distinct rows seen in training, distinct evaluation rows, and those that are in both."""

    training: int
    evaluation: int
    shared: int


def accuracy(task: str, totals: Totals) -> dict[str, float]:
    """Share of scored positions that are right, whichever classes occur, and the mean loss in nats.

    Raises ConfigError where nothing was scored: a mean of nothing is no score.
    """
    if totals.scored == 0:
        raise ConfigError(f"task {task!r} was evaluated on 0 scored positions; an accuracy needs at least 1.")
    return {"accuracy": totals.correct / totals.scored, "loss_nats": totals.loss_nats / totals.scored}
