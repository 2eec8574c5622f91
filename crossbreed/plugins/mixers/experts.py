"""Sparse experts: Dreamer's expert attention (arXiv 2601.21582) with bias balancing in the manner of DeepSeek-V3.

    s = RoSE(u W_r) K_E^T,   A = the top k of s + b,   Z = sum_{e in A} sigmoid(s_e) + S c,
    y = sum_{e in A} sigmoid(s_e)/Z MLP_e(u) + c/Z sum of the S shared MLPs.

Legend: N tokens read, E routed experts, S shared ones, J = k + S slots of a token, F expert width, R router key size.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from crossbreed.core.contracts.context import Context
from crossbreed.core.contracts.mixer import Mixer, MixerBuild, State
from crossbreed.core.contracts.parts import Parts
from crossbreed.core.ledger import Cost, Shape, Work
from crossbreed.core.ops.rotary import rotary
from crossbreed.core.ops.routed_linear import routed_swiglu
from crossbreed.plugins.mixers.accounting import input_kept
from crossbreed.plugins.mixers.configs import ExpertsConfig
from crossbreed.plugins.mixers.reading import check_backend, read_mask

INIT_STD = 0.02
INDEX_BYTES = 8
DEPTH_THETA = 100.0
"""Base of the depth rotation: depths stay below 32 or so, where a large base leaves most pairs unrotated."""


class Experts(Mixer, nn.Module):
    """Top-k of E expert layers beside S shared ones. Tokens that are not read are not computed, in every phase.

    Scores are fp32 at least. The selection bias is no parameter: after each optimiser step it moves by ``bias_rate``
    towards the experts that got less than their share, over all depths (one bias for all, so that depths may differ).
    """

    balance_E: Tensor

    def __init__(self, config: ExpertsConfig, build: MixerBuild) -> None:
        super().__init__()
        check_backend("experts", build.backend)
        self.config, D, total = config, build.d_model, config.experts + config.shared
        self.gate_EDF = nn.Parameter(torch.empty(total, D, config.hidden))
        self.up_EDF = nn.Parameter(torch.empty(total, D, config.hidden))
        self.down_EFD = nn.Parameter(torch.empty(total, config.hidden, D))
        self.query_RD: nn.Parameter | None = None
        if config.router_key is not None:
            self.query_RD = nn.Parameter(torch.empty(config.router_key, D))
        self.key_ER = nn.Parameter(torch.empty(config.experts, config.router_key or D))
        for weight in self.parameters():
            nn.init.normal_(weight, std=INIT_STD)
        self.register_buffer("balance_E", torch.zeros(config.experts))

    def forward(
        self, x_BTD: Tensor, context: Context, state: State | None, read_BT: Tensor | None = None
    ) -> tuple[Tensor, State | None]:
        read_BT = read_mask(read_BT, context)
        x_ND = x_BTD.flatten(0, 1) if read_BT is None else x_BTD[read_BT]
        expert_NJ, weight_NJ = self._route(x_ND, context)
        self._record(expert_NJ, context, read_BT)
        y_ND = routed_swiglu(
            x_ND,
            self.gate_EDF.to(x_ND.dtype),
            self.up_EDF.to(x_ND.dtype),
            self.down_EFD.to(x_ND.dtype),
            expert_NJ,
            weight_NJ,
        )
        if read_BT is None:
            return y_ND.view_as(x_BTD), state
        y_BTD = torch.zeros_like(x_BTD)
        y_BTD[read_BT] = y_ND.to(y_BTD.dtype)
        return y_BTD, state

    def _route(self, x_ND: Tensor, context: Context) -> tuple[Tensor, Tensor]:
        """Ids and weights of each token's slots: the routed experts, then the shared ones."""
        c = self.config
        wide = torch.promote_types(x_ND.dtype, torch.float32)
        with torch.autocast(x_ND.device.type, enabled=False):
            query_NR = x_ND.to(wide)
            if self.query_RD is not None:
                query_NR = query_NR @ self.query_RD.to(wide).T
                if c.depth_encoding and context.depths > 1:
                    query_NR = depth_encoded(query_NR, context.depth, context.depths)
            score_NE = query_NR @ self.key_ER.to(wide).T
            routed_NJ = (score_NE.detach() + self.balance_E).topk(c.routed, -1).indices
            gate_NJ = score_NE.gather(-1, routed_NJ).sigmoid()
            shared = torch.arange(c.experts, c.experts + c.shared, device=x_ND.device)
            expert_NJ = torch.cat((routed_NJ, shared.expand(len(x_ND), -1)), -1)
            gate_NJ = torch.cat((gate_NJ, gate_NJ.new_full((len(x_ND), c.shared), c.shared_score)), -1)
            return expert_NJ, gate_NJ / gate_NJ.sum(-1, keepdim=True)

    def _record(self, expert_NJ: Tensor, context: Context, read_BT: Tensor | None) -> None:
        """Count routed slots per expert, over the tokens that statistics count."""
        if context.recorder is None or not context.recorder.open:
            return
        counted_BT = context.counted_BT()
        counted_N = counted_BT.flatten() if read_BT is None else counted_BT[read_BT]
        routed = expert_NJ[counted_N, : self.config.routed].flatten()
        context.record(load=torch.bincount(routed, minlength=self.config.experts))

    def after_step(self, statistics: list[dict[str, Any]]) -> None:
        loads = [found["load"] for found in statistics if "load" in found]
        if not loads or not self.config.bias_rate:
            return
        load_E = torch.stack(loads).sum(0).to(self.balance_E.dtype)
        self.balance_E += self.config.bias_rate * torch.sign(load_E.mean() - load_E)

    def output_parameters(self) -> frozenset[str]:
        return frozenset({"down_EFD"})

    @staticmethod
    def cost(config: Any, d_model: int, shape: Shape, depths: int = 1, parts: Parts | None = None) -> Cost:
        """The router and the experts of a token, all read; every expert is stored."""
        key = config.router_key
        router = d_model * config.experts if key is None else key * (d_model + config.experts)
        expert = 3 * d_model * config.hidden
        active = router + expert * (config.routed + config.shared)
        return Cost(
            reads=(Work.product(2.0 * active, weights=active, kept_bytes=_kept(config, d_model, shape)),),
            parameters=router + expert * (config.experts + config.shared),
            active_parameters=active,
        )


def _kept(config: ExpertsConfig, d_model: int, shape: Shape) -> float:
    """Kept of one token: the input, its rows for each slot, four hidden layers and the result of each slot; routing."""
    slots = config.routed + config.shared
    narrow, wide = shape.dtype_bytes, shape.wide_bytes
    slot = input_kept(d_model, 2, shape) + (4 * config.hidden + d_model) * narrow + wide + 3 * INDEX_BYTES
    return d_model * wide + slots * slot + (config.router_key or 0) * wide


def depth_encoded(query_NR: Tensor, depth: int, depths: int) -> Tensor:
    """Routing queries rotated by depth: half of the channels by ``depth``, half by the depths left.

    Router keys stay unrotated, so that a score depends on both (if both sides were rotated, it would not).
    """
    position_N1 = torch.full((len(query_NR), 1), depth, device=query_NR.device)
    past, left = query_NR[:, None, None].chunk(2, -1)
    turned = (
        rotary(past, position_N1, DEPTH_THETA),
        rotary(left, depths - position_N1, DEPTH_THETA),
    )
    return torch.cat(turned, -1).flatten(1)
