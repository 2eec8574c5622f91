"""Entropy of an output head's softmax in one pass over its logits, which no memory ever holds.

A program takes a tile of rows and a share of the vocabulary and keeps, for each row, the greatest logit m, the total l of 2^(y - m)
and the weighted sum a of 2^(y - m) (y - m), where y are the logits in bits; a second kernel joins the shares. The entropy is
log2 l - a / l bits. A share is one tile of the vocabulary when rows are few: the head is read once, by all the device.

Legend: N rows (tokens), V classes, D width, S shares.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
import triton
import triton.language as tl
from torch import Tensor

LOG2_E = tl.constexpr(math.log2(math.e))
LOWEST = tl.constexpr(-1e30)
"""Stands for minus infinity, which times the zero that it is the logarithm of would be NaN."""
GROUP = 16
"""Tiles of rows that take one share of the vocabulary after another, so that both stay near."""
JOINED = 4096
"""Numbers that a joining program holds at a time."""


@dataclass(frozen=True)
class Tiles:
    """Rows and classes of a tile, channels multiplied at a time, tiles of the vocabulary in a share, and the launch."""

    rows: int
    classes: int
    width: int
    share: int
    warps: int
    stages: int


FEW = Tiles(16, 64, 128, 1, 4, 4)
SOME = Tiles(64, 128, 64, 1, 4, 4)
MANY = Tiles(128, 256, 64, 8, 8, 3)


def tiles_for(rows: int, bits: int) -> Tiles:
    """Tiles by the number of rows: bound by reading the head, or by its products. Numbers of 32 bits need more room."""
    tiles = next((few for few in (FEW, SOME) if rows <= few.rows), MANY)
    return tiles if bits == 16 else replace(tiles, classes=min(128, tiles.classes), width=tiles.width // 2)


def head_entropy(h_ND: Tensor, weight_VD: Tensor, tiles: Tiles | None = None) -> Tensor:
    """`entropy_N` of softmax(h weight^T) over ln V, fp32 in 0..1. Both inputs in one dtype of 16 or 32 bits."""
    h_ND, weight_VD = h_ND.contiguous(), weight_VD.contiguous()
    (N, D), V = h_ND.shape, len(weight_VD)
    if tiles is None:
        tiles = tiles_for(N, 8 * h_ND.element_size())
    row_tiles, class_tiles = triton.cdiv(N, tiles.rows), triton.cdiv(V, tiles.classes)
    S = triton.cdiv(class_tiles, tiles.share)
    found_3SN = torch.empty(3, S, N, dtype=torch.float32, device=h_ND.device)
    entropy_N = torch.empty(N, dtype=torch.float32, device=h_ND.device)
    if not N:
        return entropy_N
    _shares[(row_tiles * S,)](
        h_ND,
        weight_VD,
        found_3SN,
        N,
        V,
        D,
        S,
        row_tiles,
        class_tiles,
        PRECISION=_precision(h_ND),
        WHOLE=D % tiles.width == 0,
        ROWS=tiles.rows,
        CLASSES=tiles.classes,
        WIDTH=tiles.width,
        SHARE=tiles.share,
        GROUP=GROUP,
        num_warps=tiles.warps,
        num_stages=tiles.stages,
    )
    rows = min(32, triton.next_power_of_2(triton.cdiv(N, 128)))
    shares = min(JOINED // rows, triton.next_power_of_2(S))
    _join[(triton.cdiv(N, rows),)](
        found_3SN, entropy_N, N, S, 1 / math.log2(V), ROWS=rows, SHARES=shares, num_warps=4
    )
    return entropy_N


def _precision(x: Tensor) -> str:
    """Of products in 32 bits: PyTorch's setting, or three passes of tensor cores that keep what it keeps by default."""
    return "tf32" if torch.backends.cuda.matmul.allow_tf32 and x.dtype == torch.float32 else "tf32x3"


@triton.jit(do_not_specialize=["N", "S", "row_tiles", "class_tiles"])
def _shares(
    h, weight, found, N, V, D, S, row_tiles, class_tiles,
    PRECISION: tl.constexpr, WHOLE: tl.constexpr, ROWS: tl.constexpr, CLASSES: tl.constexpr, WIDTH: tl.constexpr,
    SHARE: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    """One share of the vocabulary for one tile of rows."""
    group = tl.program_id(0) // (GROUP * S)
    within = tl.program_id(0) % (GROUP * S)
    rows_of_group = tl.minimum(row_tiles - group * GROUP, GROUP)
    n = (group * GROUP + within % rows_of_group) * ROWS + tl.arange(0, ROWS)
    share = within // rows_of_group
    k = tl.arange(0, WIDTH)
    h += n.to(tl.int64)[:, None] * D + k[None, :]
    greatest = tl.full((ROWS,), LOWEST, tl.float32)
    total = tl.zeros((ROWS,), tl.float32)
    weighted = tl.zeros((ROWS,), tl.float32)
    for tile in range(share * SHARE, tl.minimum((share + 1) * SHARE, class_tiles)):
        v = tile * CLASSES + tl.arange(0, CLASSES)
        head = weight + v.to(tl.int64)[None, :] * D + k[:, None]
        y = tl.zeros((ROWS, CLASSES), tl.float32)
        for d in range(0, D, WIDTH):
            if WHOLE:
                a = tl.load(h + d, mask=(n < N)[:, None], other=0.0)
                b = tl.load(head + d, mask=(v < V)[None, :], other=0.0)
            else:
                a = tl.load(h + d, mask=(n < N)[:, None] & (d + k < D)[None, :], other=0.0)
                b = tl.load(head + d, mask=(v < V)[None, :] & (d + k < D)[:, None], other=0.0)
            y = tl.dot(a, b, y, input_precision=PRECISION)
        y = tl.where((v < V)[None, :], y * LOG2_E, LOWEST)
        higher = tl.maximum(greatest, tl.max(y, 1))
        y -= higher[:, None]
        p = tl.exp2(y)
        drop = greatest - higher
        weighted = (weighted + total * drop) * tl.exp2(drop) + tl.sum(p * y, 1)
        total = total * tl.exp2(drop) + tl.sum(p, 1)
        greatest = higher
    found += share.to(tl.int64) * N + n
    stride = S.to(tl.int64) * N
    tl.store(found, greatest, mask=n < N)
    tl.store(found + stride, total, mask=n < N)
    tl.store(found + 2 * stride, weighted, mask=n < N)


@triton.jit(do_not_specialize=["N", "S"])
def _join(found, entropy, N, S, scale, ROWS: tl.constexpr, SHARES: tl.constexpr):
    """Entropies of some rows from all their shares."""
    n = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    stride = S.to(tl.int64) * N
    greatest = tl.full((ROWS,), LOWEST, tl.float32)
    total = tl.zeros((ROWS,), tl.float32)
    weighted = tl.zeros((ROWS,), tl.float32)
    for start in range(0, S, SHARES):
        s = start + tl.arange(0, SHARES)
        there = (s < S)[:, None] & (n < N)[None, :]
        place = found + s.to(tl.int64)[:, None] * N + n[None, :]
        greatests = tl.load(place, mask=there, other=LOWEST)
        totals = tl.load(place + stride, mask=there, other=0.0)
        weighteds = tl.load(place + 2 * stride, mask=there, other=0.0)
        higher = tl.maximum(greatest, tl.max(greatests, 0))
        drop = greatest - higher
        weighted = (weighted + total * drop) * tl.exp2(drop)
        total = total * tl.exp2(drop)
        drop = greatests - higher[None, :]
        weighted += tl.sum((weighteds + totals * drop) * tl.exp2(drop), 0)
        total += tl.sum(totals * tl.exp2(drop), 0)
        greatest = higher
    bits = tl.log2(total) - weighted / total
    share = tl.maximum(bits * scale, 0.0, propagate_nan=tl.PropagateNan.ALL)
    tl.store(entropy + n, tl.minimum(share, 1.0, propagate_nan=tl.PropagateNan.ALL), mask=n < N)
