"""A depthwise convolution along time whose backward pass is as quick as its forward one.

PyTorch's own backward of a depthwise convolution takes some thirty times as long as its forward pass on a CPU, and on a CUDA
device it computes channel by channel, between changes of layout.
"""

from __future__ import annotations

from math import prod
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.utils.flop_counter import register_flop_formula

from crossbreed.core.ops import kernels
from crossbreed.core.ops.chunks import product_dtype


def depthwise_conv(x_BSC: Tensor, weight_CW: Tensor, bias_C: Tensor | None = None) -> Tensor:
    """y_BTC with y[t] = bias + sum_w weight[:, w] x[t + w], for the T = S - W + 1 places where all taps meet an input."""
    convolved: Tensor
    if kernels.usable(x_BSC):
        convolved = _ByKernel.apply(x_BSC, weight_CW, bias_C)
    elif x_BSC.device.type == "cpu" and torch.is_grad_enabled():
        convolved = _ByTorch.apply(x_BSC, weight_CW, bias_C)
    else:
        convolved = _convolved(x_BSC, weight_CW, bias_C)
    return convolved


class _ByKernel(torch.autograd.Function):
    """On a CUDA device; sums are fp32, and what comes out is as narrow as a product would be."""

    @staticmethod
    def forward(ctx: Any, x_BSC: Tensor, weight_CW: Tensor, bias_C: Tensor | None) -> Tensor:
        from crossbreed.core.ops.kernels import taps

        ctx.save_for_backward(x_BSC, weight_CW)
        return taps.convolve(x_BSC, weight_CW, bias_C, product_dtype(x_BSC))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_BTC: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        from crossbreed.core.ops.kernels import taps

        x_BSC, weight_CW = ctx.saved_tensors
        of_x, of_weight, of_bias = ctx.needs_input_grad
        x = taps.input_gradient(grad_BTC, weight_CW, x_BSC.dtype) if of_x else None
        if not of_weight and not of_bias:
            return x, None, None
        weight, bias = taps.tap_gradients(x_BSC, grad_BTC)
        return (
            x,
            weight.to(weight_CW.dtype) if of_weight else None,
            bias.to(weight_CW.dtype) if of_bias else None,
        )


def _convolved(x_BSC: Tensor, weight_CW: Tensor, bias_C: Tensor | None) -> Tensor:
    # A one-row image in channels-last order is the (B, S, C) tensor as it lies: no transposition.
    image = x_BSC.transpose(1, 2).unsqueeze(2)
    y = F.conv2d(image, weight_CW[:, None, None], bias_C, groups=len(weight_CW))
    return y.squeeze(2).transpose(1, 2)


class _ByTorch(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x_BSC: Tensor, weight_CW: Tensor, bias_C: Tensor | None) -> Tensor:
        ctx.save_for_backward(x_BSC, weight_CW)
        return _convolved(x_BSC, weight_CW, bias_C)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_BTC: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        x_BSC, weight_CW = ctx.saved_tensors
        of_x, of_weight, of_bias = ctx.needs_input_grad
        x = weight = bias = None
        W = weight_CW.shape[1]
        if of_x:
            # The same convolution with its taps reversed, over gradients padded on both sides.
            x = _convolved(F.pad(grad_BTC, (0, 0, W - 1, W - 1)), weight_CW.flip(1), None)
        if of_weight:
            weight = torch.ops.crossbreed.tap_gradients(x_BSC, grad_BTC)
        if of_bias:
            bias = grad_BTC.sum((0, 1))
        return x, weight, bias


@torch.library.custom_op("crossbreed::tap_gradients", mutates_args=())
def tap_gradients(x_BSC: Tensor, grad_BTC: Tensor) -> Tensor:
    """gradient_CW of the taps: the inputs that each tap met, times the gradients of what came out.

    An operation of its own, because counters of FLOPs see no work in element-wise products.
    """
    T = grad_BTC.shape[1]
    taps = range(x_BSC.shape[1] - T + 1)
    return torch.stack([(x_BSC[:, w : w + T] * grad_BTC).sum((0, 1)) for w in taps], 1)


@tap_gradients.register_fake
def _(x_BSC: Tensor, grad_BTC: Tensor) -> Tensor:
    return grad_BTC.new_empty(grad_BTC.shape[2], x_BSC.shape[1] - grad_BTC.shape[1] + 1)


@register_flop_formula(torch.ops.crossbreed.tap_gradients)
def tap_gradients_flops(x: Any, grad: Any, *_: Any, **__: Any) -> int:
    """A multiply-add for every gradient and tap."""
    return int(2 * prod(grad) * (x[1] - grad[1] + 1))
