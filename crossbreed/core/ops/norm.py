"""Norms: RMS, RMS after a gate, Euclidean. On a CUDA device each is one kernel forward and one backward."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from crossbreed.core.errors import ConfigError
from crossbreed.core.ops import kernels
from crossbreed.core.ops.chunks import compute_dtype
from crossbreed.core.ops.gated import silu_times


def rms_norm(x: Tensor, weight: Tensor | None = None, eps: float = 1e-6) -> Tensor:
    """`weight * x / rms(x)` over the last dimension (Zhang and Sennrich, 2019), computed in fp32 at least.

    Args:
        x: a tensor of any shape.
        weight: one entry a channel of the last dimension; ones when None.
        eps: added to the mean square.

    Returns:
        A tensor like `x`.
    """
    if kernels.usable(x):
        y: Tensor = _ByKernel.apply(x, None, weight, 1 / x.shape[-1], eps, True)
        return y
    return F.rms_norm(x, x.shape[-1:], weight, eps)


def l2_norm(x: Tensor, eps: float = 1e-6) -> Tensor:
    """`x` over its Euclidean norm along the last dimension, computed in fp32 at least; zero stays zero."""
    if kernels.usable(x):
        y: Tensor = _ByKernel.apply(x, None, None, 1.0, eps, True)
        return y
    wide = x.to(compute_dtype(x))
    return (wide * torch.rsqrt(wide.square().sum(-1, keepdim=True) + eps)).to(x.dtype)


def gated_rms_norm(
    x: Tensor, gate: Tensor, weight: Tensor, eps: float = 1e-5, *, gate_first: bool = True
) -> Tensor:
    """`weight * y / rms(y)` of y = x silu(gate), over the last dimension (Mamba-2's norm after the gate).

    Equal to `F.rms_norm(x * F.silu(gate), ...)`, about a quarter faster with its gradient on a CPU and without
    the intermediate tensors. Computed in fp32 at least. Without ``gate_first`` it is `weight * x / rms(x) * silu(gate)`.

    Args:
        x, gate: tensors of one shape.
        weight: one entry a channel of the last dimension.
        eps: added to the mean square.

    Returns:
        A tensor like `x`.

    Raises:
        ConfigError: shapes that do not fit.
    """
    if gate.shape != x.shape or weight.shape != x.shape[-1:]:
        raise ConfigError(
            f"x {tuple(x.shape)}, gate {tuple(gate.shape)} and weight {tuple(weight.shape)} do not fit; gate must be "
            "shaped like x and weight like its last dimension."
        )
    y: Tensor
    if kernels.usable(x):
        y = _ByKernel.apply(x, gate, weight, 1 / x.shape[-1], eps, gate_first)
    elif not gate_first:
        y = silu_times(gate, F.rms_norm(x, x.shape[-1:], weight.to(x.dtype), eps))
    else:
        y = _GatedRMSNorm.apply(x, gate, weight, eps)
    return y


class _ByKernel(torch.autograd.Function):
    """Inputs are kept alone; what was made of them is made again in the backward pass."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        gate: Tensor | None,
        weight: Tensor | None,
        share: float,
        eps: float,
        gate_first: bool,
    ) -> Tensor:
        from crossbreed.core.ops.kernels import norm

        M = _together(x if gate is None else gate)
        x_NMD, gate_NMD = _groups(x, M), None if gate is None else _groups(gate, M)
        ctx.save_for_backward(x_NMD, gate_NMD, weight)
        ctx.settings = share, eps, gate_first
        return norm.forward(x_NMD, gate_NMD, weight, *ctx.settings).view(x.shape)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        from crossbreed.core.ops.kernels import norm

        grad_RD = grad.reshape(-1, grad.shape[-1]).contiguous()
        of_x, of_gate, of_weight = norm.backward(grad_RD, *ctx.saved_tensors, *ctx.settings)
        return (
            of_x.view(grad.shape),
            None if of_gate is None else of_gate.view(grad.shape),
            None if of_weight is None else of_weight.to(ctx.saved_tensors[2].dtype),
            None,
            None,
            None,
        )


def _together(x: Tensor) -> int:
    """How many rows of ``x`` lie one after another: a token's heads, in a slice of a projection, or one."""
    return x.shape[-2] if x.dim() > 2 and x.numel() and x.stride(-2) == x.shape[-1] else 1


def _groups(x: Tensor, M: int) -> Tensor:
    """x_NMD: the rows in groups of M that lie one after another; a view wherever they do."""
    x_NMD = x.reshape(-1, M, x.shape[-1])
    apart = x_NMD.stride(2) != 1 or (M > 1 and x_NMD.stride(1) != x.shape[-1])
    return x_NMD.contiguous() if apart else x_NMD


class _GatedRMSNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, gate: Tensor, weight: Tensor, eps: float) -> Tensor:
        dtype = compute_dtype(x)
        y = F.silu(gate.to(dtype)).mul_(x)
        size = torch.linalg.vector_norm(y, dim=-1, keepdim=True)
        scale = size.square_().div_(x.shape[-1]).add_(eps).rsqrt_()
        normed = y.mul_(scale)
        ctx.save_for_backward(x, gate, weight, normed, scale)
        return (normed * weight.to(dtype)).to(x.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_out: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        x, gate, weight, normed, scale = ctx.saved_tensors
        dtype = normed.dtype
        grad_out, wide_gate = grad_out.to(dtype), gate.to(dtype)
        grad_weight = grad_out * normed
        grad_y = grad_out * weight.to(dtype)
        along = (grad_y * normed).mean(-1, keepdim=True)
        grad_y = grad_y.addcmul_(normed, along, value=-1.0).mul_(scale)
        grad_x = F.silu(wide_gate).mul_(grad_y)
        grad_gate = torch.ops.aten.silu_backward(grad_y.mul_(x), wide_gate)
        grad_weight = grad_weight.flatten(0, -2).sum(0)
        return grad_x.to(x.dtype), grad_gate.to(gate.dtype), grad_weight.to(weight.dtype), None
