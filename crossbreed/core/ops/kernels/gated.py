"""SiLU of one half times the other, and both halves' gradients, each in one pass.

Legend: n rows, F numbers of a row; rows may lie apart, numbers of a row lie side by side.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

ROWS, LARGEST_BLOCK = 4, 1024


def forward(gate_nF: Tensor, up_nF: Tensor) -> Tensor:
    """y = gate sigmoid(gate) up."""
    y_nF = torch.empty(gate_nF.shape, dtype=gate_nF.dtype, device=gate_nF.device)
    n, F = gate_nF.shape
    grid, block = _tiles(n, F)
    _gated[grid](gate_nF, up_nF, y_nF, n, F, gate_nF.stride(0), up_nF.stride(0), ROWS=ROWS, BLOCK=block)
    return y_nF


def backward_(
    grad_nF: Tensor, gate_nF: Tensor, up_nF: Tensor, grad_gate_nF: Tensor, grad_up_nF: Tensor
) -> None:
    """Fill both gradients, whose rows lie as far apart as each other's."""
    n, F = gate_nF.shape
    grid, block = _tiles(n, F)
    _gated_gradients[grid](
        grad_nF,
        gate_nF,
        up_nF,
        grad_gate_nF,
        grad_up_nF,
        n,
        F,
        grad_nF.stride(0),
        gate_nF.stride(0),
        up_nF.stride(0),
        grad_gate_nF.stride(0),
        ROWS=ROWS,
        BLOCK=block,
    )


def _tiles(n: int, F: int) -> tuple[tuple[int, int], int]:
    block = min(LARGEST_BLOCK, int(triton.next_power_of_2(F)))
    return (triton.cdiv(n, ROWS), triton.cdiv(F, block)), block


@triton.jit
def _gated(gate, up, y, n, F, gate_n, up_n, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    row = (tl.program_id(0) * ROWS + tl.arange(0, ROWS)).to(tl.int64)[:, None]
    c = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)[None, :]
    inside = (row < n) & (c < F)
    g = tl.load(gate + row * gate_n + c, mask=inside, other=0.0).to(tl.float32)
    u = tl.load(up + row * up_n + c, mask=inside, other=0.0).to(tl.float32)
    tl.store(y + row * F + c, (g * tl.sigmoid(g) * u).to(y.dtype.element_ty), mask=inside)


@triton.jit
def _gated_gradients(grad, gate, up, grad_gate, grad_up, n, F, grad_n, gate_n, up_n, out_n, ROWS: tl.constexpr, BLOCK: tl.constexpr):  # fmt: skip
    row = (tl.program_id(0) * ROWS + tl.arange(0, ROWS)).to(tl.int64)[:, None]
    c = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)[None, :]
    inside = (row < n) & (c < F)
    d = tl.load(grad + row * grad_n + c, mask=inside, other=0.0).to(tl.float32)
    g = tl.load(gate + row * gate_n + c, mask=inside, other=0.0).to(tl.float32)
    u = tl.load(up + row * up_n + c, mask=inside, other=0.0).to(tl.float32)
    s = tl.sigmoid(g)
    tl.store(
        grad_gate + row * out_n + c,
        (d * u * s * (1.0 + g * (1.0 - s))).to(grad_gate.dtype.element_ty),
        mask=inside,
    )
    tl.store(grad_up + row * out_n + c, (d * g * s).to(grad_up.dtype.element_ty), mask=inside)
