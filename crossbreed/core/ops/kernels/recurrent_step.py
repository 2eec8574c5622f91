"""One decoded token of every row through a recurrence and its convolution: a kernel each."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

VALUES = 16
"""Value channels of a program."""
CHANNELS = 256
INPUTS = 1024
"""Input channels of a tile."""


def recurrent_step(
    q_BQK: Tensor,
    k_BGK: Tensor,
    v_BUV: Tensor,
    x_BD: Tensor,
    weight_OD: Tensor,
    A_log_H: Tensor,
    dt_bias_H: Tensor,
    skip_H: Tensor | None,
    state_BHKV: Tensor,
    position_B: Tensor,
    read_B: Tensor | None,
    trace_B: Tensor | None,
    normalise: bool,
    most: float,
    scale: float,
) -> tuple[Tensor, Tensor]:
    """(o_BHV, new state); the arguments are those of ``core.ops.one_token.recurrence``."""
    B, H, K, V = state_BHKV.shape
    D = x_BD.shape[-1]
    q_BQK, k_BGK, v_BUV = (_heads_together(x) for x in (q_BQK, k_BGK, v_BUV))
    o_BHV = torch.empty(B, H, V, dtype=v_BUV.dtype, device=v_BUV.device)
    new_BHKV = torch.empty_like(state_BHKV)
    _step[(B * H, triton.cdiv(V, VALUES))](
        q_BQK,
        k_BGK,
        v_BUV,
        x_BD,
        weight_OD,
        A_log_H,
        dt_bias_H,
        A_log_H if skip_H is None else skip_H,
        state_BHKV,
        position_B,
        position_B if read_B is None else read_B,
        position_B if trace_B is None else trace_B,
        o_BHV,
        new_BHKV,
        q_BQK.stride(0),
        k_BGK.stride(0),
        v_BUV.stride(0),
        x_BD.stride(0),
        weight_OD.stride(0),
        most,
        scale,
        H=H,
        K=K,
        V=V,
        Q_SHARED=H // q_BQK.shape[1],
        K_SHARED=H // k_BGK.shape[1],
        V_SHARED=H // v_BUV.shape[1],
        PADDED_K=triton.next_power_of_2(K),
        VALUES=VALUES,
        D=D,
        INPUTS=min(INPUTS, triton.next_power_of_2(D)),
        DELTA=len(weight_OD) > H,
        SKIP=skip_H is not None,
        NORMALISE=normalise,
        CHOSEN=read_B is not None,
        TRACED=trace_B is not None,
        num_warps=4,
    )
    return o_BHV, new_BHKV


def conv_step(
    x_BC: Tensor,
    weight_CW: Tensor,
    bias_C: Tensor | None,
    tail_BWC: Tensor,
    position_B: Tensor,
    silu: bool,
) -> tuple[Tensor, Tensor]:
    """(y_BC, new tail): one token through a short causal convolution, whose tail a document's first token does not see."""
    (B, C), W = x_BC.shape, weight_CW.shape[1]
    y_BC = torch.empty(B, C, dtype=x_BC.dtype, device=x_BC.device)
    after_BWC = torch.empty_like(tail_BWC)
    _conv[(B, triton.cdiv(C, CHANNELS))](
        x_BC,
        weight_CW,
        weight_CW if bias_C is None else bias_C,
        tail_BWC,
        position_B,
        y_BC,
        after_BWC,
        x_BC.stride(0),
        C,
        W=W,
        CHANNELS=CHANNELS,
        BIAS=bias_C is not None,
        SILU=silu,
        num_warps=2,
    )
    return y_BC, after_BWC


def _heads_together(x_NHK: Tensor) -> Tensor:
    """The same with the heads of a row lying one after another."""
    H, K = x_NHK.shape[1:]
    together = x_NHK.stride(2) == 1 and (H == 1 or x_NHK.stride(1) == K)
    return x_NHK if together else x_NHK.contiguous()


@triton.jit
def _softplus(x):
    """ln(1 + e^x), to the last digits where e^x is small, too: what 1 + e^x loses is known and divided out."""
    e = tl.exp(tl.minimum(x, 20.0))
    sum = 1.0 + e
    small = sum == 1.0
    return tl.where(x > 20.0, x, tl.where(small, e, tl.log(sum) * (e / tl.where(small, 1.0, sum - 1.0))))


@triton.jit
def _product(x, weight, D: tl.constexpr, INPUTS: tl.constexpr):
    """x . weight in fp32, x rounded to the weight's dtype."""
    sums = tl.zeros((INPUTS,), tl.float32)
    for first in tl.static_range(0, D, INPUTS):
        c = first + tl.arange(0, INPUTS)
        own = tl.load(x + c, mask=c < D, other=0.0).to(weight.dtype.element_ty).to(tl.float32)
        sums += own * tl.load(weight + c, mask=c < D, other=0.0).to(tl.float32)
    return tl.sum(sums, 0)


@triton.jit
def _step(
    q, k, v, x, weight, A_log, dt_bias, skips, state, positions, read, trace, o, after,
    row_q, row_k, row_v, row_x, row_weight, most, scale,
    H: tl.constexpr, K: tl.constexpr, V: tl.constexpr,
    Q_SHARED: tl.constexpr, K_SHARED: tl.constexpr, V_SHARED: tl.constexpr,
    PADDED_K: tl.constexpr, VALUES: tl.constexpr, D: tl.constexpr, INPUTS: tl.constexpr, DELTA: tl.constexpr, SKIP: tl.constexpr, NORMALISE: tl.constexpr,
    CHOSEN: tl.constexpr, TRACED: tl.constexpr,
):  # fmt: skip
    """Some value channels of one head: decay, write, read."""
    row = tl.program_id(0).to(tl.int64)
    b, h = row // H, row % H
    c, d = tl.arange(0, PADDED_K), tl.program_id(1) * VALUES + tl.arange(0, VALUES)
    inside = (c[:, None] < K) & (d[None, :] < V)
    key = tl.load(k + b * row_k + (h // K_SHARED) * K + c, mask=c < K, other=0.0).to(tl.float32)
    value = tl.load(v + b * row_v + (h // V_SHARED) * V + d, mask=d < V, other=0.0).to(tl.float32)
    if NORMALISE:
        key = key * tl.rsqrt(tl.sum(key * key, 0) + 1e-6)
    own = weight + h * row_weight
    number = _product(x + b * row_x, own, D, INPUTS)
    step = _softplus(number + tl.load(dt_bias + h).to(tl.float32))
    if TRACED:
        traced = tl.load(trace + b) != 0
        step = tl.where(traced, step, 0.0)
    decay = tl.exp(-tl.exp(tl.load(A_log + h).to(tl.float32)) * step)
    place = row * K * V + c[:, None] * V + d[None, :]
    old = tl.load(state + place, mask=inside, other=0.0)
    old = tl.where(tl.load(positions + b) == 0, 0.0, old) * decay
    if DELTA:
        strength = tl.sigmoid(_product(x + b * row_x, own + H * row_weight, D, INPUTS)) * most
        if TRACED:
            strength = tl.where(traced, strength, 0.0)
        written = (value - tl.sum(key[:, None] * old, 0)) * strength
    else:
        written = value * step
    new = old + key[:, None] * written[None, :]
    tl.store(after + place, new, mask=inside)
    reads = True
    if CHOSEN:
        reads = tl.load(read + b) != 0
    found = tl.zeros((VALUES,), tl.float32)
    if reads:
        query = tl.load(q + b * row_q + (h // Q_SHARED) * K + c, mask=c < K, other=0.0).to(tl.float32)
        if NORMALISE:
            query = query * tl.rsqrt(tl.sum(query * query, 0) + 1e-6)
        found = tl.sum((query * scale)[:, None] * new, 0)
        if SKIP:
            found += value * tl.load(skips + h).to(tl.float32)
    tl.store(o + row * V + d, found.to(o.dtype.element_ty), mask=d < V)


@triton.jit
def _conv(
    x, weight, bias, tail, positions, y, after, row_x, C,
    W: tl.constexpr, CHANNELS: tl.constexpr, BIAS: tl.constexpr, SILU: tl.constexpr,
):  # fmt: skip
    b = tl.program_id(0).to(tl.int64)
    c = tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS)
    inside = c < C
    first = tl.load(positions + b) == 0
    new = tl.load(x + b * row_x + c, mask=inside, other=0.0)
    total = new.to(tl.float32) * tl.load(weight + c * W + W - 1, mask=inside, other=0.0).to(tl.float32)
    if BIAS:
        total += tl.load(bias + c, mask=inside, other=0.0).to(tl.float32)
    for w in tl.static_range(W - 1):
        old = tl.load(tail + (b * (W - 1) + w) * C + c, mask=inside, other=0.0)
        old = tl.where(first, 0.0, old.to(tl.float32))
        total += old * tl.load(weight + c * W + w, mask=inside, other=0.0).to(tl.float32)
        if w > 0:
            tl.store(after + (b * (W - 1) + w - 1) * C + c, old.to(after.dtype.element_ty), mask=inside)
    if W > 1:
        tl.store(after + (b * (W - 1) + W - 2) * C + c, new.to(after.dtype.element_ty), mask=inside)
    if SILU:
        total = total.to(y.dtype.element_ty).to(tl.float32)
        total = total * tl.sigmoid(total)
    tl.store(y + b * C + c, total.to(y.dtype.element_ty), mask=inside)
