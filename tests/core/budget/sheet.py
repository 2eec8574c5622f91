"""The counting rules of dreamer.md section 5 in plain Python, as a cost model that shares nothing with the real one."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from crossbreed.core.contracts.cost import CostModel
from crossbreed.core.genome import Architecture
from crossbreed.core.ledger import Ledger, Shape

V, D, H, HEAD, T, R = 64, 128, 4, 32, 64, 16
DEPTH_HEADS, PROJECTIONS_USED, SHARED, BYTES = 2, 2, 1, 4


@dataclass
class SheetCost(CostModel):
    """Counts a model of L layers (or one layer run L times, ``recurrent``) with ``k`` routed experts and a shared one.

    Only the sizes of the ``experts`` sublayer are read from the architecture: E experts (of each set of weights), F wide.
    """

    base: Ledger
    L: int
    k: int
    recurrent: bool
    depth_attention: bool
    router_key: int = R

    def estimate(self, architecture: Architecture, shape: Shape, *_: Any, **__: Any) -> Ledger:
        params = next(s.params for _, s in architecture.sublayers() if s.mixer == "experts")
        E, F, L, r = params["experts"], params["hidden"], self.L, self.router_key
        attentions = [H] + ([DEPTH_HEADS] if self.depth_attention else [])
        projections = sum(4 * D * h * HEAD for h in attentions)
        routers, routed = D * r + r * E, 0
        used = 1
        if self.recurrent:
            # L matrices for every projection, L - 1 of them routed, two used.
            routed = len(attentions) * (D * R + R * (L - 1))
            projections, used = projections * L, PROJECTIONS_USED
        gains = (len(attentions) + 1) * D
        sets = 1 if self.recurrent else L
        parameters = (
            2 * V * D + D + sets * (projections + routed + routers + (E + SHARED) * 3 * D * F + gains)
        )
        flops = sum(2 * used * 4 * D * h * HEAD for h in attentions)
        flops += 4 * H * HEAD * (T + 1) / 2
        flops += 4 * DEPTH_HEADS * HEAD * (L + 1) / 2 if self.depth_attention else 0
        flops += 2 * (routed + routers) + 2 * 3 * D * F * (self.k + SHARED)
        forward = L * flops + 2 * V * D
        cache = 2 * L * T * H * HEAD * BYTES
        scratch = 2 * L * DEPTH_HEADS * HEAD * BYTES if self.depth_attention else 0
        return replace(
            self.base,
            training_flops_per_token=3 * forward,
            prefill_flops_per_token=forward,
            parameters=parameters,
            active_parameters=parameters,
            memory_bytes=float(parameters * BYTES + cache + scratch),
        )
