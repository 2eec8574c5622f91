"""Causal attention of some queries of a piece, forward and backward: the others cost a store of zeros.

The queries that are read are packed by an index: a tile holds the next so many of a row, wherever they stand. Grids are those
of whole pieces; a program looks on the device whether its tile has anything to do, so one recorded launch serves every choice.
Nothing is added up by atomics: results are the same every time.

Legend: B rows, T tokens, H query heads, G key and value heads, K key size, V value size, M queries and N keys of a tile.
Offsets into tensors are 64 bits wide; q, k, v and their likes are (B, T, heads, size) with adjacent last numbers.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

LOG2_E = tl.constexpr(1.4426950408889634)
"""Of exponentials to base 2, which the device has."""
SMALLEST = 16
"""Numbers of the shortest side of a product on tensor cores."""
WARPS = 8


def forward(
    q_BTHK: Tensor, k_BTGK: Tensor, v_BTGV: Tensor, order_BT: Tensor, count_B: Tensor, scale: float
) -> tuple[Tensor, Tensor]:
    """(o_BTHV, zero where not read; lse_BHT, log2 of the sums of exponentials, of read queries alone).

    ``order_BT``: int32, the tokens that are read in their order, then the others; ``count_B``: int32, how many read.
    """
    B, T, H, K = q_BTHK.shape
    G, V = v_BTGV.shape[2:]
    o_BTHV = torch.empty(B, T, H, V, dtype=q_BTHK.dtype, device=q_BTHK.device)
    lse_BHT = torch.empty(B, H, T, dtype=torch.float32, device=q_BTHK.device)
    wide = _wide(K, V)
    M, N = (128, 64) if wide <= 128 else (64, 32)
    _read_attention[(triton.cdiv(T, M), H, B)](
        q_BTHK,
        k_BTGK,
        v_BTGV,
        o_BTHV,
        lse_BHT,
        order_BT,
        count_B,
        *q_BTHK.stride()[:3],
        *k_BTGK.stride()[:3],
        *v_BTGV.stride()[:3],
        T,
        H,
        K,
        V,
        scale * LOG2_E.value,
        SHARED=H // G,
        M=M,
        N=N,
        WIDTH_K=_width(K),
        WIDTH_V=_width(V),
        num_warps=WARPS,
        num_stages=3 if wide <= 128 else 2,
    )
    return o_BTHV, lse_BHT


def backward(
    grad_BTHV: Tensor,
    q_BTHK: Tensor,
    k_BTGK: Tensor,
    v_BTGV: Tensor,
    o_BTHV: Tensor,
    lse_BHT: Tensor,
    order_BT: Tensor,
    count_B: Tensor,
    before_BT: Tensor,
    *,
    scale: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of queries, keys and values. ``before_BT``: int32, how many tokens before each one read."""
    B, T, H, K = q_BTHK.shape
    G, V = v_BTGV.shape[2:]
    dq_BTHK = torch.empty(B, T, H, K, dtype=q_BTHK.dtype, device=q_BTHK.device)
    dk_BTGK = torch.empty(B, T, G, K, dtype=k_BTGK.dtype, device=q_BTHK.device)
    dv_BTGV = torch.empty(B, T, G, V, dtype=v_BTGV.dtype, device=q_BTHK.device)
    delta_BHT = torch.empty_like(lse_BHT)
    wide = _wide(K, V)
    M, N = (128, 64) if wide <= 128 else (64, 32)
    sizes = {"SHARED": H // G, "WIDTH_K": _width(K), "WIDTH_V": _width(V)}
    how = {"num_warps": WARPS, "num_stages": 2}
    _read_attention_query_gradients[(triton.cdiv(T, M), H, B)](
        q_BTHK,
        k_BTGK,
        v_BTGV,
        o_BTHV,
        grad_BTHV,
        lse_BHT,
        delta_BHT,
        dq_BTHK,
        order_BT,
        count_B,
        *q_BTHK.stride()[:3],
        *k_BTGK.stride()[:3],
        *v_BTGV.stride()[:3],
        *grad_BTHV.stride()[:3],
        T,
        H,
        K,
        V,
        scale,
        M=M,
        N=N,
        **sizes,
        **how,
    )
    M, N = (64, 128) if wide <= 128 else (32, 64)
    _read_attention_key_gradients[(triton.cdiv(T, N), G, B)](
        q_BTHK,
        k_BTGK,
        v_BTGV,
        grad_BTHV,
        lse_BHT,
        delta_BHT,
        dk_BTGK,
        dv_BTGV,
        order_BT,
        count_B,
        before_BT,
        *q_BTHK.stride()[:3],
        *k_BTGK.stride()[:3],
        *v_BTGV.stride()[:3],
        *grad_BTHV.stride()[:3],
        T,
        H,
        K,
        V,
        scale,
        M=M,
        N=N,
        **sizes,
        **how,
    )
    return dq_BTHK, dk_BTGK, dv_BTGV


def _width(size: int) -> int:
    return max(SMALLEST, int(triton.next_power_of_2(size)))


def _wide(key_size: int, value_size: int) -> int:
    return max(_width(key_size), _width(value_size))


@triton.jit
def _rows(base, index, stride, size, inside, WIDTH: tl.constexpr):
    """(rows, WIDTH): the rows of a matrix that ``index`` names, zero outside."""
    c = tl.arange(0, WIDTH)
    at = index.to(tl.int64)[:, None] * stride + c[None, :]
    return tl.load(base + at, mask=inside[:, None] & (c < size)[None, :], other=0.0)


@triton.jit
def _put(base, index, stride, size, inside, x, WIDTH: tl.constexpr):
    """The other way: rows of ``x`` to where ``index`` says."""
    c = tl.arange(0, WIDTH)
    at = index.to(tl.int64)[:, None] * stride + c[None, :]
    tl.store(base + at, x.to(base.dtype.element_ty), mask=inside[:, None] & (c < size)[None, :])


@triton.jit
def _attended(q, k_base, v_base, t, low, high, k_t, v_t, K, V, T, total, greatest, sum_mv, scale, CAUSAL: tl.constexpr, N: tl.constexpr, WIDTH_K: tl.constexpr, WIDTH_V: tl.constexpr):  # fmt: skip
    """The softmax of a tile of queries over keys ``low`` to ``high``, added to what it has."""
    for start in range(low, high, N):
        s = start + tl.arange(0, N)
        k = _rows(k_base, s, k_t, K, s < T, WIDTH_K)
        score = tl.dot(q, tl.trans(k)) * scale
        if CAUSAL:
            score = tl.where(s[None, :] <= t[:, None], score, float("-inf"))
        higher = tl.maximum(greatest, tl.max(score, 1))
        p = tl.exp2(score - higher[:, None])
        shrink = tl.exp2(greatest - higher)
        v = _rows(v_base, s, v_t, V, s < T, WIDTH_V)
        sum_mv = tl.dot(p.to(v.dtype), v, sum_mv * shrink[:, None])
        total = total * shrink + tl.sum(p, 1)
        greatest = higher
    return total, greatest, sum_mv


@triton.jit
def _read_attention(
    q, k, v, o, lse, order, count,
    q_b, q_t, q_h, k_b, k_t, k_h, v_b, v_t, v_h,
    T, H, K, V, scale,
    SHARED: tl.constexpr, M: tl.constexpr, N: tl.constexpr, WIDTH_K: tl.constexpr, WIDTH_V: tl.constexpr,
):  # fmt: skip
    """One tile of packed queries of one head."""
    # Late queries see most and so begin first.
    first = (tl.num_programs(0) - 1 - tl.program_id(0)) * M
    head, row = tl.program_id(1), tl.program_id(2).to(tl.int64)
    place = first + tl.arange(0, M)
    read = tl.load(count + row)
    order += row * T
    t = tl.load(order + place, mask=place < T, other=0)
    reading = place < read
    o += (row * T * H + head) * V
    if first >= read:
        _put(o, t, H * V, V, place < T, tl.zeros((M, WIDTH_V), tl.float32), WIDTH_V)
        return
    q_mk = _rows(q + row * q_b + head * q_h, t, q_t, K, reading, WIDTH_K)
    k += row * k_b + head // SHARED * k_h
    v += row * v_b + head // SHARED * v_h
    # Of places past the last query that reads, whose row is zeros: their first key keeps the softmax finite.
    t_seen = tl.where(reading, t, 0)
    total = tl.zeros((M,), tl.float32)
    greatest = tl.full((M,), float("-inf"), tl.float32)
    sum_mv = tl.zeros((M, WIDTH_V), tl.float32)
    # Up to the tile's first token every query sees every key.
    seen = tl.where(first + M <= read, (tl.load(order + first) + 1) // N * N, 0)
    last = tl.load(order + tl.minimum(first + M, read) - 1)
    total, greatest, sum_mv = _attended(
        q_mk, k, v, t_seen, 0, seen, k_t, v_t, K, V, T, total, greatest, sum_mv, scale, False, N, WIDTH_K, WIDTH_V
    )  # fmt: skip
    total, greatest, sum_mv = _attended(
        q_mk, k, v, t_seen, seen, last + 1, k_t, v_t, K, V, T, total, greatest, sum_mv, scale, True, N, WIDTH_K, WIDTH_V
    )  # fmt: skip
    y = tl.where(reading[:, None], sum_mv / total[:, None], 0.0)
    _put(o, t, H * V, V, place < T, y, WIDTH_V)
    tl.store(lse + (row * H + head) * T + t, greatest + tl.log2(total), mask=reading)


@triton.jit
def _towards_queries(q, grad, lse, delta, k_base, v_base, t, low, high, k_t, v_t, K, V, T, sum_mk, scale, CAUSAL: tl.constexpr, N: tl.constexpr, WIDTH_K: tl.constexpr, WIDTH_V: tl.constexpr):  # fmt: skip
    """The gradient of a tile of queries from keys ``low`` to ``high``, added to what it has, before the scale."""
    for start in range(low, high, N):
        s = start + tl.arange(0, N)
        k = _rows(k_base, s, k_t, K, s < T, WIDTH_K)
        v = _rows(v_base, s, v_t, V, s < T, WIDTH_V)
        p = tl.exp2(tl.dot(q, tl.trans(k)) * (scale * LOG2_E) - lse[:, None])
        if CAUSAL:
            p = tl.where(s[None, :] <= t[:, None], p, 0.0)
        towards = p * (tl.dot(grad, tl.trans(v)) - delta[:, None])
        sum_mk = tl.dot(towards.to(k.dtype), k, sum_mk)
    return sum_mk


@triton.jit
def _read_attention_query_gradients(
    q, k, v, o, grad, lse, delta, dq, order, count,
    q_b, q_t, q_h, k_b, k_t, k_h, v_b, v_t, v_h, grad_b, grad_t, grad_h,
    T, H, K, V, scale,
    SHARED: tl.constexpr, M: tl.constexpr, N: tl.constexpr, WIDTH_K: tl.constexpr, WIDTH_V: tl.constexpr,
):  # fmt: skip
    """One tile of packed queries of one head, and each one's sum of outputs times their gradients for the keys' turn."""
    first = (tl.num_programs(0) - 1 - tl.program_id(0)) * M
    head, row = tl.program_id(1), tl.program_id(2).to(tl.int64)
    place = first + tl.arange(0, M)
    read = tl.load(count + row)
    order += row * T
    t = tl.load(order + place, mask=place < T, other=0)
    reading = place < read
    dq += (row * T * H + head) * K
    if first >= read:
        _put(dq, t, H * K, K, place < T, tl.zeros((M, WIDTH_K), tl.float32), WIDTH_K)
        return
    q_mk = _rows(q + row * q_b + head * q_h, t, q_t, K, reading, WIDTH_K)
    grad_mv = _rows(grad + row * grad_b + head * grad_h, t, grad_t, V, reading, WIDTH_V)
    o_mv = _rows(o + (row * T * H + head) * V, t, H * V, V, reading, WIDTH_V)
    delta_m = tl.sum(grad_mv.to(tl.float32) * o_mv.to(tl.float32), 1)
    at = (row * H + head) * T + t
    tl.store(delta + at, delta_m, mask=reading)
    lse_m = tl.load(lse + at, mask=reading, other=0.0)
    k += row * k_b + head // SHARED * k_h
    v += row * v_b + head // SHARED * v_h
    sum_mk = tl.zeros((M, WIDTH_K), tl.float32)
    seen = tl.where(first + M <= read, (tl.load(order + first) + 1) // N * N, 0)
    last = tl.load(order + tl.minimum(first + M, read) - 1)
    sum_mk = _towards_queries(
        q_mk, grad_mv, lse_m, delta_m, k, v, t, 0, seen, k_t, v_t, K, V, T, sum_mk, scale, False, N, WIDTH_K, WIDTH_V
    )  # fmt: skip
    sum_mk = _towards_queries(
        q_mk, grad_mv, lse_m, delta_m, k, v, t, seen, last + 1, k_t, v_t, K, V, T, sum_mk, scale, True, N, WIDTH_K, WIDTH_V
    )  # fmt: skip
    _put(dq, t, H * K, K, place < T, tl.where(reading[:, None], sum_mk * scale, 0.0), WIDTH_K)


@triton.jit
def _towards_keys(k, v, s, q_base, grad_base, lse, delta, order, low, high, read, q_t, grad_t, K, V, sum_nk, sum_nv, scale, CAUSAL: tl.constexpr, M: tl.constexpr, WIDTH_K: tl.constexpr, WIDTH_V: tl.constexpr):  # fmt: skip
    """The gradients of a tile of keys and values from packed queries ``low`` to ``high``, added to what they have."""
    for start in range(low, high, M):
        place = start + tl.arange(0, M)
        reading = place < read
        t = tl.load(order + place, mask=reading, other=0)
        q = _rows(q_base, t, q_t, K, reading, WIDTH_K)
        grad = _rows(grad_base, t, grad_t, V, reading, WIDTH_V)
        # Places past the last query have neither query nor gradient, and so add nothing.
        lse_m = tl.load(lse + t, mask=reading, other=0.0)
        delta_m = tl.load(delta + t, mask=reading, other=0.0)
        p = tl.exp2(tl.dot(k, tl.trans(q)) * (scale * LOG2_E) - lse_m[None, :])
        if CAUSAL:
            p = tl.where(s[:, None] <= t[None, :], p, 0.0)
        sum_nv = tl.dot(p.to(grad.dtype), grad, sum_nv)
        towards = p * (tl.dot(v, tl.trans(grad)) - delta_m[None, :])
        sum_nk = tl.dot(towards.to(q.dtype), q, sum_nk)
    return sum_nk, sum_nv


@triton.jit
def _read_attention_key_gradients(
    q, k, v, grad, lse, delta, dk, dv, order, count, before,
    q_b, q_t, q_h, k_b, k_t, k_h, v_b, v_t, v_h, grad_b, grad_t, grad_h,
    T, H, K, V, scale,
    SHARED: tl.constexpr, M: tl.constexpr, N: tl.constexpr, WIDTH_K: tl.constexpr, WIDTH_V: tl.constexpr,
):  # fmt: skip
    """One tile of keys and values of one head, from the queries that read behind its first key."""
    # Early keys are seen by most queries; programs start in this order.
    first = tl.program_id(0) * N
    head, row = tl.program_id(1), tl.program_id(2).to(tl.int64)
    heads = tl.num_programs(1)
    s = first + tl.arange(0, N)
    read = tl.load(count + row)
    order += row * T
    k_nk = _rows(k + row * k_b + head * k_h, s, k_t, K, s < T, WIDTH_K)
    v_nv = _rows(v + row * v_b + head * v_h, s, v_t, V, s < T, WIDTH_V)
    sum_nk = tl.zeros((N, WIDTH_K), tl.float32)
    sum_nv = tl.zeros((N, WIDTH_V), tl.float32)
    start = tl.load(before + row * T + first)
    # From here on every query sees the whole tile.
    whole = tl.load(before + row * T + tl.minimum(first + N, T) - 1)
    whole = tl.minimum(start + (whole - start + M - 1) // M * M, read)
    for i in range(SHARED):
        one = head * SHARED + i
        own = (row * H + one) * T
        q_base = q + row * q_b + one * q_h
        grad_base = grad + row * grad_b + one * grad_h
        sum_nk, sum_nv = _towards_keys(
            k_nk, v_nv, s, q_base, grad_base, lse + own, delta + own, order, start, whole, read, q_t, grad_t, K, V,
            sum_nk, sum_nv, scale, True, M, WIDTH_K, WIDTH_V,
        )  # fmt: skip
        sum_nk, sum_nv = _towards_keys(
            k_nk, v_nv, s, q_base, grad_base, lse + own, delta + own, order, whole, read, read, q_t, grad_t, K, V,
            sum_nk, sum_nv, scale, False, M, WIDTH_K, WIDTH_V,
        )  # fmt: skip
    _put(dk + (row * T * heads + head) * K, s, heads * K, K, s < T, sum_nk * scale, WIDTH_K)
    _put(dv + (row * T * heads + head) * V, s, heads * V, V, s < T, sum_nv, WIDTH_V)
