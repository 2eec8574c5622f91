"""The rotation of channel pairs by angles that grow with the position.

Legend: N rows of H heads of K channels, the first R of which turn; r the rows of a program.
"""

from __future__ import annotations

from functools import cache

import torch
import triton
import triton.language as tl
from torch import Tensor

NUMBERS = 2048
"""Of a program: as many rows as hold them, so that rows of few numbers do not each take a program."""


def rotate(x_NHK: Tensor, position_N: Tensor, theta: float, rotated: int, sign: int) -> Tensor:
    """Like ``x_NHK``, which lies head after head: channel i and i + R/2 turned by sign x position x theta^(-2i/R)."""
    y_NHK = torch.empty_like(x_NHK)
    N, H, K = x_NHK.shape
    heads, half = triton.next_power_of_2(H), triton.next_power_of_2(max(1, rotated // 2))
    rest = triton.next_power_of_2(K - rotated) if rotated < K else 0
    rows = max(1, NUMBERS // (heads * max(2 * half, rest)))
    _rotate[(triton.cdiv(N, rows),)](
        x_NHK,
        position_N,
        _speeds(rotated, theta, x_NHK.device),
        y_NHK,
        # One position may stand for all rows, and lie once.
        position_N.stride(0),
        N,
        H,
        K,
        rotated // 2,
        SIGN=sign,
        ROWS=rows,
        HEADS=heads,
        HALF=half,
        REST=rest,
    )
    return y_NHK


@cache
def _speeds(rotated: int, theta: float, device: torch.device) -> Tensor:
    """Radians a position of each pair of channels, as exact as fp32 can be; made once, since every layer asks for them."""
    with torch.inference_mode(False):
        exponent = torch.arange(0, rotated, 2, dtype=torch.float64) / max(rotated, 1)
        return (theta**-exponent).float().to(device)


@triton.jit
def _rotate(
    x, position, speeds, y, position_n, N, H, K, half,
    SIGN: tl.constexpr, ROWS: tl.constexpr, HEADS: tl.constexpr, HALF: tl.constexpr, REST: tl.constexpr,
):  # fmt: skip
    n = (tl.program_id(0) * ROWS + tl.arange(0, ROWS)).to(tl.int64)
    h = tl.arange(0, HEADS)[None, :, None]
    at = (n[:, None, None] * H + h) * K
    i = tl.arange(0, HALF)
    speed_i = tl.load(speeds + i, mask=i < half, other=0.0)
    position_r = tl.load(position + n * position_n, mask=n < N, other=0).to(tl.float32)
    angle_ri = position_r[:, None] * speed_i[None, :]
    cos, sin = tl.cos(angle_ri)[:, None, :], SIGN * tl.sin(angle_ri)[:, None, :]
    real = (n < N)[:, None, None] & (h < H)
    pairs, i = real & (i < half)[None, None, :], i[None, None, :]
    first = tl.load(x + at + i, mask=pairs, other=0.0).to(tl.float32)
    second = tl.load(x + at + half + i, mask=pairs, other=0.0).to(tl.float32)
    tl.store(y + at + i, (first * cos - second * sin).to(y.dtype.element_ty), mask=pairs)
    tl.store(y + at + half + i, (second * cos + first * sin).to(y.dtype.element_ty), mask=pairs)
    if REST > 0:
        k = 2 * half + tl.arange(0, REST)[None, None, :]
        others = real & (k < K)
        tl.store(y + at + k, tl.load(x + at + k, mask=others, other=0.0), mask=others)
