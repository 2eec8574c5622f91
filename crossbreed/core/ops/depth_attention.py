"""Softmax attention of each token over a list of slots of its own, such as its keys and values at earlier depths."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from crossbreed.core.errors import ConfigError
from crossbreed.core.ops import kernels
from crossbreed.core.ops.chunks import compute_dtype


def depth_attention(
    q_NHK: Tensor, k_NGK: Sequence[Tensor], v_NGV: Sequence[Tensor], scale: float | None = None
) -> tuple[Tensor, Tensor]:
    """o_n = sum_j softmax_j(scale q_n . k_nj) v_nj over the slots j; consecutive query heads share a group.

    Slots are a list, so that a pass which adds one slot after another keeps one copy of each: nothing is written in
    place, and what autograd saves grows with the slots, not with their square.

    Args:
        q_NHK: one query a token and head; H is a multiple of the groups G.
        k_NGK, v_NGV: one tensor a slot, keys and values.
        scale: of the scores; 1/sqrt(K) when None.

    Returns:
        `o_NHV`, and the weights `w_NHS` (fp32, float64 for float64 inputs; without gradient).

    Raises:
        ConfigError: no slot, or shapes that do not fit.
    """
    if not k_NGK or len(k_NGK) != len(v_NGV):
        raise ConfigError(
            f"{len(k_NGK)} keys and {len(v_NGV)} values; a token needs as many of both, and at least one."
        )
    N, H, K = q_NHK.shape
    G = k_NGK[0].shape[1]
    if k_NGK[0].shape != (N, G, K) or v_NGV[0].shape[:2] != (N, G) or H % G:
        raise ConfigError(
            f"queries {tuple(q_NHK.shape)}, keys {tuple(k_NGK[0].shape)} and values {tuple(v_NGV[0].shape)} do not fit; "
            "rows and key size must agree and the query heads be a multiple of the key/value heads."
        )
    scale = K**-0.5 if scale is None else scale
    kind = _ByKernel if kernels.usable(q_NHK) else _DepthAttention
    found: tuple[Tensor, Tensor] = kind.apply(q_NHK, scale, len(k_NGK), *k_NGK, *v_NGV)
    return found


class _DepthAttention(torch.autograd.Function):
    """Saves queries, slots (by reference) and weights; stacks the slots again in the backward pass."""

    @staticmethod
    def forward(
        ctx: Any, q_NHK: Tensor, scale: float, count: int, *slots_NGC: Tensor
    ) -> tuple[Tensor, Tensor]:
        k_NGSK, v_NGSV = _stacked(slots_NGC, count, q_NHK.dtype)
        G = k_NGSK.shape[1]
        with torch.autocast(q_NHK.device.type, enabled=False):
            q_NGrK = q_NHK.unflatten(1, (G, -1))
            score_NGrS = torch.matmul(q_NGrK, k_NGSK.mT).to(compute_dtype(q_NHK)) * scale
            weight_NGrS = score_NGrS.softmax(-1)
            o_NGrV = torch.matmul(weight_NGrS.to(v_NGSV.dtype), v_NGSV)
        weight_NHS = weight_NGrS.flatten(1, 2)
        ctx.save_for_backward(q_NHK, weight_NHS, *slots_NGC)
        ctx.scale, ctx.count = scale, count
        ctx.mark_non_differentiable(weight_NHS)
        return o_NGrV.flatten(1, 2), weight_NHS

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_NHV: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        q_NHK, weight_NHS, *slots_NGC = ctx.saved_tensors
        k_NGSK, v_NGSV = _stacked(slots_NGC, ctx.count, q_NHK.dtype)
        G = k_NGSK.shape[1]
        weight_NGrS, grad_NGrV = weight_NHS.unflatten(1, (G, -1)), grad_NHV.unflatten(1, (G, -1))
        grad_v_NGSV = torch.matmul(weight_NGrS.to(grad_NGrV.dtype).mT, grad_NGrV)
        grad_w_NGrS = torch.matmul(grad_NGrV, v_NGSV.mT).to(weight_NGrS.dtype)
        inner_NGr1 = (grad_w_NGrS * weight_NGrS).sum(-1, keepdim=True)
        grad_s_NGrS = (weight_NGrS * (grad_w_NGrS - inner_NGr1) * ctx.scale).to(q_NHK.dtype)
        grad_q_NGrK = torch.matmul(grad_s_NGrS, k_NGSK)
        grad_k_NGSK = torch.matmul(grad_s_NGrS.mT, q_NHK.unflatten(1, (G, -1)))
        slots = (*grad_k_NGSK.unbind(2), *grad_v_NGSV.unbind(2))
        grads = (grad.to(slot.dtype) for grad, slot in zip(slots, slots_NGC, strict=True))
        return grad_q_NGrK.flatten(1, 2), None, None, *grads


class _ByKernel(torch.autograd.Function):
    """The same on a CUDA device: slots are read where they are, never stacked."""

    @staticmethod
    def forward(
        ctx: Any, q_NHK: Tensor, scale: float, count: int, *slots_NGC: Tensor
    ) -> tuple[Tensor, Tensor]:
        from crossbreed.core.ops.kernels import depth_attention as kernel

        q_NHK = _alike((q_NHK,))[0]
        k_NGK, v_NGV = _alike(slots_NGC[:count]), _alike(slots_NGC[count:])
        o_NHV, weight_NHS = kernel.forward(q_NHK, k_NGK, v_NGV, scale)
        ctx.save_for_backward(q_NHK, weight_NHS, *slots_NGC)
        ctx.scale, ctx.count = scale, count
        ctx.mark_non_differentiable(weight_NHS)
        return o_NHV.to(q_NHK.dtype), weight_NHS

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_NHV: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        from crossbreed.core.ops.kernels import depth_attention as kernel

        q_NHK, weight_NHS, *slots_NGC = ctx.saved_tensors
        k_NGK, v_NGV = _alike(slots_NGC[: ctx.count]), _alike(slots_NGC[ctx.count :])
        (grad_NHV,) = _alike((grad_NHV,))
        dq_NHK, dk_SNHK, dv_SNHV = kernel.backward(grad_NHV, q_NHK, k_NGK, v_NGV, weight_NHS, ctx.scale)
        H, G = q_NHK.shape[1], k_NGK[0].shape[1]
        if H != G:
            dk_SNHK, dv_SNHV = (x.unflatten(2, (G, H // G)).sum(3) for x in (dk_SNHK, dv_SNHV))
        return dq_NHK, None, None, *dk_SNHK.unbind(0), *dv_SNHV.unbind(0)


def _alike(slots: Sequence[Tensor]) -> Sequence[Tensor]:
    """Tensors that lie in memory alike, with adjacent last numbers: these, or copies if they do not."""
    strides = {slot.stride() for slot in slots}
    if len(strides) == 1 and slots[0].stride(-1) == 1:
        return slots
    return [slot.contiguous() for slot in slots]


def _stacked(
    slots_NGC: list[Tensor] | tuple[Tensor, ...], count: int, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """Keys and values with a slot axis, in the queries' dtype."""
    k_NGSK, v_NGSV = torch.stack(slots_NGC[:count], 2), torch.stack(slots_NGC[count:], 2)
    return k_NGSK.to(dtype), v_NGSV.to(dtype)
