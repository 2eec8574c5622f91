"""A score a token by a small network, and the choice of two that a threshold on it makes.

For one recorded token of each row both are a kernel on a CUDA device: a score is handed on in parts that nobody added up yet.

Legend: M inner channels, P parts of a score.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from crossbreed.core.ops import kernels
from crossbreed.core.ops.chunks import compute_dtype
from crossbreed.core.ops.one_token import LARGEST_FOLDED, Normed


def skip_network(
    z: Tensor, inner_MD: Tensor, bias_M: Tensor, outer_1M: Tensor, bias_1: Tensor, skip_1D: Tensor
) -> Tensor:
    """r = outer . SiLU(inner z + bias_M) + bias_1 + skip . z for every z in the last dimension, in fp32 at least."""
    with torch.autocast(z.device.type, enabled=False):
        z = z.to(compute_dtype(z))
        inner = F.silu(F.linear(z, inner_MD.to(z.dtype), bias_M.to(z.dtype)))
        r = F.linear(inner, outer_1M.to(z.dtype), bias_1.to(z.dtype))
        return (r + F.linear(z, skip_1D.to(z.dtype))).squeeze(-1)


def skip_network_parts(
    z_B1D: Tensor | Normed,
    inner_MD: Tensor,
    bias_M: Tensor,
    outer_1M: Tensor,
    bias_1: Tensor,
    skip_1D: Tensor,
) -> Tensor:
    """r_B1P, the parts of ``skip_network``'s r of one token a row, or of the norm of its stream; without gradient."""
    weights = inner_MD, bias_M, outer_1M, bias_1, skip_1D
    if isinstance(z_B1D, Normed) and (z_B1D.made is not None or z_B1D.h.shape[-1] > LARGEST_FOLDED):
        z_B1D = z_B1D.x
    if kernels.usable(z_B1D.h if isinstance(z_B1D, Normed) else z_B1D):
        from crossbreed.core.ops.kernels.token_gate import network_parts

        return network_parts(z_B1D, *weights)
    z_B1D = z_B1D.x if isinstance(z_B1D, Normed) else z_B1D
    return skip_network(z_B1D, *weights).detach().unsqueeze(-1)


def decide(parts_B1P: Tensor, tau: Tensor, forced_B1: Tensor | None) -> tuple[Tensor, Tensor]:
    """(choice_B1 int64, whether it is 1) of one token a row: 1 where the parts add up to more than tau, or what is forced.

    A forced choice of -1 is none.
    """
    if kernels.usable(parts_B1P):
        from crossbreed.core.ops.kernels.token_gate import decide as fused

        return fused(parts_B1P, tau, forced_B1)
    above_B1 = parts_B1P.sum(-1) > tau
    if forced_B1 is None:
        return above_B1.to(torch.int64), above_B1
    choice_B1 = torch.where(forced_B1 < 0, above_B1, forced_B1)
    return choice_B1, choice_B1 == 1
