"""Segment-random routing: the schedule Oryx trains under, and the control every clever router must beat."""

from __future__ import annotations

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

    def forward(
        self, h_BTD: Tensor, context: Context, state: RouterState | None
    ) -> tuple[Decision, RouterState | None]:
        if self.config.draws == "per_batch":
            # Nothing that tells rows apart enters the hash.
            context = context.at(row_id_B=torch.zeros_like(context.row_id_B), document_BT=None)
        return Decision(self.draw(context, self.segment, self.nominal)), state
