"""Attention of one query a row over a key/value cache, split over the slots, with everything that varies read on the device.

How far a row's slots are used follows from its position, and a row that is not read ends its programs before they touch a key:
nothing of either is known to the host, so that one recorded sequence of kernels serves every token.

Legend: as in ``core.ops``; P parts that the slots of a row are split into, R query heads of a group.
"""

from __future__ import annotations

from functools import cache

import torch
import triton
import triton.language as tl
from torch import Tensor

SLOTS = 64
"""Slots of a tile."""
WAVES = 8
"""Programs for each multiprocessor: small ones, so that many loads of keys are under way."""
MOST_PARTS = 128


def decode_attention(
    q_BHK: Tensor,
    k_BSGK: Tensor,
    v_BSGV: Tensor,
    position_BS: Tensor,
    document_BS: Tensor,
    position_B: Tensor,
    document_B: Tensor,
    read_B: Tensor | None,
    window: int | None,
    scale: float,
) -> Tensor:
    """o_BHV; the arguments are those of ``core.ops.one_token.attention``. Slots lie one after another in memory."""
    B, H, K = q_BHK.shape
    S, G, V = k_BSGK.shape[1], k_BSGK.shape[2], v_BSGV.shape[-1]
    R = H // G
    parts = max(1, min(MOST_PARTS, WAVES * _multiprocessors(q_BHK.device) // (B * G), triton.cdiv(S, SLOTS)))
    o_BHV = torch.empty(B, H, V, dtype=q_BHK.dtype, device=q_BHK.device)
    part_BHPV = torch.empty(B, H, parts, V, dtype=torch.float32, device=q_BHK.device)
    weight_2BHP = torch.empty(2, B, H, parts, dtype=torch.float32, device=q_BHK.device)
    gated, read = read_B is not None, document_B if read_B is None else read_B
    padded_V = triton.next_power_of_2(V)
    _parts[(B, G, parts)](
        q_BHK.contiguous(),
        k_BSGK,
        v_BSGV,
        position_BS,
        document_BS,
        position_B,
        document_B,
        read,
        part_BHPV,
        weight_2BHP,
        scale * 1.4426950408889634,
        S,
        parts,
        0 if window is None else window,
        B * H * parts,
        H=H,
        G=G,
        K=K,
        V=V,
        # One query a group is a product of vectors; several fill a tile of the tensor cores, which has 16 rows at least.
        R=1 if R == 1 else max(16, triton.next_power_of_2(R)),
        PADDED_K=max(16, triton.next_power_of_2(K)),
        PADDED_V=max(16, padded_V),
        SLOTS=SLOTS,
        WINDOW=window is not None,
        GATED=gated,
        num_warps=2 if R == 1 else 4,
        # Wide numbers fill the shared memory by themselves.
        num_stages=3 if k_BSGK.element_size() == 2 else 1,
    )
    _together[(B, H)](
        part_BHPV,
        weight_2BHP,
        read,
        o_BHV,
        parts,
        B * H * parts,
        H=H,
        V=V,
        PADDED_V=padded_V,
        PARTS=triton.next_power_of_2(parts),
        GATED=gated,
        num_warps=4,
    )
    return o_BHV


def write_slots(
    caches: tuple[Tensor, Tensor, Tensor, Tensor],
    k_BGK: Tensor,
    v_BGV: Tensor,
    position_B: Tensor,
    trace_B: Tensor | None,
    ring: int,
    never: int,
) -> Tensor:
    """document_B; the arguments are those of ``core.ops.one_token.write_slots``."""
    k, v, document_BS, position_BS = caches
    B, S = document_BS.shape
    document_B = torch.empty(B, dtype=torch.int32, device=k.device)
    wide_k, wide_v = k[0, 0].numel(), v[0, 0].numel()
    _write[(B,)](
        k,
        v,
        document_BS,
        position_BS,
        k_BGK,
        v_BGV,
        document_B,
        position_B,
        position_B if trace_B is None else trace_B,
        k_BGK.stride(0),
        v_BGV.stride(0),
        S,
        ring,
        never,
        KEYS=wide_k,
        VALUES=wide_v,
        PADDED_KEYS=triton.next_power_of_2(wide_k),
        PADDED_VALUES=triton.next_power_of_2(wide_v),
        TRACED=trace_B is not None,
        SLOTS=SLOTS * 16,
        num_warps=4,
    )
    return document_B


@cache
def _multiprocessors(device: torch.device) -> int:
    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 4


@triton.jit
def _parts(
    q, k, v, positions, documents, at, own, read, part, weight, scale, S, P, window, LARGE,
    H: tl.constexpr, G: tl.constexpr, K: tl.constexpr, V: tl.constexpr, R: tl.constexpr,
    PADDED_K: tl.constexpr, PADDED_V: tl.constexpr, SLOTS: tl.constexpr, WINDOW: tl.constexpr, GATED: tl.constexpr,
):  # fmt: skip
    """One part of the slots for the queries of one group: their greatest score, summed weights, weighted values."""
    b, g, p = tl.program_id(0).to(tl.int64), tl.program_id(1), tl.program_id(2)
    here, mine = tl.load(at + b), tl.load(own + b)
    used = tl.minimum(here + 1, S).to(tl.int32)
    if GATED:
        used = tl.where(tl.load(read + b) != 0, used, 0)
    share = tl.cdiv(tl.cdiv(used, P), SLOTS) * SLOTS
    first = p * share
    last = tl.minimum(first + share, used)
    r, c, d = tl.arange(0, R), tl.arange(0, PADDED_K), tl.arange(0, PADDED_V)
    each: tl.constexpr = H // G
    head = g * each + r
    queries = tl.load(
        q + (b * H + head[:, None]) * K + c[None, :], mask=(r[:, None] < each) & (c[None, :] < K), other=0.0
    )
    query = tl.sum(queries.to(tl.float32), 0)
    greatest = tl.full((R,), float("-inf"), tl.float32)
    total = tl.zeros((R,), tl.float32)
    sums = tl.zeros((R, PADDED_V), tl.float32)
    for start in range(first, last, SLOTS):
        s = start + tl.arange(0, SLOTS)
        inside = s < last
        position = tl.load(positions + b * S + s, mask=inside, other=0)
        seen = inside & (position <= here) & (tl.load(documents + b * S + s, mask=inside, other=-1) == mine)
        if WINDOW:
            seen = seen & (position > here - window)
        row = (b * S + s) * G + g
        keys = tl.load(k + row[:, None] * K + c[None, :], mask=inside[:, None] & (c[None, :] < K), other=0.0)
        values = tl.load(
            v + row[:, None] * V + d[None, :], mask=inside[:, None] & (d[None, :] < V), other=0.0
        )
        if R == 1:
            score = tl.sum(keys.to(tl.float32) * query[None, :], 1)[None, :]
        else:
            score = tl.dot(queries.to(keys.dtype), tl.trans(keys), input_precision="ieee")
        score = tl.where(seen[None, :], score * scale, float("-inf"))
        higher = tl.maximum(greatest, tl.max(score, 1))
        # Where nothing was seen yet there is nothing to subtract.
        base = tl.where(higher == float("-inf"), 0.0, higher)
        w = tl.exp2(score - base[:, None])
        old = tl.exp2(greatest - base)
        total = total * old + tl.sum(w, 1)
        if R == 1:
            added = tl.sum(values.to(tl.float32) * tl.sum(w, 0)[:, None], 0)[None, :]
        else:
            added = tl.dot(w.to(values.dtype), values, input_precision="ieee")
        sums = sums * old[:, None] + added
        greatest = higher
    place = (b * H + head) * P + p
    tl.store(part + place[:, None] * V + d[None, :], sums, mask=(r[:, None] < each) & (d[None, :] < V))
    tl.store(weight + place, greatest, mask=r < each)
    tl.store(weight + LARGE + place, total, mask=r < each)


@triton.jit
def _together(
    part, weight, read, o, P, LARGE,
    H: tl.constexpr, V: tl.constexpr, PADDED_V: tl.constexpr, PARTS: tl.constexpr, GATED: tl.constexpr,
):  # fmt: skip
    """The output of one head: its parts on one scale; zero where it is not read or saw nothing."""
    b, h = tl.program_id(0).to(tl.int64), tl.program_id(1)
    d = tl.arange(0, PADDED_V)
    found = tl.zeros((PADDED_V,), tl.float32)
    reads = True
    if GATED:
        reads = tl.load(read + b) != 0
    if reads:
        p = tl.arange(0, PARTS)
        place = (b * H + h) * P + p
        greatest = tl.load(weight + place, mask=p < P, other=float("-inf"))
        total = tl.load(weight + LARGE + place, mask=p < P, other=0.0)
        most = tl.max(greatest, 0)
        scale = tl.exp2(greatest - tl.where(most == float("-inf"), 0.0, most))
        sums = tl.load(
            part + place[:, None] * V + d[None, :], mask=(p[:, None] < P) & (d[None, :] < V), other=0.0
        )
        whole = tl.sum(total * scale, 0)
        found = tl.sum(sums * scale[:, None], 0) / tl.where(whole == 0.0, 1.0, whole)
    tl.store(o + (b * H + h) * V + d, found.to(o.dtype.element_ty), mask=d < V)


@triton.jit
def _write(
    k, v, documents, positions, new_k, new_v, own, at, trace, row_k, row_v, S, ring, never,
    KEYS: tl.constexpr, VALUES: tl.constexpr, PADDED_KEYS: tl.constexpr, PADDED_VALUES: tl.constexpr,
    TRACED: tl.constexpr, SLOTS: tl.constexpr,
):  # fmt: skip
    """One row's token. Its document is that of the token before it; a first token's is new, and looks for the last one."""
    b = tl.program_id(0).to(tl.int64)
    here = tl.load(at + b)
    place = b * S + here % ring
    mine = tl.maximum(tl.load(documents + b * S + (here + ring - 1) % ring % S), 0)
    if here == 0:
        for start in range(0, S, SLOTS):
            s = start + tl.arange(0, SLOTS)
            mine = tl.maximum(mine, tl.max(tl.load(documents + b * S + s, mask=s < S, other=0), 0))
        mine += 1
    i, j = tl.arange(0, PADDED_KEYS), tl.arange(0, PADDED_VALUES)
    key = tl.load(new_k + b * row_k + i, mask=i < KEYS)
    value = tl.load(new_v + b * row_v + j, mask=j < VALUES)
    tl.store(k + place * KEYS + i, key.to(k.dtype.element_ty), mask=i < KEYS)
    tl.store(v + place * VALUES + j, value.to(v.dtype.element_ty), mask=j < VALUES)
    shown = here
    if TRACED:
        shown = tl.where(tl.load(trace + b) != 0, here, never)
    tl.store(documents + place, mine)
    tl.store(own + b, mine)
    tl.store(positions + place, shown.to(tl.int32))
