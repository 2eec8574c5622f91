"""Depth attention as a reader (Dreamer, arXiv 2601.21582): a token's queries read its own keys and values at earlier depths.

Keys and values live for one pass of a stage over a piece: a row a token, a tensor a depth, shared by all depths.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from crossbreed.core.contracts.context import Context
from crossbreed.core.contracts.mixer import HeadShape, Reader, ReaderBuild, State, StateSpec
from crossbreed.core.ledger import Cost, Shape, Work
from crossbreed.core.ops.depth_attention import depth_attention
from crossbreed.core.ops.rotary import depth_rotary
from crossbreed.plugins.mixers.configs.depth import DepthSettings
from crossbreed.plugins.mixers.reading import Chosen, chosen, masked, read_mask


class DepthReader(Reader, nn.Module):
    """Causal along depths. Outside training, tokens that do not read cost no scores; every token writes every depth.

    A detailed recorder gets the summed weights ``depth_weight_HS`` over the S depths seen, and the tokens summed.
    """

    def __init__(self, config: DepthSettings, build: ReaderBuild) -> None:
        super().__init__()
        self.config, self.heads, self.depths = config, build.heads, build.depths

    def forward(
        self,
        q_BTHK: Tensor,
        k_BTGK: Tensor,
        v_BTHV: Tensor,
        x_BTD: Tensor,
        context: Context,
        state: State | None,
        read_BT: Tensor | None = None,
    ) -> tuple[Tensor, State | None]:
        q_BTHK, k_BTGK = self._turned(q_BTHK, context), self._turned(k_BTGK, context)
        depth = context.depth
        own = {f"k.{depth}": k_BTGK.flatten(0, 1), f"v.{depth}": v_BTHV.flatten(0, 1)}
        after = None if state is None else {**state, **own}
        seen = range(depth + 1 if self.config.sees_current else depth)
        if state is None:
            # Alone, without a stage around it, a token knows the current depth only.
            seen = range(depth, depth + 1 if self.config.sees_current else depth)
        slots = [[(after or own)[f"{name}.{j}"] for j in seen] for name in "kv"]
        read_BT = read_mask(read_BT, context)
        some = chosen(read_BT, context)
        if not seen or (some is not None and not len(some)):
            if context.detailed:
                weight_HS = q_BTHK.new_zeros(self.heads.heads, len(seen))
                context.record(depth_weight_HS=weight_HS, depth_tokens=weight_HS.new_zeros(()))
            return q_BTHK.new_zeros(*q_BTHK.shape[:3], self.heads.value_size), after
        if some is None:
            return masked(self._attend(q_BTHK, slots, context, None), read_BT), after
        slots = [[slot[some.index_N] for slot in kind] for kind in slots]
        return some.scatter(self._attend(some.gather(q_BTHK), slots, context, some)), after

    def _attend(
        self, q_BTHK: Tensor, slots: list[list[Tensor]], context: Context, some: Chosen | None
    ) -> Tensor:
        keys, values = slots
        o_NHV, weight_NHS = depth_attention(q_BTHK.flatten(0, 1), keys, values, self.config.scale)
        if context.detailed:
            counted_BT = context.counted_BT()
            counted_N = (counted_BT if some is None else some.gather(counted_BT)).flatten()
            counted_NHS = weight_NHS * counted_N[:, None, None]
            context.record(depth_weight_HS=counted_NHS.sum(0), depth_tokens=counted_N.sum())
        return o_NHV.view(*q_BTHK.shape[:3], -1)

    def _turned(self, x_BTHK: Tensor, context: Context) -> Tensor:
        c = self.config
        return depth_rotary(x_BTHK, context.depth, context.depths, c.depth_encoding, c.depth_theta)

    def state_specs(self) -> tuple[StateSpec, ...]:
        sizes = {
            "k": (self.heads.key_heads, self.heads.key_size),
            "v": (self.heads.value_heads, self.heads.value_size),
        }
        return tuple(
            StateSpec(f"{name}.{depth}", shape, scope="pass")
            for name, shape in sizes.items()
            for depth in range(self.depths)
        )

    def init_state(
        self,
        batch: int,
        *,
        slots: int = 0,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
    ) -> State:
        """Zeros that take no memory: each depth replaces its own."""
        zero = torch.zeros((), dtype=dtype, device=device)
        return {spec.name: zero.expand(batch, *spec.shape) for spec in self.state_specs()}  # type: ignore[arg-type]

    @staticmethod
    def cost(config: DepthSettings, heads: HeadShape, d_model: int, shape: Shape, depths: int = 1) -> Cost:
        """Scores and weighted values over the depths seen, the mean over depths: (L+1)/2 with the current one.

        Nothing is tiled or padded, so what is executed is what is counted. Source: Dreamer, cost per token.
        """
        seen = (depths + 1) / 2 if config.sees_current else (depths - 1) / 2
        flops = 2.0 * heads.heads * (heads.key_size + heads.value_size) * seen
        numbers = heads.key_heads * heads.key_size + heads.value_heads * heads.value_size
        # Queries, the depth's own slot, keys that stay because values lie beside them, and the weights.
        kept = (
            heads.heads * heads.key_size + numbers
        ) * shape.dtype_bytes + heads.heads * seen * shape.wide_bytes
        if config.depth_encoding != "none":
            kept += heads.key_heads * heads.key_size * shape.dtype_bytes
        return Cost(
            reads=(Work.product(flops, kept_bytes=kept if shape.phase == "train" else 0.0),),
            scratch_bytes=float(numbers * shape.dtype_bytes),
        )
