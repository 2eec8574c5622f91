"""A gate's decision about one token of every row: the parts of its score in one kernel, the choice in another.

Legend: B rows, D channels, M inner channels, P parts of a score.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from crossbreed.core.ops.one_token import Normed

INNER = 4
"""Inner channels of a program."""
CHANNELS = 1024
"""Input channels of a tile, unless a norm covers more."""


def network_parts(
    z_B1D: Tensor | Normed,
    inner_MD: Tensor,
    bias_M: Tensor,
    outer_1M: Tensor,
    bias_1: Tensor,
    skip_1D: Tensor,
) -> Tensor:
    """parts_B1P in fp32 of ``core.ops.thresholds.skip_network``; weights lie row after row. A norm is kept."""
    norm = z_B1D if isinstance(z_B1D, Normed) else None
    rows_B1D = (z_B1D.h if isinstance(z_B1D, Normed) else z_B1D).contiguous()
    (B, _, D), M = rows_B1D.shape, len(inner_MD)
    kept = rows_B1D
    if norm is not None:
        kept = norm.made = torch.empty_like(rows_B1D)
    parts = triton.cdiv(M, INNER)
    parts_B1P = torch.empty(B, 1, parts, dtype=torch.float32, device=rows_B1D.device)
    share, whole = triton.cdiv(D, parts), triton.next_power_of_2(D)
    channels = min(CHANNELS, whole) if norm is None else whole
    _network[(parts, B)](
        rows_B1D,
        inner_MD,
        bias_M,
        outer_1M,
        bias_1,
        skip_1D,
        rows_B1D if norm is None else norm.weight,
        kept,
        parts_B1P,
        M,
        parts,
        share,
        0.0 if norm is None else norm.eps,
        D=D,
        INNER=INNER,
        CHANNELS=channels,
        SKIPPED=triton.next_power_of_2(share),
        NORM=norm is not None,
        num_warps=4 * max(1, channels // CHANNELS),
    )
    return parts_B1P


def decide(parts_B1P: Tensor, tau: Tensor, forced_B1: Tensor | None) -> tuple[Tensor, Tensor]:
    """(choice_B1, taken_B1); the arguments are those of ``core.ops.thresholds.decide``."""
    B, P = len(parts_B1P), parts_B1P.shape[-1]
    choice_B1 = torch.empty(B, 1, dtype=torch.int64, device=parts_B1P.device)
    taken_B1 = torch.empty(B, 1, dtype=torch.bool, device=parts_B1P.device)
    forced = choice_B1 if forced_B1 is None else forced_B1
    _decide[(B,)](
        parts_B1P,
        tau,
        forced,
        choice_B1,
        taken_B1,
        P,
        parts_B1P.stride(0),
        parts_B1P.stride(-1),
        forced.stride(0),
        FORCED=forced_B1 is not None,
        PARTS=triton.next_power_of_2(P),
        num_warps=1,
    )
    return choice_B1, taken_B1


@triton.jit
def _network(
    z, inner, bias, outer, last_bias, skip, gains, kept, parts, M, P, share, eps,
    D: tl.constexpr, INNER: tl.constexpr, CHANNELS: tl.constexpr, SKIPPED: tl.constexpr, NORM: tl.constexpr,
):  # fmt: skip
    """What some inner channels give, and some channels of the way past them."""
    part, b = tl.program_id(0), tl.program_id(1).to(tl.int64)
    m = part * INNER + tl.arange(0, INNER)
    i = tl.arange(0, SKIPPED)
    c = part * share + i
    inside = (i < share) & (c < D)
    passed = tl.load(z + b * D + c, mask=inside, other=0.0).to(tl.float32)
    passed = passed * tl.load(skip + c, mask=inside, other=0.0).to(tl.float32)
    if NORM:
        passed = passed * tl.load(gains + c, mask=inside, other=0.0).to(tl.float32)
    total = tl.sum(passed, 0)
    sums = tl.zeros((INNER, CHANNELS), tl.float32)
    for first in tl.static_range(0, D, CHANNELS):
        c = first + tl.arange(0, CHANNELS)
        own = tl.load(z + b * D + c, mask=c < D, other=0.0).to(tl.float32)
        w = tl.load(
            inner + m.to(tl.int64)[:, None] * D + c[None, :],
            mask=(m[:, None] < M) & (c[None, :] < D),
            other=0.0,
        )
        if NORM:
            # One tile is the whole row.
            gain = tl.load(gains + c, mask=c < D, other=0.0).to(tl.float32)
            scale = tl.rsqrt(tl.sum(own * own, 0) / D + eps)
            total = total * scale
            own = own * scale * gain
            tl.store(kept + b * D + c, own.to(kept.dtype.element_ty), mask=(c < D) & (part == 0))
        sums += w.to(tl.float32) * own[None, :]
    hidden = tl.sum(sums, 1) + tl.load(bias + m, mask=m < M, other=0.0).to(tl.float32)
    hidden = hidden * tl.sigmoid(hidden)
    total += tl.sum(hidden * tl.load(outer + m, mask=m < M, other=0.0).to(tl.float32), 0)
    if part == 0:
        total += tl.load(last_bias).to(tl.float32)
    tl.store(parts + b * P + part, total)


@triton.jit
def _decide(
    parts, tau, forced, choice, taken, P, row_parts, part, row_forced,
    FORCED: tl.constexpr, PARTS: tl.constexpr,
):  # fmt: skip
    """The choice of one row."""
    b = tl.program_id(0).to(tl.int64)
    p = tl.arange(0, PARTS)
    own = tl.load(parts + b * row_parts + p * part, mask=p < P, other=0.0).to(tl.float32)
    chosen = (tl.sum(own, 0) > tl.load(tau).to(tl.float32)).to(tl.int64)
    if FORCED:
        given = tl.load(forced + b * row_forced)
        chosen = tl.where(given < 0, chosen, given)
    tl.store(choice + b, chosen)
    tl.store(taken + b, chosen == 1)
