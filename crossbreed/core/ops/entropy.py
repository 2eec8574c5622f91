"""What a model's output head says, without its logits ever being held whole: any measure of it, and its entropy.

The entropy is a kernel's work on a CUDA device, one pass over logits that are never stored; elsewhere logits are made in pieces.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from crossbreed.core.errors import ConfigError
from crossbreed.core.ops import casts, kernels
from crossbreed.core.ops.chunks import compute_dtype, product_dtype

PIECE_ELEMENTS = 1 << 22
"""Logits held at a time when no piece is given: 16 MiB in fp32."""


def measured_output(
    h_BTD: Tensor, weight_VD: Tensor, measure: Callable[[Tensor], Tensor], *, piece: int | None = None
) -> Tensor:
    """One number a token, made of the logits h weight^T by `measure`, without ever holding B x T x V of them.

    Args:
        h_BTD: hidden states as the output head reads them.
        weight_VD: the output head.
        measure: logits `(n, V)`, in fp32 (float64 for float64 inputs), to n numbers; a token's number from its row alone.
        piece: tokens whose logits are held at a time; chosen to hold 4 million logits when None.

    Returns:
        `(B, T)` numbers, without gradient.

    Raises:
        ConfigError: a piece below 1.
    """
    piece = rows_a_piece(piece, weight_VD.shape[0])
    with torch.no_grad():
        found = [
            measure(F.linear(h_nD, weight_VD).to(compute_dtype(h_BTD)))
            for h_nD in h_BTD.flatten(0, 1).split(piece)
        ]
        return torch.cat(found).view(h_BTD.shape[:2])


def normalised_entropy(h_BTD: Tensor, weight_VD: Tensor, *, piece: int | None = None) -> Tensor:
    """Entropy of softmax(h weight^T) over its greatest value: -sum p ln(p + 1e-10) / ln V (AMOR, arXiv 2602.13215).

    The kernel leaves the 1e-10 out, which changes the sum by V x 1e-10 at most.

    Args:
        h_BTD: hidden states as the output head reads them.
        weight_VD: the output head.
        piece: tokens whose logits are held at a time where they are held at all; chosen to hold 4 million logits when None.

    Returns:
        `entropy_BT` in 0..1, fp32 (float64 for float64 inputs), without gradient.

    Raises:
        ConfigError: a vocabulary of one, whose entropy has no scale, or a piece below 1.
    """
    vocab = weight_VD.shape[0]
    if vocab < 2:
        raise ConfigError(
            f"the output head has {vocab} rows; normalised entropy needs a vocabulary of at least 2."
        )
    piece = rows_a_piece(piece, vocab)
    if kernels.usable(h_BTD):
        narrow = product_dtype(h_BTD)
        with torch.no_grad():
            head_VD = casts.cast(weight_VD, narrow)
            entropy_N: Tensor = head_entropy(h_BTD.flatten(0, 1).to(narrow), head_VD)
            return entropy_N.view(h_BTD.shape[:2])

    def entropy(logits_nV: Tensor) -> Tensor:
        p_nV = logits_nV.softmax(-1)
        return -(p_nV * (p_nV + 1e-10).log_()).sum(-1)

    return measured_output(h_BTD, weight_VD, entropy, piece=piece).div_(math.log(vocab)).clamp_(0.0, 1.0)


@torch.library.custom_op("crossbreed::head_entropy", mutates_args=())
def head_entropy(h_ND: Tensor, weight_VD: Tensor) -> Tensor:
    """`entropy_N` by the kernel, as an operation that whoever watches PyTorch's operations can see. Both inputs in one dtype.

    Raises ConfigError for hidden states and a head of different widths.
    """
    from crossbreed.core.ops.kernels.head_entropy import head_entropy

    if h_ND.shape[1] != weight_VD.shape[1]:
        raise ConfigError(
            f"the output head reads {weight_VD.shape[1]} channels; hidden states have {h_ND.shape[1]}."
        )
    return head_entropy(h_ND, weight_VD)


def rows_a_piece(piece: int | None, vocab: int) -> int:
    """Rows whose logits are held at a time: those asked for, or as many as make 4 million logits. Raises ConfigError below 1."""
    if piece is None:
        return max(1, PIECE_ELEMENTS // vocab)
    if piece < 1:
        raise ConfigError(f"piece is {piece}; it must be at least 1.")
    return piece
