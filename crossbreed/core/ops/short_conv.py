"""The short causal depthwise convolution in front of recurrences, carried across pieces by its last inputs."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from crossbreed.core.errors import ConfigError
from crossbreed.core.ops.chunks import silence
from crossbreed.core.ops.depthwise import depthwise_conv


def short_conv(
    x_BTC: Tensor,
    weight_CW: Tensor,
    bias_C: Tensor | None = None,
    *,
    tail_BWC: Tensor | None = None,
    valid_BT: Tensor | None = None,
    reset_BT: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """y_t = bias + sum_w weight[:, w] x_{t-(W-1)+w}: the last tap is the token itself. No activation.

    Args:
        x_BTC: inputs.
        weight_CW: taps, oldest first.
        bias_C: added to every valid output.
        tail_BWC: the W-1 inputs before the first token, oldest first; zeros when None.
        valid_BT: which tokens count: a prefix of each row. Outputs elsewhere are zero.
        reset_BT: True where a document starts; taps before it read zero.

    Returns:
        `y_BTC`, and the tail for the next piece: each row's own last W-1 valid inputs, before the convolution,
        with zeros in place of inputs of an earlier document.

    Raises:
        ConfigError: shapes that do not fit.
    """
    B, _, C = x_BTC.shape
    W = weight_CW.shape[1]
    if weight_CW.shape[0] != C:
        raise ConfigError(f"weight has {weight_CW.shape[0]} channels; the inputs have {C}.")
    if tail_BWC is None:
        tail_BWC = x_BTC.new_zeros(B, W - 1, C)
    elif tail_BWC.shape != (B, W - 1, C):
        raise ConfigError(f"tail has shape {tuple(tail_BWC.shape)}; the rule is {(B, W - 1, C)}.")
    padded = torch.cat((tail_BWC.to(x_BTC.dtype), x_BTC), 1)
    reset_BT = silence(valid_BT, reset_BT)
    if reset_BT is None:
        y_BTC = depthwise_conv(padded, weight_CW, bias_C)
        document = None
    else:
        document = F.pad(reset_BT.cumsum(1), (W - 1, 0))
        y_BTC = _taps_of_one_document(padded, weight_CW, bias_C, document)
    if valid_BT is not None:
        y_BTC = y_BTC.masked_fill(~valid_BT.unsqueeze(-1), 0.0)
    return y_BTC, _tail(padded, W - 1, valid_BT, document)


def _taps_of_one_document(
    padded: Tensor, weight_CW: Tensor, bias_C: Tensor | None, document: Tensor
) -> Tensor:
    W = weight_CW.shape[1]
    T = padded.shape[1] - W + 1
    taps = []
    for w in range(W):
        same_BT1 = (document[:, w : w + T] == document[:, W - 1 :]).unsqueeze(-1)
        taps.append(padded[:, w : w + T] * weight_CW[:, w] * same_BT1)
    y_BTC = torch.stack(taps).sum(0)
    return y_BTC if bias_C is None else y_BTC + bias_C


def _tail(padded: Tensor, size: int, valid_BT: Tensor | None, document: Tensor | None) -> Tensor:
    """The `size` rows of `(B, size + T, C)` that end at each row's last valid token, of its document only."""
    B, length, C = padded.shape
    if valid_BT is None:
        # A copy: a view would keep the whole piece alive for as long as the state lives.
        tail_BWC = padded[:, length - size :].clone()
        if document is None:
            return tail_BWC
        return tail_BWC * (document[:, length - size :] == document[:, -1:]).unsqueeze(-1)
    end_B1 = valid_BT.sum(1, keepdim=True)
    index_BW = end_B1 + torch.arange(size, device=padded.device)
    tail_BWC = padded.gather(1, index_BW.unsqueeze(-1).expand(B, size, C))
    if document is None:
        return tail_BWC
    last_B1 = document.gather(1, end_B1 + size - 1) if size else document[:, -1:]
    return tail_BWC * (document.gather(1, index_BW) == last_B1).unsqueeze(-1)
