"""Sparse experts: Dreamer's expert attention (arXiv 2601.21582), y = sum over a token's slots of weight times MLP(u).

Legend: N tokens read, E experts with the shared ones, F expert width. The routing is in ``expert_routing``.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from crossbreed.core.contracts.context import Context
from crossbreed.core.contracts.mixer import Mixer, MixerBuild, State
from crossbreed.core.contracts.parts import Parts
from crossbreed.core.ledger import Cost, Shape, Work
from crossbreed.core.ops.routed_linear import routed_swiglu
from crossbreed.plugins.mixers.accounting import input_kept
from crossbreed.plugins.mixers.backends import check_backend
from crossbreed.plugins.mixers.configs import ExpertsConfig
from crossbreed.plugins.mixers.expert_routing import ExpertRouter, Route
from crossbreed.plugins.mixers.reading import masked, read_mask

INIT_STD = 0.02


class Experts(Mixer, nn.Module):
    """Top-k of E expert layers beside S shared ones. Tokens that are not read are not computed, in every phase."""

    def __init__(self, config: ExpertsConfig, build: MixerBuild) -> None:
        super().__init__()
        check_backend("experts", build.backend)
        self.config, D = config, build.d_model
        self.gate_EDF = nn.Parameter(torch.empty(config.stored, D, config.hidden))
        self.up_EDF = nn.Parameter(torch.empty(config.stored, D, config.hidden))
        self.down_EFD = nn.Parameter(torch.empty(config.stored, config.hidden, D))
        for weight in self.parameters():
            nn.init.normal_(weight, std=INIT_STD)
        self.router = ExpertRouter(config, D, build.depths)

    def forward(
        self, x_BTD: Tensor, context: Context, state: State | None, read_BT: Tensor | None = None
    ) -> tuple[Tensor, State | None]:
        read_BT = read_mask(read_BT, context)
        if context.recorded and read_BT is not None:
            every_BTD, _ = self.forward(x_BTD, context.at(valid_BT=None), None)
            return masked(every_BTD, read_BT), state
        x_ND = x_BTD.flatten(0, 1) if read_BT is None else x_BTD[read_BT]
        route: Route = self.router(x_ND, context)
        if context.recording:
            counted_BT = context.counted_BT()
            counted_N = counted_BT.flatten() if read_BT is None else counted_BT[read_BT]
            self.router.record(route, counted_N, context)
        y_ND = routed_swiglu(x_ND, self.gate_EDF, self.up_EDF, self.down_EFD, route.dispatch, route.weight_NJ)
        if read_BT is None:
            return y_ND.view_as(x_BTD), state
        y_BTD = torch.zeros_like(x_BTD)
        y_BTD[read_BT] = y_ND.to(y_BTD.dtype)
        return y_BTD, state

    def after_step(self, statistics: list[dict[str, Any]]) -> None:
        self.router.after_step(statistics)

    def no_weight_decay(self) -> frozenset[str]:
        return frozenset(f"router.{name}" for name in self.router.no_weight_decay())

    def output_parameters(self) -> frozenset[str]:
        return frozenset({"down_EFD"})

    @staticmethod
    def cost(config: Any, d_model: int, shape: Shape, depths: int = 1, parts: Parts | None = None) -> Cost:
        """The router and the experts of a token, all read; every expert is stored."""
        router = ExpertRouter.cost(config, d_model)
        expert = 3 * d_model * config.hidden
        used = router.parameters + expert * config.slots
        kept = ExpertRouter.kept(config, shape) + _kept(config, d_model, shape)
        return Cost(
            reads=(Work.product(router.flops + 2.0 * expert * config.slots, weights=used, kept_bytes=kept),),
            parameters=router.parameters + expert * config.stored,
            active_parameters=used,
        )


def _kept(config: ExpertsConfig, d_model: int, shape: Shape) -> float:
    """Kept of one token: the input; for each slot its rows, four hidden layers and the result."""
    slot = input_kept(d_model, 2, shape) + (4 * config.hidden + d_model) * shape.dtype_bytes
    return d_model * shape.wide_bytes + config.slots * slot
