"""Segment-random routing: the schedule Oryx trains under, and the control every clever router must beat."""

from __future__ import annotations

from itertools import accumulate

import torch
from torch import Tensor

from crossbreed.core.contracts.context import Context
from crossbreed.core.contracts.router import Decision, RouterBuild, RouterState
from crossbreed.plugins.routers.base import BuiltinRouter
from crossbreed.plugins.routers.configs import SegmentRandomConfig


class SegmentRandom(BuiltinRouter[SegmentRandomConfig]):
    """Draws one choice for each segment of each document (oryx.md section 4: i.i.d. draws, linear 3 to attention 1).

    Costs nothing and has no state.
    """

    def __init__(self, config: SegmentRandomConfig, build: RouterBuild) -> None:
        super().__init__(config, build, None if config.segment == "sequence" else config.segment)
        self.counts = config.counts() if config.balance == "exact" else None

    def forward(
        self, h_BTD: Tensor, context: Context, state: RouterState | None
    ) -> tuple[Decision, RouterState | None]:
        if self.config.draws == "per_batch":
            # Nothing that tells rows apart enters the hash.
            context = context.at(row_id_B=torch.zeros_like(context.row_id_B), document_BT=None)
        if self.counts is not None and self.segment is not None:
            return Decision(self._shuffled(context, self.segment, self.counts)), state
        return Decision(self.draw(context, self.segment, self.nominal)), state

    def _shuffled(self, context: Context, segment: int, counts: tuple[int, ...]) -> Tensor:
        """choice_BT with exactly ``counts`` of each choice in every whole run of segments: the segment of rank r among its
        run's hashes takes the choice of slot r.
        """
        run = sum(counts)
        number_BT = context.positions_BT // segment
        first_BT = number_BT - number_BT % run
        own_BT = context.uniform(context.site, number_BT)
        rank_BT = torch.zeros_like(number_BT)
        for i in range(run):
            rank_BT += context.uniform(context.site, first_BT + i) < own_BT
        choice_BT = torch.zeros_like(rank_BT)
        for edge in accumulate(counts[:-1]):
            choice_BT += rank_BT >= edge
        return choice_BT
