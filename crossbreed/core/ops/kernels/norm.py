"""Norms of rows in one pass, and all their gradients in one.

y = weight v r with v = x, or x silu(gate), and r = 1 / sqrt(share sum v^2 + eps): RMS with share 1/D, Euclidean with share 1.

Legend: N rows, D numbers of a row, P programs that each add up some rows' gradients of the weight.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

TILE = 4096
"""Numbers of a tile of whole rows, unless one row has more."""
PROGRAMS = 512


def forward(
    x_ND: Tensor, gate_ND: Tensor | None, weight_D: Tensor | None, share: float, eps: float
) -> Tensor:
    """Rows like ``x_ND``; both inputs lie row after row."""
    y_ND = torch.empty_like(x_ND)
    N, D = x_ND.shape
    rows, block = _tile(D)
    _forward[(triton.cdiv(N, rows),)](
        x_ND,
        gate_ND,
        weight_D,
        y_ND,
        N,
        D,
        share,
        eps,
        ROWS=rows,
        BLOCK=block,
        num_warps=_warps(rows * block),
    )
    return y_ND


def backward(
    grad_ND: Tensor, x_ND: Tensor, gate_ND: Tensor | None, weight_D: Tensor | None, share: float, eps: float
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Gradients of x, the gate and, in fp32 and added in a fixed order, the weight."""
    of_x_ND = torch.empty_like(x_ND)
    of_gate_ND = None if gate_ND is None else torch.empty_like(gate_ND)
    N, D = x_ND.shape
    rows, block = _tile(D)
    programs = min(PROGRAMS, triton.cdiv(N, rows))
    of_weight_PD = (
        None if weight_D is None else torch.empty(programs, D, dtype=torch.float32, device=x_ND.device)
    )
    _backward[(programs,)](
        grad_ND,
        x_ND,
        gate_ND,
        weight_D,
        of_x_ND,
        of_gate_ND,
        of_weight_PD,
        N,
        D,
        share,
        eps,
        ROWS=rows,
        BLOCK=block,
        num_warps=_warps(rows * block),
    )
    return of_x_ND, of_gate_ND, None if of_weight_PD is None else of_weight_PD.sum(0)


def _tile(width: int) -> tuple[int, int]:
    block = triton.next_power_of_2(width)
    return max(1, TILE // block), block


def _warps(numbers: int) -> int:
    return max(4, min(16, numbers // 1024))


@triton.jit
def _read(x, gate, at, inside):
    """(x, silu(gate), sigmoid(gate)); ones without a gate."""
    x_rd = tl.load(x + at, mask=inside, other=0.0).to(tl.float32)
    if gate is None:
        sigmoid_rd = tl.full(x_rd.shape, 1.0, tl.float32)
        silu_rd = sigmoid_rd
    else:
        g_rd = tl.load(gate + at, mask=inside, other=0.0).to(tl.float32)
        sigmoid_rd = tl.sigmoid(g_rd)
        silu_rd = g_rd * sigmoid_rd
    return x_rd, silu_rd, sigmoid_rd


@triton.jit
def _forward(x, gate, weight, y, N, D, share, eps, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    row = (tl.program_id(0) * ROWS + tl.arange(0, ROWS)).to(tl.int64)[:, None]
    d = tl.arange(0, BLOCK)[None, :]
    at, inside = row * D + d, (row < N) & (d < D)
    x_rd, silu_rd, _ = _read(x, gate, at, inside)
    v_rd = x_rd * silu_rd
    y_rd = v_rd * tl.rsqrt(share * tl.sum(v_rd * v_rd, 1) + eps)[:, None]
    if weight is not None:
        y_rd *= tl.load(weight + d, mask=d < D, other=0.0).to(tl.float32)
    tl.store(y + at, y_rd.to(y.dtype.element_ty), mask=inside)


@triton.jit
def _backward(
    grad, x, gate, weight, of_x, of_gate, of_weight, N, D, share, eps, ROWS: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    """Tiles of rows by turns; what they give to the weight is added up on the way."""
    d = tl.arange(0, BLOCK)[None, :]
    sum_rd = tl.zeros((ROWS, BLOCK), tl.float32)
    for tile in range(tl.program_id(0), tl.cdiv(N, ROWS), tl.num_programs(0)):
        row = (tile * ROWS + tl.arange(0, ROWS)).to(tl.int64)[:, None]
        at, inside = row * D + d, (row < N) & (d < D)
        x_rd, silu_rd, sigmoid_rd = _read(x, gate, at, inside)
        v_rd = x_rd * silu_rd
        r_r1 = tl.rsqrt(share * tl.sum(v_rd * v_rd, 1) + eps)[:, None]
        normed_rd = v_rd * r_r1
        g_rd = tl.load(grad + at, mask=inside, other=0.0).to(tl.float32)
        if weight is not None:
            sum_rd += g_rd * normed_rd
            g_rd *= tl.load(weight + d, mask=d < D, other=0.0).to(tl.float32)
        of_v_rd = r_r1 * (g_rd - normed_rd * (share * tl.sum(g_rd * normed_rd, 1))[:, None])
        tl.store(of_x + at, (of_v_rd * silu_rd).to(of_x.dtype.element_ty), mask=inside)
        if gate is not None:
            # The slope of silu: s + g s (1 - s), where g s is silu.
            slope_rd = sigmoid_rd + silu_rd * (1.0 - sigmoid_rd)
            tl.store(of_gate + at, (of_v_rd * x_rd * slope_rd).to(of_gate.dtype.element_ty), mask=inside)
    if weight is not None:
        c = tl.arange(0, BLOCK)
        tl.store(of_weight + tl.program_id(0) * D + c, tl.sum(sum_rd, 0), mask=c < D)
