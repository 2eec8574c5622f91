"""Where an evaluation's loss comes from: sums by the task's classes of positions, and along documents."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from crossbreed.core.contracts.task import IGNORE, TokenClasses

MOST_BINS = 256
"""Bins along a text: shorter ones have every position for itself."""

VERSION = 1
"""Of the form that is stored; a change of meaning or of names raises it."""


class Breakdown:
    """Sums over labelled positions, counted or not by the score, of texts of ``length`` tokens.

    ``width``: successive positions in a bin. Positions restart with each document.
    """

    def __init__(self, length: int) -> None:
        self.width = -(-length // MOST_BINS)
        self._bins = -(-length // self.width)
        self._names: tuple[str, ...] = ()
        self._by_class: list[Tensor] = []
        self._by_position: list[Tensor] = []

    def add(
        self,
        labels_BT: Tensor,
        positions_BT: Tensor,
        classes: TokenClasses,
        nats_BT: Tensor,
        right_BT: Tensor,
    ) -> None:
        """The tokens of one batch."""
        self._names = classes.names
        labelled_BT = labels_BT != IGNORE
        facts_3M = torch.stack(
            [fact_BT[labelled_BT].double() for fact_BT in (labelled_BT, right_BT, nats_BT)]
        )
        self._by_class.append(_sums(classes.class_BT[labelled_BT], facts_3M, len(classes.names)))
        self._by_position.append(_sums(positions_BT[labelled_BT] // self.width, facts_3M, self._bins))

    def as_dict(self) -> dict[str, Any]:
        """Plain data: for each class its name, labelled positions, right ones and the sum of their losses in nats; the same in
        lists along the text."""
        by_class = _together(self._by_class)
        labelled, right, nats = zip(*_together(self._by_position), strict=True)
        return {
            "version": VERSION,
            "classes": [
                {"class": name, "labelled": int(labelled), "right": int(right), "loss_nats": nats}
                for name, (labelled, right, nats) in zip(self._names, by_class, strict=True)
            ],
            "positions": {
                "width": self.width,
                "labelled": [int(n) for n in labelled],
                "right": [int(n) for n in right],
                "loss_nats": list(nats),
            },
        }


def _sums(bin_M: Tensor, facts_3M: Tensor, bins: int) -> Tensor:
    return torch.stack([torch.bincount(bin_M, fact_M, minlength=bins) for fact_M in facts_3M], dim=1)


def _together(sums: list[Tensor]) -> list[list[float]]:
    found: list[list[float]] = torch.stack(sums).sum(dim=0).tolist()
    return found
