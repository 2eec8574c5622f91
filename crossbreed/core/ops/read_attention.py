"""Causal attention of the tokens that read, without a look from the host: on a CUDA device unread queries cost no scores."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from crossbreed.core.ops import kernels

LARGEST = 256
"""Numbers of the widest keys and values that the kernels have tiles for."""


def skippable(q_BTHK: Tensor, v_BTGV: Tensor) -> bool:
    """Whether the kernels serve heads like these here."""
    sizes = q_BTHK.shape[-1], v_BTGV.shape[-1]
    return kernels.usable(q_BTHK) and q_BTHK.dtype != torch.float32 and max(sizes) <= LARGEST


def read_attention(
    q_BTHK: Tensor, k_BTGK: Tensor, v_BTGV: Tensor, read_BT: Tensor, scale: float | None = None
) -> Tensor:
    """`o_BTHV`: each token that reads attends to all tokens up to its own; zero for the others.

    Time follows the share that reads, in the backward pass too. Shapes and launches do not depend on it, so that one recorded
    pass serves every choice. Results are deterministic. Wants what `skippable` says; consecutive query heads share a group.
    """
    scale = q_BTHK.shape[-1] ** -0.5 if scale is None else scale
    o_BTHV: Tensor = _ByKernel.apply(q_BTHK, k_BTGK, v_BTGV, *packed(read_BT), scale)
    return o_BTHV


def packed(read_BT: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """int32 (order_BT: the tokens that read in their order, then the others; count_B: how many read; before_BT: how many do so
    before each token).
    """
    through_BT = read_BT.cumsum(1)
    count_B = through_BT[:, -1]
    token_BT = torch.arange(read_BT.shape[1], device=read_BT.device).expand_as(read_BT)
    before_BT = through_BT - read_BT.long()
    place_BT = torch.where(read_BT, before_BT, count_B[:, None] + token_BT - before_BT)
    order_BT = torch.empty(read_BT.shape, dtype=torch.int32, device=read_BT.device)
    order_BT.scatter_(1, place_BT, token_BT.int())
    return order_BT, count_B.int(), before_BT.int()


class _ByKernel(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        q_BTHK: Tensor,
        k_BTGK: Tensor,
        v_BTGV: Tensor,
        order_BT: Tensor,
        count_B: Tensor,
        before_BT: Tensor,
        scale: float,
    ) -> Tensor:
        from crossbreed.core.ops.kernels import read_attention as kernel

        q_BTHK, k_BTGK, v_BTGV = _dense_last(q_BTHK), _dense_last(k_BTGK), _dense_last(v_BTGV)
        o_BTHV, lse_BHT = kernel.forward(q_BTHK, k_BTGK, v_BTGV, order_BT, count_B, scale)
        ctx.save_for_backward(q_BTHK, k_BTGK, v_BTGV, o_BTHV, lse_BHT, order_BT, count_B, before_BT)
        ctx.scale = scale
        return o_BTHV

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_BTHV: Tensor) -> tuple[Tensor | None, ...]:
        from crossbreed.core.ops.kernels import read_attention as kernel

        gradients = kernel.backward(_dense_last(grad_BTHV), *ctx.saved_tensors, scale=ctx.scale)
        return (*gradients, None, None, None, None)


def _dense_last(x: Tensor) -> Tensor:
    return x if x.stride(-1) == 1 else x.contiguous()
