"""The depthwise convolution along time, its inputs' gradient and its taps'.

Legend: B rows, S places of the longer side, T of the shorter one (S = T + W - 1), C channels, W taps.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

LARGEST_TIMES, LARGEST_CHANNELS = 32, 128
TILES = 4
"""Tiles of times that one program adds up for the taps' gradients."""


def convolve(x_BSC: Tensor, weight_CW: Tensor, bias_C: Tensor | None, dtype: torch.dtype) -> Tensor:
    """y_BTC with y[t] = bias + sum_w weight[:, w] x[t + w], summed in fp32."""
    B, S, C = x_BSC.shape
    return _launch(
        x_BSC,
        weight_CW,
        bias_C,
        torch.empty(B, S - weight_CW.shape[1] + 1, C, dtype=dtype, device=x_BSC.device),
        1,
    )


def input_gradient(grad_BTC: Tensor, weight_CW: Tensor, dtype: torch.dtype) -> Tensor:
    """gradient_BSC with gradient[s] = sum_w weight[:, w] grad[s - w] over the places that there are."""
    B, T, C = grad_BTC.shape
    return _launch(
        grad_BTC,
        weight_CW,
        None,
        torch.empty(B, T + weight_CW.shape[1] - 1, C, dtype=dtype, device=grad_BTC.device),
        -1,
    )


def tap_gradients(x_BSC: Tensor, grad_BTC: Tensor) -> tuple[Tensor, Tensor]:
    """(gradient_CW of the taps, gradient_C of the bias) in fp32, added in a fixed order."""
    B, T, C = grad_BTC.shape
    W = x_BSC.shape[1] - T + 1
    times, channels = _blocks(T, C)
    spans = triton.cdiv(T, times * TILES)
    parts = torch.empty(B * spans, W + 1, C, dtype=torch.float32, device=grad_BTC.device)
    _tap_gradients[(spans, B, triton.cdiv(C, channels))](
        x_BSC.contiguous(),
        grad_BTC.contiguous(),
        parts,
        T,
        C,
        W=W,
        TILES=TILES,
        TIMES=times,
        CHANNELS=channels,
    )
    total_WC = parts.sum(0)
    return total_WC[:W].T.contiguous(), total_WC[W]


def _launch(x_BSC: Tensor, weight_CW: Tensor, bias_C: Tensor | None, y_BTC: Tensor, sign: int) -> Tensor:
    B, T, C = y_BTC.shape
    times, channels = _blocks(T, C)
    _taps[(triton.cdiv(T, times), B, triton.cdiv(C, channels))](
        x_BSC.contiguous(),
        weight_CW.contiguous(),
        bias_C,
        y_BTC,
        x_BSC.shape[1],
        T,
        C,
        W=weight_CW.shape[1],
        SIGN=sign,
        TIMES=times,
        CHANNELS=channels,
    )
    return y_BTC


def _blocks(times: int, channels: int) -> tuple[int, int]:
    return min(LARGEST_TIMES, triton.next_power_of_2(times)), min(
        LARGEST_CHANNELS, triton.next_power_of_2(channels)
    )


@triton.jit
def _taps(x, weight, bias, y, S, T, C, W: tl.constexpr, SIGN: tl.constexpr, TIMES: tl.constexpr, CHANNELS: tl.constexpr):  # fmt: skip
    """A tile of y: y[t] = bias + sum_w weight[:, w] x[t + SIGN w], nothing outside 0..S - 1."""
    t = tl.program_id(0) * TIMES + tl.arange(0, TIMES)
    row = tl.program_id(1).to(tl.int64)
    c = tl.program_id(2) * CHANNELS + tl.arange(0, CHANNELS)
    sum_tc = tl.zeros((TIMES, CHANNELS), tl.float32)
    for w in tl.static_range(W):
        s = t + SIGN * w
        there = (s >= 0)[:, None] & (s < S)[:, None] & (c < C)[None, :]
        x_tc = tl.load(x + (row * S + s)[:, None] * C + c[None, :], mask=there, other=0.0).to(tl.float32)
        sum_tc += x_tc * tl.load(weight + c * W + w, mask=c < C, other=0.0).to(tl.float32)[None, :]
    if bias is not None:
        sum_tc += tl.load(bias + c, mask=c < C, other=0.0).to(tl.float32)[None, :]
    inside = (t < T)[:, None] & (c < C)[None, :]
    tl.store(y + (row * T + t)[:, None] * C + c[None, :], sum_tc.to(y.dtype.element_ty), mask=inside)


@triton.jit
def _tap_gradients(x, grad, parts, T, C, W: tl.constexpr, TILES: tl.constexpr, TIMES: tl.constexpr, CHANNELS: tl.constexpr):  # fmt: skip
    """Sums over a span of times: of gradients times the inputs that each tap met, and of gradients alone."""
    span, row = tl.program_id(0), tl.program_id(1).to(tl.int64)
    c = tl.program_id(2) * CHANNELS + tl.arange(0, CHANNELS)
    part = parts + (row * tl.num_programs(0) + span) * (W + 1) * C + c
    S = T + W - 1
    for w in tl.static_range(W + 1):
        sum_c = tl.zeros((CHANNELS,), tl.float32)
        for tile in range(TILES):
            t = (span * TILES + tile) * TIMES + tl.arange(0, TIMES)
            inside = (t < T)[:, None] & (c < C)[None, :]
            found_tc = tl.load(grad + (row * T + t)[:, None] * C + c[None, :], mask=inside, other=0.0).to(
                tl.float32
            )
            if w < W:
                at = (row * S + t + w)[:, None] * C + c[None, :]
                found_tc *= tl.load(x + at, mask=inside, other=0.0).to(tl.float32)
            sum_c += tl.sum(found_tc, 0)
        tl.store(part + w * C, sum_c, mask=c < C)
