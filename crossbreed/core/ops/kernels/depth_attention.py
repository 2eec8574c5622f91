"""Softmax attention of each token over slots of its own, which stay where they are, and its gradients.

A kernel is made for a number of slots rounded up, and told how many there are: depths do not each have their own.

Legend: N tokens, H query heads, G key and value heads, K key size, V value size, S slots.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

TOKENS, FEWEST = 32, 8
"""Tokens of one program; slots that the smallest kernel takes."""


def forward(
    q_NHK: Tensor, k_NGK: Sequence[Tensor], v_NGV: Sequence[Tensor], scale: float
) -> tuple[Tensor, Tensor]:
    """(o_NHV, weight_NHS in fp32)."""
    N, H, K = q_NHK.shape
    G, V = v_NGV[0].shape[1:]
    S = len(k_NGK)
    o_NHV = torch.empty(N, H, V, dtype=v_NGV[0].dtype, device=q_NHK.device)
    weight_NHS = torch.empty(N, H, S, dtype=torch.float32, device=q_NHK.device)
    _depth_attention[(triton.cdiv(N, TOKENS), H)](
        q_NHK,
        _filled(k_NGK),
        _filled(v_NGV),
        o_NHV,
        weight_NHS,
        *q_NHK.stride()[:2],
        *k_NGK[0].stride()[:2],
        *v_NGV[0].stride()[:2],
        N,
        H,
        K,
        V,
        S,
        scale,
        **_sizes(H // G, K, V, S),
    )
    return o_NHV, weight_NHS


def backward(
    grad_NHV: Tensor,
    q_NHK: Tensor,
    k_NGK: Sequence[Tensor],
    v_NGV: Sequence[Tensor],
    weight_NHS: Tensor,
    scale: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """(gradient_NHK of the queries, gradient_SNHK and gradient_SNHV of every slot for each query head)."""
    N, H, K = q_NHK.shape
    G, V = v_NGV[0].shape[1:]
    S, device = len(k_NGK), q_NHK.device
    dq_NHK = torch.empty(N, H, K, dtype=q_NHK.dtype, device=device)
    dk_SNHK = torch.empty(S, N, H, K, dtype=k_NGK[0].dtype, device=device)
    dv_SNHV = torch.empty(S, N, H, V, dtype=v_NGV[0].dtype, device=device)
    _depth_attention_gradients[(triton.cdiv(N, TOKENS), H)](
        grad_NHV,
        q_NHK,
        _filled(k_NGK),
        _filled(v_NGV),
        weight_NHS,
        dq_NHK,
        dk_SNHK,
        dv_SNHV,
        *grad_NHV.stride()[:2],
        *q_NHK.stride()[:2],
        *k_NGK[0].stride()[:2],
        *v_NGV[0].stride()[:2],
        N,
        H,
        K,
        V,
        S,
        scale,
        **_sizes(H // G, K, V, S),
    )
    return dq_NHK, dk_SNHK, dv_SNHV


def _room(slots: int) -> int:
    return max(FEWEST, int(triton.next_power_of_2(slots)))


def _filled(slots: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """As many as the kernel takes; those past the end are never read."""
    return (*slots, *(slots[0],) * (_room(len(slots)) - len(slots)))


def _sizes(shared: int, K: int, V: int, slots: int) -> dict[str, int]:
    return {
        "SHARED": shared,
        "TOKENS": TOKENS,
        "ROOM": _room(slots),
        "WIDTH_K": int(triton.next_power_of_2(K)),
        "WIDTH_V": int(triton.next_power_of_2(V)),
    }


@triton.jit
def _rows(base, n, stride, size, N, WIDTH: tl.constexpr):
    """(TOKENS, WIDTH) in fp32, zero outside."""
    c = tl.arange(0, WIDTH)
    there = (n < N)[:, None] & (c < size)[None, :]
    return tl.load(base + n[:, None] * stride + c[None, :], mask=there, other=0.0).to(tl.float32)


@triton.jit
def _put(base, n, stride, size, N, x, WIDTH: tl.constexpr):
    c = tl.arange(0, WIDTH)
    there = (n < N)[:, None] & (c < size)[None, :]
    tl.store(base + n[:, None] * stride + c[None, :], x.to(base.dtype.element_ty), mask=there)


@triton.jit
def _depth_attention(
    q, k, v, o, weight,
    q_n, q_h, k_n, k_h, v_n, v_h,
    N, H, K, V, S, scale,
    SHARED: tl.constexpr, TOKENS: tl.constexpr, ROOM: tl.constexpr, WIDTH_K: tl.constexpr, WIDTH_V: tl.constexpr,
):  # fmt: skip
    n = tl.program_id(0).to(tl.int64) * TOKENS + tl.arange(0, TOKENS)
    head = tl.program_id(1)
    group = head // SHARED
    slot = tl.arange(0, ROOM)
    q_nk = _rows(q + head * q_h, n, q_n, K, N, WIDTH_K) * scale
    score_ns = tl.full((TOKENS, ROOM), float("-inf"), tl.float32)
    for j in tl.static_range(ROOM):
        if j < S:
            score_n = tl.sum(q_nk * _rows(k[j] + group * k_h, n, k_n, K, N, WIDTH_K), 1)
            score_ns = tl.where(slot[None, :] == j, score_n[:, None], score_ns)
    e_ns = tl.exp(score_ns - tl.max(score_ns, 1)[:, None])
    weight_ns = e_ns / tl.sum(e_ns, 1)[:, None]
    at = (n[:, None] * H + head) * S + slot[None, :]
    tl.store(weight + at, weight_ns, mask=(n < N)[:, None] & (slot < S)[None, :])
    sum_nv = tl.zeros((TOKENS, WIDTH_V), tl.float32)
    for j in tl.static_range(ROOM):
        if j < S:
            w_n = tl.sum(tl.where(slot[None, :] == j, weight_ns, 0.0), 1)
            sum_nv += w_n[:, None] * _rows(v[j] + group * v_h, n, v_n, V, N, WIDTH_V)
    _put(o + head * V, n, H * V, V, N, sum_nv, WIDTH_V)


@triton.jit
def _depth_attention_gradients(
    grad, q, k, v, weight, dq, dk, dv,
    grad_n, grad_h, q_n, q_h, k_n, k_h, v_n, v_h,
    N, H, K, V, S, scale,
    SHARED: tl.constexpr, TOKENS: tl.constexpr, ROOM: tl.constexpr, WIDTH_K: tl.constexpr, WIDTH_V: tl.constexpr,
):  # fmt: skip
    n = tl.program_id(0).to(tl.int64) * TOKENS + tl.arange(0, TOKENS)
    head = tl.program_id(1)
    group = head // SHARED
    slot = tl.arange(0, ROOM)
    grad_nv = _rows(grad + head * grad_h, n, grad_n, V, N, WIDTH_V)
    at = (n[:, None] * H + head) * S + slot[None, :]
    weight_ns = tl.load(weight + at, mask=(n < N)[:, None] & (slot < S)[None, :], other=0.0)
    of_weight_ns = tl.zeros((TOKENS, ROOM), tl.float32)
    for j in tl.static_range(ROOM):
        if j < S:
            found_n = tl.sum(grad_nv * _rows(v[j] + group * v_h, n, v_n, V, N, WIDTH_V), 1)
            of_weight_ns = tl.where(slot[None, :] == j, found_n[:, None], of_weight_ns)
    inner_n = tl.sum(of_weight_ns * weight_ns, 1)
    of_score_ns = weight_ns * (of_weight_ns - inner_n[:, None]) * scale
    q_nk = _rows(q + head * q_h, n, q_n, K, N, WIDTH_K)
    sum_nk = tl.zeros((TOKENS, WIDTH_K), tl.float32)
    one = N.to(tl.int64) * H
    for j in tl.static_range(ROOM):
        if j < S:
            here = slot[None, :] == j
            s_n = tl.sum(tl.where(here, of_score_ns, 0.0), 1)
            w_n = tl.sum(tl.where(here, weight_ns, 0.0), 1)
            sum_nk += s_n[:, None] * _rows(k[j] + group * k_h, n, k_n, K, N, WIDTH_K)
            _put(dk + (j * one + head) * K, n, H * K, K, N, s_n[:, None] * q_nk, WIDTH_K)
            _put(dv + (j * one + head) * V, n, H * V, V, N, w_n[:, None] * grad_nv, WIDTH_V)
    _put(dq + head * K, n, H * K, K, N, sum_nk, WIDTH_K)
