"""Cross-entropy of a piece of the logits in two passes over it, the gradient left in its place.

Legend: n rows (tokens), V classes.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

LARGEST_BLOCK = 4096


def softmax_loss_(logits_nV: Tensor, target_n: Tensor, gradient: bool) -> tuple[Tensor, Tensor]:
    """Each row's loss (nats, fp32) and whether its greatest logit, the first of equal ones, is the target.

    With ``gradient`` the logits become softmax(logits) less 1 at the target. Rows must lie one after another in memory.
    """
    rows, V = logits_nV.shape
    nats_n = torch.empty(rows, dtype=torch.float32, device=logits_nV.device)
    right_n = torch.empty(rows, dtype=torch.bool, device=logits_nV.device)
    block = min(LARGEST_BLOCK, triton.next_power_of_2(V))
    _softmax_loss[(rows,)](
        logits_nV,
        target_n,
        nats_n,
        right_n,
        V,
        logits_nV.stride(0),
        GRADIENT=gradient,
        BLOCK=block,
        num_warps=max(1, min(16, block // 256)),
    )
    return nats_n, right_n


@triton.jit
def _softmax_loss(
    logits, target, nats, right, V, stride, GRADIENT: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    """One row a program: its normalisation and whether anything beats the target, then the gradient."""
    row = tl.program_id(0).to(tl.int64)
    logits += row * stride
    label = tl.load(target + row)
    wanted = tl.load(logits + label).to(tl.float32)
    greatest = tl.full((), float("-inf"), tl.float32)
    total = tl.zeros((), tl.float32)
    beaten = tl.zeros((), tl.int32)
    for start in range(0, V, BLOCK):
        v = start + tl.arange(0, BLOCK)
        x = tl.load(logits + v, mask=v < V, other=float("-inf")).to(tl.float32)
        higher = tl.maximum(greatest, tl.max(x, 0))
        # A row of -inf alone has no normalisation, here as elsewhere: NaN says so.
        total = total * tl.exp(greatest - higher) + tl.sum(tl.exp(x - higher), 0)
        greatest = higher
        beaten += tl.sum(((x > wanted) | ((x == wanted) & (v < label))).to(tl.int32), 0)
    normaliser = greatest + tl.log(total)
    tl.store(nats + row, normaliser - wanted)
    tl.store(right + row, beaten == 0)
    if GRADIENT:
        for start in range(0, V, BLOCK):
            v = start + tl.arange(0, BLOCK)
            x = tl.load(logits + v, mask=v < V, other=0.0).to(tl.float32)
            p = tl.exp(x - normaliser) - (v == label).to(tl.float32)
            tl.store(logits + v, p.to(logits.dtype.element_ty), mask=v < V)
