"""A linear map of one row, which costs its weight's way through memory and nothing else."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

WIDE = 8192
"""Outputs from which a program computes more of them."""
MOST_CHANNELS = 1024
"""Input channels of a tile."""


def token_linear(x_C: Tensor, weight_OD: Tensor, read: Tensor | None, gated: bool) -> Tensor:
    """y_O = W x, in the weight's dtype, to which x is rounded; with ``gated`` the input is silu(x[:D]) * x[D:].

    Where the one number of ``read`` is 0 the weights are not touched and y is zero.
    """
    O, D = weight_OD.shape  # noqa: E741
    y_O = torch.empty(O, dtype=weight_OD.dtype, device=x_C.device)
    outputs, warps = (16, 8) if O >= WIDE else (4, 4)
    _linear[(triton.cdiv(O, outputs),)](
        x_C,
        weight_OD,
        y_O,
        weight_OD if read is None else read,
        weight_OD.stride(0),
        O,
        D=D,
        OUTPUTS=outputs,
        CHANNELS=min(MOST_CHANNELS, triton.next_power_of_2(D)),
        GATED=gated,
        CHOSEN=read is not None,
        num_warps=warps,
    )
    return y_O


@triton.jit
def _linear(
    x, weight, y, read, stride, outputs,
    D: tl.constexpr, OUTPUTS: tl.constexpr, CHANNELS: tl.constexpr, GATED: tl.constexpr, CHOSEN: tl.constexpr,
):  # fmt: skip
    """Some outputs: their rows of the weight, read once."""
    o = tl.program_id(0) * OUTPUTS + tl.arange(0, OUTPUTS)
    sums = tl.zeros((OUTPUTS, CHANNELS), tl.float32)
    reads = True
    if CHOSEN:
        reads = tl.load(read) != 0
    if reads:
        rows = weight + o.to(tl.int64)[:, None] * stride
        for first in tl.static_range(0, D, CHANNELS):
            c = first + tl.arange(0, CHANNELS)
            w = tl.load(rows + c[None, :], mask=(o[:, None] < outputs) & (c[None, :] < D), other=0.0)
            own = tl.load(x + c, mask=c < D, other=0.0).to(weight.dtype.element_ty).to(tl.float32)
            if GATED:
                up = tl.load(x + D + c, mask=c < D, other=0.0).to(weight.dtype.element_ty).to(tl.float32)
                own = (own * tl.sigmoid(own)).to(weight.dtype.element_ty).to(tl.float32)
                own = (own * up).to(weight.dtype.element_ty).to(tl.float32)
            sums += w.to(tl.float32) * own[None, :]
    tl.store(y + o, tl.sum(sums, 1).to(weight.dtype.element_ty), mask=o < outputs)
