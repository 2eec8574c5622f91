"""What a model's output head says, in pieces over tokens: any measure of it, its entropy, its loss against labels."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from crossbreed.core.errors import ConfigError
from crossbreed.core.ops.chunks import compute_dtype, product_dtype

PIECE_ELEMENTS = 1 << 22
"""Logits held at a time when no piece is given: 16 MiB in fp32."""
PIECE_ROWS = 1024
"""Rows of the loss held at a time at least: every piece adds to the gradient of the whole head, which takes as long as the
products of hundreds of rows."""


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
    piece = _piece(piece, weight_VD.shape[0])
    with torch.no_grad():
        found = [
            measure(F.linear(h_nD, weight_VD).to(compute_dtype(h_BTD)))
            for h_nD in h_BTD.flatten(0, 1).split(piece)
        ]
        return torch.cat(found).view(h_BTD.shape[:2])


def normalised_entropy(h_BTD: Tensor, weight_VD: Tensor, *, piece: int | None = None) -> Tensor:
    """Entropy of softmax(h weight^T) over its greatest value: -sum p ln(p + 1e-10) / ln V (AMOR, arXiv 2602.13215).

    Args:
        h_BTD: hidden states as the output head reads them.
        weight_VD: the output head.
        piece: tokens whose logits are held at a time; chosen to hold 4 million logits when None.

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

    def entropy(logits_nV: Tensor) -> Tensor:
        p_nV = logits_nV.softmax(-1)
        return -(p_nV * (p_nV + 1e-10).log_()).sum(-1)

    return measured_output(h_BTD, weight_VD, entropy, piece=piece).div_(math.log(vocab)).clamp_(0.0, 1.0)


def linear_cross_entropy(
    h_ND: Tensor, weight_VD: Tensor, labels_N: Tensor, *, ignore_index: int = -100, piece: int | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """Cross-entropy of `softmax(h weight^T)`, summed over scored rows, without ever holding N x V logits.

    The forward pass computes the gradients of each piece while its logits are there; the backward pass scales them.

    Args:
        h_ND: hidden states, one row a token.
        weight_VD: the output head.
        labels_N: a class a row; rows labelled `ignore_index` count for nothing.
        piece: rows whose logits are held at a time; chosen to hold 4 million logits, but 1024 rows at least, when None.

    Returns:
        The summed loss (nats; fp32, float64 for float64 inputs), the number of scored rows and the number of them
        whose greatest logit is the label. No scored rows give 0, 0, 0.

    Raises:
        ConfigError: numbers of rows and labels that differ, or a piece below 1.
    """
    if labels_N.shape != h_ND.shape[:1]:
        raise ConfigError(f"labels have shape {tuple(labels_N.shape)}; {h_ND.shape[0]} rows need one each.")
    piece = max(PIECE_ROWS, _piece(None, weight_VD.shape[0])) if piece is None else _piece(piece, 1)
    loss, count, correct = _LinearCrossEntropy.apply(h_ND, weight_VD, labels_N, ignore_index, piece)
    return loss, count, correct


def token_cross_entropy(
    h_ND: Tensor, weight_VD: Tensor, labels_N: Tensor, *, ignore_index: int = -100, piece: int | None = None
) -> tuple[Tensor, Tensor]:
    """Cross-entropy of `softmax(h weight^T)` row by row, without ever holding N x V logits.

    Args:
        h_ND: hidden states, one row a token.
        weight_VD: the output head.
        labels_N: a class a row; rows labelled `ignore_index` cost nothing and are not right.
        piece: rows whose logits are held at a time; chosen to hold 4 million logits when None.

    Returns:
        Each row's loss (nats; fp32, float64 for float64 inputs), and whether its greatest logit is the label. Without gradient.

    Raises:
        ConfigError: numbers of rows and labels that differ, or a piece below 1.
    """
    if labels_N.shape != h_ND.shape[:1]:
        raise ConfigError(f"labels have shape {tuple(labels_N.shape)}; {h_ND.shape[0]} rows need one each.")
    piece, dtype = _piece(piece, weight_VD.shape[0]), compute_dtype(h_ND)
    nats_N = torch.zeros(len(labels_N), dtype=dtype, device=h_ND.device)
    right_N = torch.zeros(len(labels_N), dtype=torch.bool, device=h_ND.device)
    with torch.no_grad():
        for start in range(0, len(labels_N), piece):
            rows = slice(start, start + piece)
            labels_n = labels_N[rows]
            logits_nV = F.linear(h_ND[rows], weight_VD)
            nats_N[rows] = F.cross_entropy(
                logits_nV.to(dtype), labels_n, reduction="none", ignore_index=ignore_index
            )
            right_N[rows] = (logits_nV.argmax(-1) == labels_n) & (labels_n != ignore_index)
    return nats_N, right_N


class _LinearCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, h_ND: Tensor, weight_VD: Tensor, labels_N: Tensor, ignore_index: int, piece: int
    ) -> tuple[Tensor, Tensor, Tensor]:
        dtype = compute_dtype(h_ND)
        wants_h, wants_weight = ctx.needs_input_grad[:2]
        narrow = product_dtype(h_ND)
        head_VD = weight_VD.to(narrow)
        loss = torch.zeros((), dtype=dtype, device=h_ND.device)
        count, correct = torch.zeros_like(labels_N[:1].sum()), torch.zeros_like(labels_N[:1].sum())
        grad_h = torch.empty_like(h_ND) if wants_h else None
        grad_weight = torch.zeros_like(weight_VD, dtype=dtype) if wants_weight else None
        for start in range(0, h_ND.shape[0], piece):
            rows = slice(start, start + piece)
            h_nD, labels_n = h_ND[rows].to(narrow), labels_N[rows]
            scored_n = labels_n != ignore_index
            target_n1 = labels_n.masked_fill(~scored_n, 0).unsqueeze(1)
            unscored_n1 = ~scored_n.unsqueeze(1)
            logits_nV = F.linear(h_nD, head_VD)
            # One pass over the logits each: their normalisation, the best of them, and the gradient in their place.
            log_p_nV = F.log_softmax(logits_nV, -1, dtype=dtype)
            log_target_n1 = log_p_nV.gather(1, target_n1)
            loss -= log_target_n1.masked_fill(unscored_n1, 0.0).sum()
            count += scored_n.sum()
            correct += ((logits_nV.argmax(-1) == labels_n) & scored_n).sum()
            if wants_h or wants_weight:
                grad_nV = torch.exp(log_p_nV, out=logits_nV)
                grad_nV.scatter_(1, target_n1, (log_target_n1.exp() - 1).to(grad_nV.dtype))
            if grad_h is not None:
                grad_h[rows] = (grad_nV @ head_VD).masked_fill_(unscored_n1, 0.0)
            if grad_weight is not None:
                _add_product(grad_weight, grad_nV.mT, h_nD.masked_fill(unscored_n1, 0.0))
        ctx.mark_non_differentiable(count, correct)
        ctx.save_for_backward(grad_h, None if grad_weight is None else grad_weight.to(weight_VD.dtype))
        return loss, count, correct

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_loss: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        scaled = (None if grad is None else grad * grad_loss.to(grad.dtype) for grad in ctx.saved_tensors)
        return *scaled, None, None, None


def _add_product(sum_VD: Tensor, a_Vn: Tensor, b_nD: Tensor) -> None:
    """sum += a b, in the sum's precision where the device can."""
    if a_Vn.dtype == sum_VD.dtype:
        torch.addmm(sum_VD, a_Vn, b_nD, out=sum_VD)
    elif sum_VD.is_cuda:
        torch.addmm(sum_VD, a_Vn, b_nD, out_dtype=sum_VD.dtype, out=sum_VD)
    else:
        sum_VD += a_Vn @ b_nD


def _piece(piece: int | None, vocab: int) -> int:
    if piece is None:
        return max(1, PIECE_ELEMENTS // vocab)
    if piece < 1:
        raise ConfigError(f"piece is {piece}; it must be at least 1.")
    return piece
