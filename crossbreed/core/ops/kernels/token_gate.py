"""A gate's decision about one token of every row: the parts of its score in one kernel, the choice in another.

Legend: B rows, D channels, M inner channels, P parts of a score.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

INNER = 4
"""Inner channels of a program."""
CHANNELS = 1024
"""Input channels of a tile."""


def network_parts(
    z_BD: Tensor, inner_MD: Tensor, bias_M: Tensor, outer_1M: Tensor, bias_1: Tensor, skip_1D: Tensor
) -> Tensor:
    """parts_BP in fp32 of ``core.ops.thresholds.skip_network``; inputs and weights lie row after row."""
    (B, D), M = z_BD.shape, len(inner_MD)
    parts = triton.cdiv(M, INNER)
    parts_BP = torch.empty(B, parts, dtype=torch.float32, device=z_BD.device)
    share = triton.cdiv(D, parts)
    _network[(parts, B)](
        z_BD,
        inner_MD,
        bias_M,
        outer_1M,
        bias_1,
        skip_1D,
        parts_BP,
        M,
        parts,
        share,
        D=D,
        INNER=INNER,
        CHANNELS=min(CHANNELS, triton.next_power_of_2(D)),
        SKIPPED=triton.next_power_of_2(share),
        num_warps=4,
    )
    return parts_BP


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
    z, inner, bias, outer, last_bias, skip, parts, M, P, share,
    D: tl.constexpr, INNER: tl.constexpr, CHANNELS: tl.constexpr, SKIPPED: tl.constexpr,
):  # fmt: skip
    """What some inner channels give, and some channels of the way past them."""
    part, b = tl.program_id(0), tl.program_id(1).to(tl.int64)
    m = part * INNER + tl.arange(0, INNER)
    sums = tl.zeros((INNER, CHANNELS), tl.float32)
    for first in tl.static_range(0, D, CHANNELS):
        c = first + tl.arange(0, CHANNELS)
        own = tl.load(z + b * D + c, mask=c < D, other=0.0).to(tl.float32)
        w = tl.load(
            inner + m.to(tl.int64)[:, None] * D + c[None, :],
            mask=(m[:, None] < M) & (c[None, :] < D),
            other=0.0,
        )
        sums += w.to(tl.float32) * own[None, :]
    hidden = tl.sum(sums, 1) + tl.load(bias + m, mask=m < M, other=0.0).to(tl.float32)
    hidden = hidden * tl.sigmoid(hidden)
    total = tl.sum(hidden * tl.load(outer + m, mask=m < M, other=0.0).to(tl.float32), 0)
    i = tl.arange(0, SKIPPED)
    c = part * share + i
    inside = (i < share) & (c < D)
    own = tl.load(z + b * D + c, mask=inside, other=0.0).to(tl.float32)
    total += tl.sum(own * tl.load(skip + c, mask=inside, other=0.0).to(tl.float32), 0)
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
