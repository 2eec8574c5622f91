"""A linear map of one row, which costs its weight's way through memory and nothing else: what comes before it, every program
makes by itself, and what comes after it is added as it is written.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from crossbreed.core.ops.one_token import Normed

WIDE = 8192
"""Outputs from which a program computes more of them."""
MOST_CHANNELS = 1024
"""Input channels of a tile, unless one norm covers more."""


def token_linear(
    x: Tensor | Normed,
    weight_OD: Tensor,
    read: Tensor | None = None,
    *,
    always: int = 0,
    gated: bool = False,
    onto_O: Tensor | None = None,
) -> Tensor:
    """y_O = W x, in the weight's dtype, to which x is rounded; or that added to ``onto_O``.

    With ``gated`` the input is silu(x[:D]) * x[D:]. Where the one number of ``read`` is 0, the weights of all outputs but the
    first ``always`` are not touched and y is zero. A norm of a whole row is kept, if there are outputs that are always computed.
    """
    O, D = weight_OD.shape  # noqa: E741
    kind = weight_OD.dtype if onto_O is None else onto_O.dtype
    y_O = torch.empty(O, dtype=kind, device=weight_OD.device)
    norm = x if isinstance(x, Normed) else None
    row = x.h.contiguous() if isinstance(x, Normed) else x
    size = D if norm is None else row.shape[-1]
    padded, kept = triton.next_power_of_2(size), None
    channels = min(MOST_CHANNELS, triton.next_power_of_2(D))
    if norm is not None:
        # Whole norms to a tile, padded.
        channels = max(padded, min(MOST_CHANNELS, triton.next_power_of_2(D // size) * padded))
        if norm.gate is None and size == D and (read is None or always):
            kept = norm.made = torch.empty_like(row)
    outputs, warps = (16, 8) if O >= WIDE else (4, 4)
    wider = max(1, channels // MOST_CHANNELS)
    outputs, warps = max(4, outputs // wider), min(16, warps * wider)
    _linear[(triton.cdiv(O, outputs),)](
        row,
        weight_OD,
        y_O,
        weight_OD if read is None else read,
        row if norm is None else norm.weight,
        row if norm is None or norm.gate is None else norm.gate.contiguous(),
        row if kept is None else kept,
        y_O if onto_O is None else onto_O,
        weight_OD.stride(0),
        O,
        always,
        0.0 if norm is None else norm.eps,
        D=D,
        OUTPUTS=outputs,
        CHANNELS=channels,
        SILU=gated,
        NORM=0 if norm is None else size,
        PADDED=padded,
        TILES=triton.cdiv(D // size * padded if norm is not None else D, channels),
        GATE=norm is not None and norm.gate is not None,
        GATE_FIRST=norm is not None and norm.gate_first,
        KEPT=kept is not None,
        ONTO=onto_O is not None,
        CHOSEN=read is not None,
        num_warps=warps,
    )
    return y_O


@triton.jit
def _linear(
    x, weight, y, read, gains, gates, kept, onto, stride, outputs, always, eps,
    D: tl.constexpr, OUTPUTS: tl.constexpr, CHANNELS: tl.constexpr, SILU: tl.constexpr,
    NORM: tl.constexpr, PADDED: tl.constexpr, TILES: tl.constexpr, GATE: tl.constexpr, GATE_FIRST: tl.constexpr,
    KEPT: tl.constexpr, ONTO: tl.constexpr, CHOSEN: tl.constexpr,
):  # fmt: skip
    """Some outputs: their rows of the weight, read once."""
    o = tl.program_id(0) * OUTPUTS + tl.arange(0, OUTPUTS)
    sums = tl.zeros((OUTPUTS, CHANNELS), tl.float32)
    reads = True
    if CHOSEN:
        reads = (tl.load(read) != 0) | (tl.program_id(0) * OUTPUTS < always)
    if reads:
        rows = weight + o.to(tl.int64)[:, None] * stride
        i = tl.arange(0, CHANNELS)
        for tile in tl.static_range(0, TILES):
            c = tile * CHANNELS + i
            inside = c < D
            if NORM > 0:
                d = c % PADDED
                c = c // PADDED * NORM + d
                inside = (d < NORM) & (c < D)
            w = tl.load(rows + c[None, :], mask=(o[:, None] < outputs) & inside[None, :], other=0.0)
            own = tl.load(x + c, mask=inside, other=0.0).to(tl.float32)
            if SILU:
                own = own.to(weight.dtype.element_ty).to(tl.float32)
                up = tl.load(x + D + c, mask=inside, other=0.0).to(weight.dtype.element_ty).to(tl.float32)
                own = (own * tl.sigmoid(own)).to(weight.dtype.element_ty).to(tl.float32)
                own = own * up
            if NORM > 0:
                gain = tl.load(gains + d, mask=inside, other=0.0).to(tl.float32)
                if GATE:
                    gate = tl.load(gates + c, mask=inside, other=0.0).to(tl.float32)
                    gate = gate * tl.sigmoid(gate)
                    if GATE_FIRST:
                        own = own * gate
                    else:
                        gain = gain * gate
                each = tl.reshape(own, (CHANNELS // PADDED, PADDED))
                each = each * tl.rsqrt(tl.sum(each * each, 1) / NORM + eps)[:, None]
                own = tl.reshape(each, (CHANNELS,)) * gain
                if KEPT:
                    first = inside & (tl.program_id(0) == 0)
                    tl.store(kept + c, own.to(kept.dtype.element_ty), mask=first)
            sums += w.to(tl.float32) * own.to(weight.dtype.element_ty).to(tl.float32)[None, :]
    found = tl.sum(sums, 1).to(weight.dtype.element_ty)
    if CHOSEN:
        found = tl.where((tl.load(read) != 0) | (o < always), found, 0.0)
    if ONTO:
        found = tl.load(onto + o, mask=o < outputs, other=0.0).to(tl.float32) + found.to(tl.float32)
    tl.store(y + o, found.to(y.dtype.element_ty), mask=o < outputs)
