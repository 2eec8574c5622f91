"""A depthwise convolution along time whose backward pass is as quick as its forward one on a CPU.

PyTorch's own backward of a depthwise convolution takes some thirty times as long there as its forward pass.
"""

from __future__ import annotations

from math import prod
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.utils.flop_counter import register_flop_formula


def depthwise_conv(
    x_BSC: Tensor, weight_CW: Tensor, bias_C: Tensor | None = None, *, kernel: str = "reference"
) -> Tensor:
    """y_BTC with y[t] = bias + sum_w weight[:, w] x[t + w], for the T = S - W + 1 places where all taps meet an input.

    kernel: ``fla`` is flash-linear-attention's, for 16 bits on a CUDA device, where PyTorch's backward is slow too.
    """
    if kernel == "fla":
        from fla.modules.causal_conv1d import causal_conv1d

        y_BSC: Tensor = causal_conv1d(x_BSC, weight_CW, bias_C)[0]
        return y_BSC[:, weight_CW.shape[1] - 1 :]
    if x_BSC.device.type == "cpu" and torch.is_grad_enabled():
        convolved: Tensor = _Depthwise.apply(x_BSC, weight_CW, bias_C)
        return convolved
    return _convolved(x_BSC, weight_CW, bias_C)


def _convolved(x_BSC: Tensor, weight_CW: Tensor, bias_C: Tensor | None) -> Tensor:
    # A one-row image in channels-last order is the (B, S, C) tensor as it lies: no transposition.
    image = x_BSC.transpose(1, 2).unsqueeze(2)
    y = F.conv2d(image, weight_CW[:, None, None], bias_C, groups=len(weight_CW))
    return y.squeeze(2).transpose(1, 2)


class _Depthwise(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x_BSC: Tensor, weight_CW: Tensor, bias_C: Tensor | None) -> Tensor:
        ctx.save_for_backward(x_BSC, weight_CW)
        return _convolved(x_BSC, weight_CW, bias_C)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_BTC: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        x_BSC, weight_CW = ctx.saved_tensors
        W = weight_CW.shape[1]
        of_x, of_weight, of_bias = ctx.needs_input_grad
        x = weight = bias = None
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
