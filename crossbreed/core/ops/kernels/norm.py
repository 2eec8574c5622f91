"""Norms of rows in one pass, and all their gradients in one; for training, prefill and decoded tokens alike.

y = weight v r with v = x, or x silu(gate), and r = 1 / sqrt(share sum v^2 + eps): RMS with share 1/D, Euclidean with share 1. With
the gate behind it is y = weight x r silu(gate).

Legend: N groups of M rows, which lie one after another in a group, groups wherever a stride puts them; D numbers of a row, side by
side; R rows in all, P programs that each add up some rows' gradients of the weight.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

TILE = 4096
"""Numbers of a tile of whole rows, unless one row has more."""
FEW = 512
"""Rows up to which each has a program of its own."""
PROGRAMS = 512


def forward(
    x_NMD: Tensor,
    gate_NMD: Tensor | None,
    weight_D: Tensor | None,
    share: float,
    eps: float,
    gate_first: bool = True,
) -> Tensor:
    """y_RD, in the dtype of x."""
    N, M, D = x_NMD.shape
    R = N * M
    y_RD = torch.empty(R, D, dtype=x_NMD.dtype, device=x_NMD.device)
    rows, block = _tile(D)
    rows = 1 if R <= FEW else rows
    _forward[(triton.cdiv(R, rows),)](
        x_NMD,
        gate_NMD,
        weight_D,
        y_RD,
        x_NMD.stride(0),
        0 if gate_NMD is None else gate_NMD.stride(0),
        R,
        M,
        D,
        share,
        eps,
        GATE_FIRST=gate_first,
        ROWS=rows,
        BLOCK=block,
        num_warps=_warps(rows * block),
    )
    return y_RD


def backward(
    grad_RD: Tensor,
    x_NMD: Tensor,
    gate_NMD: Tensor | None,
    weight_D: Tensor | None,
    share: float,
    eps: float,
    gate_first: bool = True,
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Gradients of x and the gate, row after row, and, in fp32 and added in a fixed order, of the weight."""
    N, M, D = x_NMD.shape
    R, device = N * M, x_NMD.device
    of_x_RD = torch.empty(R, D, dtype=x_NMD.dtype, device=device)
    of_gate_RD = None if gate_NMD is None else torch.empty(R, D, dtype=gate_NMD.dtype, device=device)
    rows, block = _tile(D)
    programs = min(PROGRAMS, triton.cdiv(R, rows))
    of_weight_PD = None if weight_D is None else torch.empty(programs, D, dtype=torch.float32, device=device)
    _backward[(programs,)](
        grad_RD,
        x_NMD,
        gate_NMD,
        weight_D,
        of_x_RD,
        of_gate_RD,
        of_weight_PD,
        x_NMD.stride(0),
        0 if gate_NMD is None else gate_NMD.stride(0),
        R,
        M,
        D,
        share,
        eps,
        GATE_FIRST=gate_first,
        ROWS=rows,
        BLOCK=block,
        num_warps=_warps(rows * block),
    )
    return of_x_RD, of_gate_RD, None if of_weight_PD is None else of_weight_PD.sum(0)


def _tile(width: int) -> tuple[int, int]:
    block = triton.next_power_of_2(width)
    return max(1, TILE // block), block


def _warps(numbers: int) -> int:
    return max(4, min(16, numbers // 1024))


@triton.jit
def _read(x, gate, row, d, row_x, row_gate, M, D, inside):
    """(x, silu(gate), sigmoid(gate)); ones without a gate."""
    group, at = row // M, row % M * D + d
    x_rd = tl.load(x + group * row_x + at, mask=inside, other=0.0).to(tl.float32)
    if gate is None:
        sigmoid_rd = tl.full(x_rd.shape, 1.0, tl.float32)
        silu_rd = sigmoid_rd
    else:
        g_rd = tl.load(gate + group * row_gate + at, mask=inside, other=0.0).to(tl.float32)
        sigmoid_rd = tl.sigmoid(g_rd)
        silu_rd = g_rd * sigmoid_rd
    return x_rd, silu_rd, sigmoid_rd


@triton.jit
def _forward(
    x, gate, weight, y, row_x, row_gate, R, M, D, share, eps,
    GATE_FIRST: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row = (tl.program_id(0) * ROWS + tl.arange(0, ROWS)).to(tl.int64)[:, None]
    d = tl.arange(0, BLOCK)[None, :]
    inside = (row < R) & (d < D)
    x_rd, silu_rd, _ = _read(x, gate, row, d, row_x, row_gate, M, D, inside)
    v_rd = x_rd
    if GATE_FIRST:
        v_rd *= silu_rd
    y_rd = v_rd * tl.rsqrt(share * tl.sum(v_rd * v_rd, 1) + eps)[:, None]
    if weight is not None:
        y_rd *= tl.load(weight + d, mask=d < D, other=0.0).to(tl.float32)
    if not GATE_FIRST:
        y_rd *= silu_rd
    tl.store(y + row * D + d, y_rd.to(y.dtype.element_ty), mask=inside)


@triton.jit
def _backward(
    grad, x, gate, weight, of_x, of_gate, of_weight, row_x, row_gate, R, M, D, share, eps,
    GATE_FIRST: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Tiles of rows by turns; what they give to the weight is added up on the way."""
    d = tl.arange(0, BLOCK)[None, :]
    sum_rd = tl.zeros((ROWS, BLOCK), tl.float32)
    for tile in range(tl.program_id(0), tl.cdiv(R, ROWS), tl.num_programs(0)):
        row = (tile * ROWS + tl.arange(0, ROWS)).to(tl.int64)[:, None]
        at, inside = row * D + d, (row < R) & (d < D)
        x_rd, silu_rd, sigmoid_rd = _read(x, gate, row, d, row_x, row_gate, M, D, inside)
        v_rd = x_rd
        if GATE_FIRST:
            v_rd *= silu_rd
        r_r1 = tl.rsqrt(share * tl.sum(v_rd * v_rd, 1) + eps)[:, None]
        normed_rd = v_rd * r_r1
        # Of y first, then of the weighted norm, of the norm, of v.
        g_rd = tl.load(grad + at, mask=inside, other=0.0).to(tl.float32)
        of_silu_rd = g_rd
        if not GATE_FIRST:
            of_silu_rd *= normed_rd
            g_rd *= silu_rd
        if weight is not None:
            w_1d = tl.load(weight + d, mask=d < D, other=0.0).to(tl.float32)
            sum_rd += g_rd * normed_rd
            g_rd *= w_1d
            if not GATE_FIRST:
                of_silu_rd *= w_1d
        of_x_rd = r_r1 * (g_rd - normed_rd * (share * tl.sum(g_rd * normed_rd, 1))[:, None])
        if GATE_FIRST:
            of_silu_rd = of_x_rd * x_rd
            of_x_rd *= silu_rd
        tl.store(of_x + at, of_x_rd.to(of_x.dtype.element_ty), mask=inside)
        if gate is not None:
            # The slope of silu: s + g s (1 - s), where g s is silu.
            slope_rd = sigmoid_rd + silu_rd * (1.0 - sigmoid_rd)
            tl.store(of_gate + at, (of_silu_rd * slope_rd).to(of_gate.dtype.element_ty), mask=inside)
    if weight is not None:
        c = tl.arange(0, BLOCK)
        tl.store(of_weight + tl.program_id(0) * D + c, tl.sum(sum_rd, 0), mask=c < D)
