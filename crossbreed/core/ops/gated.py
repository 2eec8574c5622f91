"""The gated hidden layer of SwiGLU (Shazeer, 2020): SiLU(gate) * up, on a CUDA device in one pass that keeps its inputs alone."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from crossbreed.core.ops import kernels


def silu_times(gate: Tensor, up: Tensor | None = None) -> Tensor:
    """SiLU(gate) * up, numbers in the last dimension; without ``up`` the halves of ``gate`` are both."""
    if kernels.usable(gate):
        y: Tensor = _ByKernel.apply(gate, up)
        return y
    gate, up = _halves(gate, up)
    return F.silu(gate) * up


class _ByKernel(torch.autograd.Function):
    """SiLU is computed again in the backward pass. Halves of one tensor have halves of one gradient: nothing is joined."""

    @staticmethod
    def forward(ctx: Any, gate: Tensor, up: Tensor | None) -> Tensor:
        from crossbreed.core.ops.kernels import gated

        ctx.save_for_backward(gate, up)
        first, second = _halves(gate, up)
        return gated.forward(_rows(first), _rows(second)).view(first.shape)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor | None]:
        from crossbreed.core.ops.kernels import gated

        gate, up = ctx.saved_tensors
        of_gate, of_up = _room(gate), None if up is None else _room(up)
        seen, filled = _halves(gate, up), _halves(of_gate, of_up)
        gated.backward_(_rows(grad), *map(_rows, seen), *map(_rows, filled))
        return of_gate, of_up


def _room(like: Tensor) -> Tensor:
    return torch.empty(like.shape, dtype=like.dtype, device=like.device)


def _halves(gate: Tensor, up: Tensor | None) -> tuple[Tensor, Tensor]:
    if up is not None:
        return gate, up
    first, second = gate.chunk(2, -1)
    return first, second


def _rows(x: Tensor) -> Tensor:
    """All rows one after the other, with adjacent numbers; of what lies so, and of halves of it, a view."""
    if x.stride(-1) != 1:
        x = x.contiguous()
    return x.reshape(-1, x.shape[-1])
