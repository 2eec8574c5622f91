"""Weighted sums of rows from where they lie, and the way back, each in one pass.

Legend: N sums, J rows of each, M = N J rows in all, D numbers of a row.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

LARGEST_BLOCK = 1024


def forward(x_MD: Tensor, place_NJ: Tensor, weight_NJ: Tensor | None) -> Tensor:
    """y_n = sum_j weight_nj x[place_nj], the sum in fp32 and in this order; without weights each is 1."""
    (N, J), D = place_NJ.shape, x_MD.shape[1]
    y_ND = torch.empty(N, D, dtype=x_MD.dtype, device=x_MD.device)
    block = _block(D)
    _weighted_sum[(N, triton.cdiv(D, block))](
        x_MD.contiguous(), place_NJ, weight_NJ, y_ND, D, J=J, BLOCK=block, num_warps=_warps(block)
    )
    return y_ND


def backward(grad_ND: Tensor, x_MD: Tensor, place_NJ: Tensor, weight_NJ: Tensor) -> tuple[Tensor, Tensor]:
    """(gradient_MD of the rows, gradient_NJ of the weights in fp32); every row lies at one place."""
    (N, J), D = place_NJ.shape, x_MD.shape[1]
    grad_MD = torch.empty(x_MD.shape, dtype=x_MD.dtype, device=x_MD.device)
    grad_NJ = torch.empty(N, J, dtype=torch.float32, device=x_MD.device)
    block = _block(D)
    _weighted_sum_gradients[(N * J,)](
        grad_ND.contiguous(),
        x_MD.contiguous(),
        place_NJ,
        weight_NJ,
        grad_MD,
        grad_NJ,
        D,
        J=J,
        BLOCK=block,
        num_warps=_warps(block),
    )
    return grad_MD, grad_NJ


def _block(D: int) -> int:
    return min(LARGEST_BLOCK, int(triton.next_power_of_2(D)))


def _warps(block: int) -> int:
    return max(1, min(4, block // 256))


@triton.jit
def _weighted_sum(x, place, weight, y, D, J: tl.constexpr, BLOCK: tl.constexpr):
    n = tl.program_id(0).to(tl.int64)
    c = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    sum_c = tl.zeros((BLOCK,), tl.float32)
    for j in range(J):
        row = tl.load(place + n * J + j)
        x_c = tl.load(x + row * D + c, mask=c < D, other=0.0).to(tl.float32)
        if weight is not None:
            x_c *= tl.load(weight + n * J + j).to(tl.float32)
        sum_c += x_c
    tl.store(y + n * D + c, sum_c.to(y.dtype.element_ty), mask=c < D)


@triton.jit
def _weighted_sum_gradients(
    grad, x, place, weight, grad_x, grad_weight, D, J: tl.constexpr, BLOCK: tl.constexpr
):
    """One row of one sum."""
    slot = tl.program_id(0).to(tl.int64)
    n = slot // J
    row = tl.load(place + slot)
    w = tl.load(weight + slot).to(tl.float32)
    sum_c = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, D, BLOCK):
        c = start + tl.arange(0, BLOCK)
        d = tl.load(grad + n * D + c, mask=c < D, other=0.0).to(tl.float32)
        x_c = tl.load(x + row * D + c, mask=c < D, other=0.0).to(tl.float32)
        sum_c += d * x_c
        tl.store(grad_x + row * D + c, (w * d).to(grad_x.dtype.element_ty), mask=c < D)
    tl.store(grad_weight + slot, tl.sum(sum_c, 0))
