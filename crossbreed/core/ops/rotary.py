"""Rotary position embedding (Su et al., RoFormer, 2021, eq. 34), in the half-rotation layout of Llama."""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from crossbreed.core.errors import ConfigError
from crossbreed.core.ops import kernels
from crossbreed.core.ops.chunks import compute_dtype


def rotary(x_BTHK: Tensor, positions_BT: Tensor, theta: float = 10000.0, fraction: float = 1.0) -> Tensor:
    """Rotate channel i against channel i + R/2 by `position * theta^(-2i/R)`, R = fraction * K channels in all.

    Args:
        x_BTHK: queries or keys.
        positions_BT: any integers; there is no table, so no longest position.
        theta: base of the wavelengths.
        fraction: share of the channels that rotates; the rest passes through.

    Returns:
        A tensor like `x_BTHK`. Angles are fp32, float64 for float64 inputs.

    Raises:
        ConfigError: a fraction outside 0..1, or one that rotates an odd number of channels.
    """
    K = x_BTHK.shape[-1]
    if not 0.0 <= fraction <= 1.0:
        raise ConfigError(f"fraction is {fraction}; it must lie in 0..1.")
    rotated = int(K * fraction)
    if rotated % 2:
        raise ConfigError(
            f"fraction {fraction} of a head of {K} rotates {rotated} channels; they must be even."
        )
    if kernels.usable(x_BTHK):
        turned_BTHK: Tensor = _ByKernel.apply(x_BTHK, positions_BT, theta, rotated)
        return turned_BTHK
    dtype = compute_dtype(x_BTHK)
    exponent = torch.arange(0, rotated, 2, device=x_BTHK.device, dtype=dtype) / max(rotated, 1)
    angle_BT1R = (positions_BT.to(dtype).unsqueeze(-1) * theta**-exponent).unsqueeze(2)
    cos, sin = angle_BT1R.cos(), angle_BT1R.sin()
    first, second = x_BTHK[..., :rotated].to(dtype).chunk(2, -1)
    turned = torch.cat((first * cos - second * sin, second * cos + first * sin), -1).to(x_BTHK.dtype)
    return turned if rotated == K else torch.cat((turned, x_BTHK[..., rotated:]), -1)


class _ByKernel(torch.autograd.Function):
    """Turns back what comes back: nothing is kept but the positions."""

    @staticmethod
    def forward(ctx: Any, x_BTHK: Tensor, positions_BT: Tensor, theta: float, rotated: int) -> Tensor:
        position_N = positions_BT.expand(x_BTHK.shape[:2]).flatten()
        ctx.save_for_backward(position_N)
        ctx.theta, ctx.rotated = theta, rotated
        return _turned(x_BTHK, position_N, theta, rotated, 1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_BTHK: Tensor) -> tuple[Tensor, None, None, None]:
        return _turned(grad_BTHK, ctx.saved_tensors[0], ctx.theta, ctx.rotated, -1), None, None, None


def _turned(x_BTHK: Tensor, position_N: Tensor, theta: float, rotated: int, sign: int) -> Tensor:
    from crossbreed.core.ops.kernels.rotary import rotate

    return rotate(x_BTHK.flatten(0, 1).contiguous(), position_N, theta, rotated, sign).view(x_BTHK.shape)


DepthEncoding = Literal["rose", "index", "none"]


def depth_rotary(
    x_BTHK: Tensor, depth: int, depths: int, encoding: DepthEncoding = "rose", theta: float = 100.0
) -> Tensor:
    """Rotate by depth instead of by token (RoSE; Dreamer, arXiv 2601.21582).

    Between two vectors that are both rotated only the difference of their depths counts; against an unrotated one, such
    as a router's key, `rose` tells both the depth and how many depths are left.

    Args:
        x_BTHK: queries or keys at one depth.
        depth, depths: index from 0, and how many depths there are.
        encoding: `rose` turns the first half of the channels by `depth` and the second by `depths - depth`; `index` turns
            all of them by `depth`; `none` leaves them.
        theta: base of the wavelengths; depths are few, so it is small.

    Returns:
        A tensor like `x_BTHK`.

    Raises:
        ConfigError: K that does not split into rotated pairs (a multiple of 4 for `rose`, of 2 for `index`).
    """
    if encoding == "none":
        return x_BTHK
    at_11 = torch.full((1, 1), depth, device=x_BTHK.device)
    if encoding == "index":
        return rotary(x_BTHK, at_11, theta)
    if x_BTHK.shape[-1] % 4:
        raise ConfigError(
            f"rose turns two halves in pairs, so the size must be a multiple of 4, got {x_BTHK.shape[-1]}."
        )
    past_BTHK, left_BTHK = x_BTHK.chunk(2, -1)
    return torch.cat((rotary(past_BTHK, at_11, theta), rotary(left_BTHK, depths - at_11, theta)), -1)
