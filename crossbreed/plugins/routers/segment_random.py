"""Segment-random routing: the schedule Oryx trains under, and the control every clever router must beat."""

from __future__ import annotations

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
        super().__init__(config, build, config.segment)

    def forward(
        self, h_BTD: Tensor, context: Context, state: RouterState | None
    ) -> tuple[Decision, RouterState | None]:
        decision = self.fixed_decision(context)
        if decision is None:
            decision = Decision(self.draw(context, self.config.segment, self.nominal))
        return decision, state
