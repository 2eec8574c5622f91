"""Softmax attention as a reader: keys and values go to the cache, queries read it."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, cast

import torch
from torch import Tensor, nn

from crossbreed.core.contracts.context import Context
from crossbreed.core.contracts.mixer import HeadShape, Reader, ReaderBuild, State, StateSpec
from crossbreed.core.ledger import GATHER_UP_TO, Cost, Shape, Work
from crossbreed.core.ops import one_token
from crossbreed.core.ops.attention import Kernel, attention
from crossbreed.core.ops.norm import l2_norm, rms_norm
from crossbreed.core.ops.read_attention import skippable
from crossbreed.plugins.mixers import backends, kv_cache
from crossbreed.plugins.mixers.accounting import keys_issued, mean_visible, window_block
from crossbreed.plugins.mixers.configs import SoftmaxSettings
from crossbreed.plugins.mixers.reading import Chosen, Rows, chosen, masked, read_mask, spread, traced

NORM_EPS = 1e-6


@dataclass(frozen=True)
class Slots:
    """What the queries of a piece may see, by position and document (None: each row is one document).

    ``causal``: they are the tokens of the piece, in order, and each query sees all up to its own.
    """

    k: Tensor
    v: Tensor
    position: Tensor
    document: Tensor | None
    causal: bool = False

    @staticmethod
    def of(cache: State) -> Slots:
        return Slots(cache["k"], cache["v"], cache["position"], cache["document"])

    def reached(self, queries: range, tokens: int, window: int) -> Slots:
        """What some queries of a piece reach through a window: views. The last ``tokens`` slots are the piece's."""
        before = self.k.shape[1] - tokens
        # Slots of earlier pieces lie in any order.
        first = before + queries.start - window + 1 if queries.start >= window - 1 else 0
        seen = slice(first, before + queries.stop)
        document = None if self.document is None else self.document[:, seen]
        return Slots(self.k[:, seen], self.v[:, seen], self.position[:, seen], document, self.causal)

    def rows(self, rows: slice) -> Slots:
        """The slots of rows that lie side by side: views."""
        document = None if self.document is None else self.document[rows]
        return Slots(self.k[rows], self.v[rows], self.position[rows], document, self.causal)


class SoftmaxReader(Reader, nn.Module):
    """Causal attention within each document. Outside training, queries that are not read cost no scores.

    The fused kernel of a causal piece leaves them out (``core.ops.read_attention``), in training too, where others compute
    all. Elsewhere the others are gathered, every row padded to the one that reads most. Through a window long pieces are computed
    in blocks of queries, each over what it reaches.

    With ``qk_norm`` queries and keys have RMS 1 and queries a learned gain per head: one gain for all channels, so that
    it does not matter whether rotation came before.
    """

    def __init__(self, config: SoftmaxSettings, build: ReaderBuild) -> None:
        super().__init__()
        self.config, self.heads, self.requested = config, build.heads, build.backend
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
            k_BTGK = rms_norm(k_BTGK, eps=NORM_EPS)
        if self.config.l2_norm != "none":
            k_BTGK = l2_norm(k_BTGK)
        read_BT = read_mask(read_BT, context)
        if context.recorded and state is not None:
            return self._one(q_BTHK, k_BTGK, v_BTHV, context, state, read_BT)
        some = chosen(read_BT, context)
        if some is not None and not len(some):
            o_BTHV = v_BTHV.new_zeros(*q_BTHK.shape[:2], self.heads.heads, self.heads.value_size)
            return o_BTHV, self._only_written(k_BTGK, v_BTHV, context, state, read_BT)
        slots, document_BT, written = self._written(k_BTGK, v_BTHV, context, state, read_BT)
        if not self._in_blocks(q_BTHK, slots, some):
            return self._output(q_BTHK, slots, document_BT, context, read_BT, some), written
        T, window, outputs = q_BTHK.shape[1], cast(int, self.config.window), []
        for first in range(0, T, window_block(window)):
            queries = range(first, min(first + window_block(window), T))
            cut, at = slice(first, queries.stop), context.slice(first, queries.stop)
            document = None if document_BT is None else document_BT[:, cut]
            read = None if read_BT is None else read_BT[:, cut]
            reached = slots.reached(queries, T, window)
            outputs.append(self._output(q_BTHK[:, cut], reached, document, at, read, chosen(read, at)))
        return torch.cat(outputs, 1), written

    def _in_blocks(self, q_BTHK: Tensor, slots: Slots, some: Chosen | None) -> bool:
        """Whether to cut a piece, which would need a mask of all that each query sees; flash-attn's kernel knows windows."""
        window = self.config.window
        if window is None or q_BTHK.shape[1] <= window_block(window):
            return False
        whole = some is None and slots.causal and not selects(self.config, slots.k.shape[1])
        return not whole or self.serving(q_BTHK.device, q_BTHK.dtype) != "flash_attn"

    def _output(
        self,
        q_BTHK: Tensor,
        slots: Slots,
        document_BT: Tensor | None,
        context: Context,
        read_BT: Tensor | None,
        some: Chosen | None,
    ) -> Tensor:
        """Attention of a piece's queries, zero where not read. ``some``: those that are read, where not all are."""
        if some is None:
            # Elsewhere than in training what is read has been looked at: it is everything, or to be computed densely.
            skipping = context.training and context.execution != "dense"
            o_BTHV = self._every(q_BTHK, slots, document_BT, context, read_BT if skipping else None)
            return o_BTHV if skipping else masked(o_BTHV, read_BT)
        if not len(some):
            return q_BTHK.new_zeros(*q_BTHK.shape[:2], self.heads.heads, self.heads.value_size)
        rows = some.rows()
        if self._whole_is_faster(slots, rows, context):
            return masked(self._every(q_BTHK, slots, document_BT, context), read_BT)
        if self._skips(q_BTHK, slots):
            return self._every(q_BTHK, slots, document_BT, context, read_BT)
        o_RUHV = self._few(q_BTHK, slots, document_BT, context, rows)
        return some.scatter(rows.flat(o_RUHV))

    def _one(
        self,
        q_B1HK: Tensor,
        k_B1GK: Tensor,
        v_B1HV: Tensor,
        context: Context,
        state: State,
        read_B1: Tensor | None,
    ) -> tuple[Tensor, State]:
        """One recorded token a row: over all slots there are, of which the device sees what is used and what is read."""
        position_B, window = context.positions_BT[:, 0], self.config.window
        trace_B1 = traced(self.config, read_B1)
        written, document_B = kv_cache.write_one(state, k_B1GK, v_B1HV, position_B, window, trace_B1)
        q_B1HK, slots = self._normed(q_B1HK), self._grouped(Slots.of(written))
        o_B1HV = one_token.attention(
            spread(q_B1HK, self.heads.heads),
            slots.k,
            slots.v,
            slots.position,
            written["document"],
            position_B=position_B,
            document_B=document_B,
            read_B=None if read_B1 is None else read_B1[:, 0],
            window=window,
            scale=self.config.scale,
            top_k=self.config.top_k,
        )
        return o_B1HV, written

    def _only_written(
        self, k_BTGK: Tensor, v_BTHV: Tensor, context: Context, state: State | None, read_BT: Tensor | None
    ) -> State | None:
        """The cache after a piece that nobody reads."""
        if state is None:
            return None
        document_BT, trace_BT = kv_cache.document_numbers(state, context), traced(self.config, read_BT)
        return kv_cache.write(state, k_BTGK, v_BTHV, document_BT, context, self.config.window, trace_BT)

    def _written(
        self, k_BTGK: Tensor, v_BTHV: Tensor, context: Context, state: State | None, read_BT: Tensor | None
    ) -> tuple[Slots, Tensor | None, State | None]:
        """(what this piece's queries may see, the documents of the queries if those matter, the cache after the piece)"""
        window, packed = self.config.window, context.document_BT is not None
        trace_BT = traced(self.config, read_BT)
        position_BT = kv_cache.traced_positions(context, trace_BT)
        document_BT = None if state is None and not packed else kv_cache.document_numbers(state, context)
        fresh = Slots(
            k_BTGK, v_BTHV, position_BT, document_BT if packed else None, not packed and trace_BT is None
        )
        if state is None:
            return fresh, document_BT, None
        assert document_BT is not None

        def write() -> State:
            return kv_cache.write(state, k_BTGK, v_BTHV, document_BT, context, window, trace_BT)

        if not int(state["length"]):
            return fresh, document_BT, write()
        if k_BTGK.shape[1] == 1 or (window is None and not packed):
            written = write()
            return Slots.of(kv_cache.used(written, window)), document_BT, written
        # Some query of this piece may see a slot that a later token of it overwrites: read before writing.
        new = {"k": k_BTGK, "v": v_BTHV, "document": document_BT, "position": position_BT}
        old = kv_cache.used(state, window)
        slots = {name: torch.cat((old[name].to(new[name].dtype), new[name]), 1) for name in new}
        return Slots.of(slots), document_BT, write()

    def _whole_is_faster(self, slots: Slots, rows: Rows, context: Context) -> bool:
        """Whether to leave all queries to the causal kernel and mask."""
        B, T = context.positions_BT.shape
        return (
            context.execution == "auto"
            and slots.causal
            and triangular(self.config, slots.k.shape[1])
            and rows.token_RU.numel() > GATHER_UP_TO * B * T
        )

    def _skips(self, q_BTHK: Tensor, slots: Slots) -> bool:
        """Whether attention leaves unread queries out by itself, where others need a mask of all that each query sees."""
        whole = slots.causal and triangular(self.config, slots.k.shape[1])
        fused = self.serving(q_BTHK.device, q_BTHK.dtype) != backends.REFERENCE
        return whole and fused and skippable(q_BTHK, slots.v)

    def _every(
        self,
        q_BTHK: Tensor,
        slots: Slots,
        document_BT: Tensor | None,
        context: Context,
        read_BT: Tensor | None = None,
    ) -> Tensor:
        """Attention of all queries of the piece, cleared where ``read_BT`` is given and they do not read."""
        if slots.causal:
            return self._attend(q_BTHK, slots, window=self.config.window, read_BT=read_BT)
        visible_BTS = self._visible(document_BT, context.positions_BT, slots)
        return self._attend(q_BTHK, slots, visible_BTS=visible_BTS, read_BT=read_BT)

    def _few(
        self, q_BTHK: Tensor, slots: Slots, document_BT: Tensor | None, context: Context, rows: Rows
    ) -> Tensor:
        """Attention of the queries that are read: R rows of U."""
        q_RUHK, position_RU = rows.gather(q_BTHK), rows.gather(context.positions_BT)
        document_RU = None if document_BT is None else rows.gather(document_BT)
        outputs = []
        for whole, here in rows.runs():
            seen = slots.rows(whole)
            document = None if document_RU is None else document_RU[here]
            visible = self._visible(document, position_RU[here], seen)
            outputs.append(self._attend(q_RUHK[here], seen, visible_BTS=visible))
        return torch.cat(outputs)

    def _visible(self, document_BT: Tensor | None, position_BT: Tensor, slots: Slots) -> Tensor:
        return kv_cache.visible(document_BT, position_BT, slots.document, slots.position, self.config.window)

    def _attend(self, q_BTHK: Tensor, slots: Slots, **which: Any) -> Tensor:
        q_BTHK, slots = self._normed(q_BTHK), self._grouped(slots)
        k, v = slots.k.to(q_BTHK.dtype), slots.v.to(q_BTHK.dtype)
        scale, top_k = self.config.scale, self.config.top_k
        kernel, q_BTHK = self.serving(q_BTHK.device, q_BTHK.dtype), spread(q_BTHK, self.heads.heads)
        return attention(q_BTHK, k, v, scale=scale, top_k=top_k, kernel=kernel, **which)

    def _normed(self, q_BTHK: Tensor) -> Tensor:
        if self.gain_Q is not None:
            gain_QK = self.gain_Q[:, None].to(q_BTHK.dtype)
            q_BTHK = rms_norm(q_BTHK, eps=NORM_EPS) * gain_QK
        return l2_norm(q_BTHK) if self.config.l2_norm == "qk" else q_BTHK

    def _grouped(self, slots: Slots) -> Slots:
        """The slots with as many heads of keys as of values."""
        H = self.heads
        if H.key_heads == H.value_heads:
            return slots
        groups = math.lcm(H.key_heads, H.value_heads)
        return replace(slots, k=spread(slots.k, groups), v=spread(slots.v, groups))

    def serving(self, device: torch.device, dtype: torch.dtype) -> Kernel:
        """The implementation that serves activations of this dtype on this device."""
        sizes = (self.heads.key_size, self.heads.value_size)
        return cast(Kernel, backends.serving(self.requested, backends.SOFTMAX, device, dtype, sizes))

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

        With ``top_k`` all that a query sees is scored, and values and gradients are those of the keys it attends to.

        Executed: full tiles in training and prefill, of what blocks of queries reach through a window, those of a whole piece where most of it reads, and the backward pass of fused attention computes the scores again
        (5 products to the forward's 2). The choice of the ``top_k`` scores all keys once more, forward only.
        """
        slots = shape.tokens if config.window is None else min(shape.tokens, config.window)
        tile = slots if shape.phase == "decode" else keys_issued(shape.tokens, config.window)
        score, value = 2.0 * heads.heads * heads.key_size, 2.0 * heads.heads * heads.value_size
        seen = mean_visible(shape, config.window)
        used = mean_visible(shape, min(config.top_k, slots)) if config.top_k is not None else seen
        forward = score * seen + value * used
        chosen_from = score * tile if selects(config, tile) else 0.0
        issued = (score + value) * tile
        slot_bytes = kv_cache.slot_bytes(heads, shape.dtype_bytes)
        parameters = heads.query_heads if config.qk_norm else 0
        kept = _kept(config, heads, shape) if shape.phase == "train" else 0.0
        return Cost(
            write=Work(state_traffic_bytes=slot_bytes),
            reads=(
                Work(
                    forward,
                    forward + 2 * (score + value) * used,
                    chosen_from + issued,
                    chosen_from + 3.5 * issued,
                    parameters,
                    slots * slot_bytes,
                    kept,
                    issued if shape.phase == "prefill" and triangular(config, shape.tokens) else 0.0,
                ),
            ),
            parameters=parameters,
            active_parameters=parameters,
            state_bytes=slots * slot_bytes,
        )


def triangular(config: SoftmaxSettings, slots: int) -> bool:
    """Whether each query of a piece that stands first attends to all tokens up to its own."""
    windowed = config.window is not None and config.window < slots
    return not windowed and config.writes == "always" and not selects(config, slots)


def selects(config: SoftmaxSettings, slots: float) -> bool:
    """Whether queries over so many slots leave some out for their scores."""
    return config.top_k is not None and config.top_k < slots


def _kept(config: SoftmaxSettings, heads: HeadShape, shape: Shape) -> float:
    """Queries, keys and values as attention saw them, one size a head, a mask; what the norms of q and k saw."""
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
    tile = keys_issued(shape.tokens, config.window)
    mask = tile * shape.dtype_bytes if windowed or config.writes == "when_read" else 0
    if selects(config, shape.tokens):
        # Each head has its own.
        mask = heads.heads * tile * shape.dtype_bytes
    if tile < shape.tokens:
        # Outputs of blocks, beside all of them together.
        numbers += heads.heads * V
    return float(numbers * shape.dtype_bytes + heads.heads * shape.wide_bytes + mask)
