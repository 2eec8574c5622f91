"""The gated RMS norm at the end of recurrent mixers, in one autograd function."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from crossbreed.core.errors import ConfigError
from crossbreed.core.ops.chunks import compute_dtype


def gated_rms_norm(x: Tensor, gate: Tensor, weight: Tensor, eps: float = 1e-5) -> Tensor:
    """`weight * y / rms(y)` of y = x silu(gate), over the last dimension (Mamba-2's norm after the gate).

    Equal to `F.rms_norm(x * F.silu(gate), ...)`, about a quarter faster with its gradient on a CPU and without
    the intermediate tensors. Computed in fp32 at least.

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
    y: Tensor = _GatedRMSNorm.apply(x, gate, weight, eps)
    return y


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
