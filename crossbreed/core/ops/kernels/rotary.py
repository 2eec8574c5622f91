"""The rotation of channel pairs by angles that grow with the position.

Legend: N rows of H heads of K channels, the first R of which turn.
"""

from __future__ import annotations

from functools import cache

import torch
import triton
import triton.language as tl
from torch import Tensor


def rotate(x_NHK: Tensor, position_N: Tensor, theta: float, rotated: int, sign: int) -> Tensor:
    """Like ``x_NHK``, which lies head after head: channel i and i + R/2 turned by sign x position x theta^(-2i/R)."""
    y_NHK = torch.empty_like(x_NHK)
    N, H, K = x_NHK.shape
    half = triton.next_power_of_2(max(1, rotated // 2))
    rest = triton.next_power_of_2(K - rotated) if rotated < K else 0
    _rotate[(N,)](
        x_NHK,
        position_N,
        _speeds(rotated, theta, x_NHK.device),
        y_NHK,
        # One position may stand for all rows, and lie once.
        position_N.stride(0),
        H,
        K,
        rotated // 2,
        SIGN=sign,
        HEADS=triton.next_power_of_2(H),
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
def _rotate(x, position, speeds, y, position_n, H, K, half, SIGN: tl.constexpr, HEADS: tl.constexpr, HALF: tl.constexpr, REST: tl.constexpr):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    h = tl.arange(0, HEADS)[:, None]
    at = row * H * K + h * K
    i = tl.arange(0, HALF)
    angle = tl.load(position + row * position_n).to(tl.float32) * tl.load(
        speeds + i, mask=i < half, other=0.0
    )
    cos, sin = tl.cos(angle)[None, :], SIGN * tl.sin(angle)[None, :]
    pairs = (h < H) & (i < half)[None, :]
    first = tl.load(x + at + i[None, :], mask=pairs, other=0.0).to(tl.float32)
    second = tl.load(x + at + half + i[None, :], mask=pairs, other=0.0).to(tl.float32)
    tl.store(y + at + i[None, :], (first * cos - second * sin).to(y.dtype.element_ty), mask=pairs)
    tl.store(y + at + half + i[None, :], (second * cos + first * sin).to(y.dtype.element_ty), mask=pairs)
    if REST > 0:
        k = 2 * half + tl.arange(0, REST)[None, :]
        others = (h < H) & (k < K)
        tl.store(y + at + k, tl.load(x + at + k, mask=others, other=0.0), mask=others)
