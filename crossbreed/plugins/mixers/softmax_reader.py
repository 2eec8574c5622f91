"""Softmax attention as a reader: keys and values go to the cache, queries read it."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from crossbreed.core.contracts.context import Context
from crossbreed.core.contracts.mixer import HeadShape, Reader, ReaderBuild, State, StateSpec
from crossbreed.core.ledger import Cost, Shape, Work
from crossbreed.core.ops.attention import attention
from crossbreed.core.ops.delta_rule import l2_norm
from crossbreed.plugins.mixers import kv_cache
from crossbreed.plugins.mixers.accounting import mean_visible
from crossbreed.plugins.mixers.configs import SoftmaxSettings
from crossbreed.plugins.mixers.reading import masked, read_mask, rows_that_read, spread, traced

NORM_EPS = 1e-6


class SoftmaxReader(Reader, nn.Module):
    """Causal attention within each document. In decode, rows that do not read cost no scores.

    With ``qk_norm`` queries and keys have RMS 1 and queries a learned gain per head: one gain for all channels, so that
    it does not matter whether rotation came before.
    """

    def __init__(self, config: SoftmaxSettings, build: ReaderBuild) -> None:
        super().__init__()
        self.config, self.heads = config, build.heads
        self.gain_Q = nn.Parameter(torch.ones(build.heads.query_heads)) if config.qk_norm else None

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
        if self.gain_Q is not None:
            q_BTHK = F.rms_norm(q_BTHK, q_BTHK.shape[-1:], eps=NORM_EPS) * self.gain_Q[:, None].to(
                q_BTHK.dtype
            )
            k_BTGK = F.rms_norm(k_BTGK, k_BTGK.shape[-1:], eps=NORM_EPS)
        if self.config.l2_norm == "qk":
            q_BTHK = l2_norm(q_BTHK)
        if self.config.l2_norm != "none":
            k_BTGK = l2_norm(k_BTGK)
        read_BT = read_mask(read_BT, context)
        trace_BT = traced(self.config, read_BT)
        if state is None:
            return masked(self._fresh(q_BTHK, k_BTGK, v_BTHV, None, context, trace_BT), read_BT), None
        window = self.config.window
        document_BT = kv_cache.document_numbers(state, context)
        if context.phase == "decode" and read_BT is not None:
            written = kv_cache.write(state, k_BTGK, v_BTHV, document_BT, context, window, trace_BT)
            return self._rows(written, q_BTHK, document_BT, context, read_BT), written
        if not int(state["length"]):
            o_BTHV = self._fresh(q_BTHK, k_BTGK, v_BTHV, document_BT, context, trace_BT)
            written = kv_cache.write(state, k_BTGK, v_BTHV, document_BT, context, window, trace_BT)
        elif q_BTHK.shape[1] == 1 or (window is None and context.document_BT is None):
            written = kv_cache.write(state, k_BTGK, v_BTHV, document_BT, context, window, trace_BT)
            slots = kv_cache.used(written, window)
            o_BTHV = self._over(slots, q_BTHK, document_BT, context.positions_BT)
        else:
            # Some query of this piece may see a slot that a later token of it overwrites: read before writing.
            position_BT = kv_cache.traced_positions(context, trace_BT)
            new = {"k": k_BTGK, "v": v_BTHV, "document": document_BT, "position": position_BT}
            slots = {
                name: torch.cat((old.to(new[name].dtype), new[name]), 1)
                for name, old in kv_cache.used(state, window).items()
            }
            o_BTHV = self._over(slots, q_BTHK, document_BT, context.positions_BT)
            written = kv_cache.write(state, k_BTGK, v_BTHV, document_BT, context, window, trace_BT)
        return masked(o_BTHV, read_BT), written

    def _fresh(
        self,
        q_BTHK: Tensor,
        k_BTGK: Tensor,
        v_BTHV: Tensor,
        document_BT: Tensor | None,
        context: Context,
        trace_BT: Tensor | None,
    ) -> Tensor:
        """Attention inside a piece that nothing precedes."""
        if context.document_BT is None and trace_BT is None:
            return self._attend(q_BTHK, k_BTGK, v_BTHV, window=self.config.window)
        if document_BT is None:
            document_BT = kv_cache.document_numbers(None, context)
        position_BT = kv_cache.traced_positions(context, trace_BT)
        slots = {"k": k_BTGK, "v": v_BTHV, "document": document_BT, "position": position_BT}
        return self._over(slots, q_BTHK, document_BT, context.positions_BT)

    def _over(self, slots: State, q_BTHK: Tensor, document_BT: Tensor, position_BT: Tensor) -> Tensor:
        """Attention over slots by document and position."""
        visible_BTS = kv_cache.visible(
            document_BT, position_BT, slots["document"], slots["position"], self.config.window
        )
        k, v = slots["k"].to(q_BTHK.dtype), slots["v"].to(q_BTHK.dtype)
        return self._attend(q_BTHK, k, v, visible_BTS=visible_BTS)

    def _rows(
        self, cache: State, q_BTHK: Tensor, document_BT: Tensor, context: Context, read_BT: Tensor
    ) -> Tensor:
        """One decoded token: only the rows that read."""
        rows = rows_that_read(read_BT)
        o_BTHV = q_BTHK.new_zeros(*q_BTHK.shape[:2], self.heads.heads, self.heads.value_size)
        if len(rows):
            slots = kv_cache.used(cache, self.config.window)
            if len(rows) < len(q_BTHK):
                slots = {name: x[rows] for name, x in slots.items()}
            read_BTHV = self._over(slots, q_BTHK[rows], document_BT[rows], context.positions_BT[rows])
            o_BTHV[rows] = read_BTHV.to(o_BTHV.dtype)
        return o_BTHV

    def _attend(self, q_BTHK: Tensor, k_BSGK: Tensor, v_BSGV: Tensor, **which: Any) -> Tensor:
        H = self.heads
        if H.key_heads != H.value_heads:
            groups = math.lcm(H.key_heads, H.value_heads)
            k_BSGK, v_BSGV = spread(k_BSGK, groups), spread(v_BSGV, groups)
        return attention(spread(q_BTHK, H.heads), k_BSGK, v_BSGV, scale=self.config.scale, **which)

    def state_specs(self) -> tuple[StateSpec, ...]:
        return kv_cache.specs(self.heads)

    def init_state(
        self,
        batch: int,
        *,
        slots: int = 0,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
    ) -> State:
        window = self.config.window
        return kv_cache.empty(
            batch, slots if window is None else min(slots, window), self.heads, dtype, device
        )

    def no_weight_decay(self) -> frozenset[str]:
        return frozenset() if self.gain_Q is None else frozenset({"gain_Q"})

    @staticmethod
    def cost(config: SoftmaxSettings, heads: HeadShape, d_model: int, shape: Shape, depths: int = 1) -> Cost:
        """Scores and weighted values; a causal query sees half of the sequence, the window at most.

        Executed: full tiles in training and prefill, and the backward pass of fused attention computes the scores again
        (5 products to the forward's 2).
        """
        per_key = 2 * heads.heads * (heads.key_size + heads.value_size)
        seen = per_key * mean_visible(shape, config.window)
        issued = seen if shape.phase == "decode" else float(per_key * shape.tokens)
        slots = shape.tokens if config.window is None else min(shape.tokens, config.window)
        slot_bytes = kv_cache.slot_bytes(heads, shape.dtype_bytes)
        parameters = heads.query_heads if config.qk_norm else 0
        kept = _kept(config, heads, shape) if shape.phase == "train" else 0.0
        return Cost(
            write=Work(state_traffic_bytes=slot_bytes),
            reads=(Work(seen, 3 * seen, issued, 3.5 * issued, parameters, slots * slot_bytes, kept),),
            parameters=parameters,
            active_parameters=parameters,
            state_bytes=slots * slot_bytes,
        )


def _kept(config: SoftmaxSettings, heads: HeadShape, shape: Shape) -> float:
    """Queries, keys and values as attention saw them, one size a head, a window's mask; what the norms of q and k saw."""
    K, V = heads.key_size, heads.value_size
    groups = (heads.key_heads, heads.value_heads)
    if heads.key_heads != heads.value_heads:
        groups = (math.lcm(*groups),) * 2
    numbers = heads.heads * K + groups[0] * K + groups[1] * V
    if config.qk_norm:
        numbers += 2 * heads.query_heads * K + heads.key_heads * K
    if config.l2_norm != "none":
        numbers += heads.key_heads * (K + 1)
    if config.l2_norm == "qk":
        numbers += heads.query_heads * (K + 1)
    windowed = config.window is not None and config.window < shape.tokens
    mask = shape.tokens * shape.dtype_bytes if windowed or config.writes == "when_read" else 0
    return float(numbers * shape.dtype_bytes + heads.heads * shape.wide_bytes + mask)
