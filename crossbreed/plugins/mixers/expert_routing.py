"""Routing of tokens to experts: Dreamer's attention over experts (arXiv 2601.21582), balanced by a bias (DeepSeek-V3).

    s = RoSE(u W_r) K_E^T,   A = the top k of s + b,   Z = sum_{e in A} sigmoid(s_e) + S c,
    weight of e in A: sigmoid(s_e)/Z,   weight of each of the S shared experts: c/Z.

Legend: N tokens, E routed experts, S shared ones, J = k + S slots of a token, R router key size, L depths.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from crossbreed.core.contracts.context import Context
from crossbreed.core.ledger import Shape
from crossbreed.core.ops.rotary import depth_rotary
from crossbreed.core.ops.routed_linear import Dispatch
from crossbreed.plugins.mixers.configs import RoutingSettings

INIT_STD = 0.02
INDEX_BYTES = 8


@dataclass(frozen=True)
class Route:
    """Where tokens go: ids of each token's slots (routed experts, then shared ones), their weights, their dispatch."""

    expert_NJ: Tensor
    weight_NJ: Tensor
    dispatch: Dispatch

    def rows(self, index: Tensor) -> Route:
        """The same for some tokens."""
        expert_NJ = self.expert_NJ[index]
        dispatch = Dispatch.of(expert_NJ, len(self.dispatch.end_E))
        return replace(self, expert_NJ=expert_NJ, weight_NJ=self.weight_NJ[index], dispatch=dispatch)


class RouterCost(NamedTuple):
    """What one router stores and computes."""

    parameters: int
    flops: float


class ExpertRouter(nn.Module):
    """Chooses the experts of each token. Scores are fp32 at least.

    The selection bias is no parameter: after each optimiser step it moves by ``bias_rate`` towards the experts that got
    less than their share. ``label`` names the loads it records, one histogram a call and depth.
    """

    balance_LE: Tensor

    def __init__(self, settings: RoutingSettings, d_model: int, depths: int, label: str = "load") -> None:
        super().__init__()
        self.settings, self.label, key = settings, label, settings.router_key
        self.query_RD = None if key is None else nn.Parameter(torch.empty(key, d_model))
        self.key_ER = nn.Parameter(torch.empty(settings.experts, d_model if key is None else key))
        for weight in self.parameters():
            nn.init.normal_(weight, std=INIT_STD)
        self.shared_scale_S: nn.Parameter | None = None
        if settings.shared_scale == "learned" and settings.shared:
            self.shared_scale_S = nn.Parameter(torch.full((settings.shared,), settings.shared_score))
        rows = depths if settings.balance == "each_depth" else 1
        self.register_buffer("balance_LE", torch.zeros(rows, settings.experts))

    def forward(self, x_ND: Tensor, context: Context) -> Route:
        """The route of each token at ``context.depth``."""
        s, wide = self.settings, torch.promote_types(x_ND.dtype, torch.float32)
        with torch.autocast(x_ND.device.type, enabled=False):
            score_NE = self._scores(x_ND.to(wide), context)
            rank_NE = score_NE.detach() if s.bias_on == "score" else score_NE.detach().sigmoid()
            routed_NJ = (rank_NE + self.balance_LE[self._row(context.depth)]).topk(s.routed, -1).indices
            shared_S = torch.arange(s.experts, s.stored, device=x_ND.device)
            expert_NJ = torch.cat((routed_NJ, shared_S.expand(len(x_ND), -1)), -1)
            weight_NJ = self._weights(score_NE.gather(-1, routed_NJ).sigmoid())
        return Route(expert_NJ, weight_NJ, Dispatch.of(expert_NJ, s.stored))

    def record(self, route: Route, counted_N: Tensor | None, context: Context) -> None:
        """Count the routed slots of each expert, over the tokens that statistics count."""
        routed_NJ = route.expert_NJ[:, : self.settings.routed]
        slot_NJ = torch.ones_like(routed_NJ) if counted_N is None else counted_N[:, None].expand_as(routed_NJ)
        load_E = routed_NJ.new_zeros(self.settings.experts)
        load_E.scatter_add_(0, routed_NJ.flatten(), slot_NJ.flatten().to(load_E.dtype))
        context.record(**{self.label: load_E, "depth": context.depth})

    def after_step(self, statistics: list[dict[str, Any]]) -> None:
        """Move the bias by the loads of one optimiser step, summed over everything it balances."""
        load_LE = torch.zeros_like(self.balance_LE)
        for found in statistics:
            if self.label in found:
                load_LE[self._row(found["depth"])] += found[self.label]
        self.balance_LE += self.settings.bias_rate * torch.sign(load_LE.mean(-1, keepdim=True) - load_LE)

    def no_weight_decay(self) -> frozenset[str]:
        return frozenset() if self.shared_scale_S is None else frozenset({"shared_scale_S"})

    @staticmethod
    def cost(settings: RoutingSettings, d_model: int) -> RouterCost:
        key, scale = settings.router_key, settings.shared if settings.shared_scale == "learned" else 0
        products = d_model * settings.experts if key is None else key * (d_model + settings.experts)
        return RouterCost(products + scale, 2.0 * products)

    @staticmethod
    def kept(settings: RoutingSettings, shape: Shape) -> float:
        """Bytes that training keeps of one token beside its input: the query; a weight and the indices of each slot."""
        slot = shape.wide_bytes + 3 * INDEX_BYTES
        return float((settings.router_key or 0) * shape.wide_bytes + settings.slots * slot)

    def _scores(self, x_ND: Tensor, context: Context) -> Tensor:
        query_NR = x_ND
        if self.query_RD is not None:
            query_NR = query_NR @ self.query_RD.to(x_ND.dtype).T
            if context.depths > 1:
                s = self.settings
                turned_N11R = depth_rotary(
                    query_NR[:, None, None], context.depth, context.depths, s.depth_encoding, s.depth_theta
                )
                query_NR = turned_N11R.flatten(1)
        return query_NR @ self.key_ER.to(x_ND.dtype).T

    def _weights(self, gate_NJ: Tensor) -> Tensor:
        """Weights of the routed slots from their scores, and of the shared ones."""
        s = self.settings
        inside = 0 if self.shared_scale_S is not None else s.shared
        gate_NJ = torch.cat((gate_NJ, gate_NJ.new_full((len(gate_NJ), inside), s.shared_score)), -1)
        if s.gate_norm != "none":
            norm_N1 = torch.linalg.vector_norm(gate_NJ, 1 if s.gate_norm == "l1" else 2, -1, keepdim=True)
            # Where every score underflows the weights stay zero.
            gate_NJ = gate_NJ / norm_N1.clamp(min=torch.finfo(gate_NJ.dtype).tiny)
        if self.shared_scale_S is None:
            return gate_NJ
        return torch.cat((gate_NJ, self.shared_scale_S.to(gate_NJ.dtype).expand(len(gate_NJ), -1)), -1)

    def _row(self, depth: int) -> int:
        return depth if len(self.balance_LE) > 1 else 0
