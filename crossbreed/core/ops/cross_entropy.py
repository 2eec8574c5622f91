"""The loss of an output head against labels, in pieces over tokens.

A piece's logits lie in one buffer, which becomes their gradient: by a kernel of two passes on a CUDA device, by torch elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from crossbreed.core.errors import ConfigError
from crossbreed.core.ops import kernels
from crossbreed.core.ops.chunks import compute_dtype, product_dtype
from crossbreed.core.ops.entropy import rows_a_piece

PIECE_ROWS = 2048
"""Rows of the loss held at a time at least: every piece adds to the gradient of the whole head, which takes as long as the
products of hundreds of rows."""


def linear_cross_entropy(
    h_ND: Tensor, weight_VD: Tensor, labels_N: Tensor, *, ignore_index: int = -100, piece: int | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """Cross-entropy of `softmax(h weight^T)`, summed over scored rows, without ever holding N x V logits.

    The forward pass computes the gradients of each piece while its logits are there; the backward pass scales them.

    Args:
        h_ND: hidden states, one row a token.
        weight_VD: the output head.
        labels_N: a class a row; rows labelled `ignore_index` count for nothing.
        piece: rows whose logits are held at a time; chosen to hold 4 million logits, but 2048 rows at least, when None.

    Returns:
        The summed loss (nats; fp32, float64 for float64 inputs), the number of scored rows and the number of them
        whose greatest logit is the label. No scored rows give 0, 0, 0.

    Raises:
        ConfigError: numbers of rows and labels that differ, or a piece below 1.
    """
    _check(h_ND, labels_N)
    least = rows_a_piece(piece, weight_VD.shape[0])
    rows = least if piece is not None else max(PIECE_ROWS, least)
    loss, count, correct = _LinearCrossEntropy.apply(h_ND, weight_VD, labels_N, ignore_index, rows)
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
    _check(h_ND, labels_N)
    rows = rows_a_piece(piece, weight_VD.shape[0])
    nats_N = torch.zeros(len(labels_N), dtype=compute_dtype(h_ND), device=h_ND.device)
    right_N = torch.zeros(len(labels_N), dtype=torch.bool, device=h_ND.device)
    with torch.no_grad():
        for part, _, labels_n, logits_nV in _Pieces(h_ND, weight_VD, labels_N, rows):
            scored_n = labels_n != ignore_index
            nats_n, right_n = _softmax_loss_(
                logits_nV, labels_n.masked_fill(~scored_n, 0), False, nats_N.dtype
            )
            nats_N[part] = nats_n.masked_fill(~scored_n, 0.0)
            right_N[part] = right_n & scored_n
    return nats_N, right_N


class _Pieces:
    """(rows, their hidden states, labels and logits) by pieces of ``rows``; each piece's logits replace those of the one before."""

    def __init__(self, h_ND: Tensor, weight_VD: Tensor, labels_N: Tensor, rows: int) -> None:
        self.h_ND, self.labels_N, self.rows = h_ND, labels_N, rows
        self.narrow = product_dtype(h_ND)
        self.head_VD = weight_VD.to(self.narrow)
        self.logits_nV = h_ND.new_empty(min(rows, len(h_ND)), len(weight_VD), dtype=self.narrow)

    def __iter__(self) -> Iterator[tuple[slice, Tensor, Tensor, Tensor]]:
        for start in range(0, len(self.h_ND), self.rows):
            part = slice(start, start + self.rows)
            h_nD = self.h_ND[part].to(self.narrow)
            logits_nV = self.logits_nV[: len(h_nD)]
            torch.mm(h_nD, self.head_VD.mT, out=logits_nV)
            yield part, h_nD, self.labels_N[part], logits_nV


class _LinearCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, h_ND: Tensor, weight_VD: Tensor, labels_N: Tensor, ignore_index: int, rows: int
    ) -> tuple[Tensor, Tensor, Tensor]:
        dtype = compute_dtype(h_ND)
        wants_h, wants_weight = ctx.needs_input_grad[:2]
        loss = torch.zeros((), dtype=dtype, device=h_ND.device)
        count, correct = torch.zeros_like(labels_N[:1].sum()), torch.zeros_like(labels_N[:1].sum())
        grad_h = torch.empty_like(h_ND) if wants_h else None
        grad_weight = torch.zeros_like(weight_VD, dtype=dtype) if wants_weight else None
        pieces = _Pieces(h_ND, weight_VD, labels_N, rows)
        for part, h_nD, labels_n, logits_nV in pieces:
            scored_n = labels_n != ignore_index
            unscored_n1 = ~scored_n.unsqueeze(1)
            target_n = labels_n.masked_fill(~scored_n, 0)
            nats_n, right_n = _softmax_loss_(logits_nV, target_n, wants_h or wants_weight, dtype)
            loss += nats_n.masked_fill(~scored_n, 0.0).sum()
            count += scored_n.sum()
            correct += (right_n & scored_n).sum()
            # From here on the logits are their own gradient.
            if grad_h is not None:
                grad_h[part] = (logits_nV @ pieces.head_VD).masked_fill_(unscored_n1, 0.0)
            if grad_weight is not None:
                _add_product(grad_weight, logits_nV.mT, h_nD.masked_fill(unscored_n1, 0.0))
        ctx.mark_non_differentiable(count, correct)
        ctx.save_for_backward(grad_h, None if grad_weight is None else grad_weight.to(weight_VD.dtype))
        return loss, count, correct

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_loss: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        scaled = (None if grad is None else grad * grad_loss.to(grad.dtype) for grad in ctx.saved_tensors)
        return *scaled, None, None, None


def _softmax_loss_(
    logits_nV: Tensor, target_n: Tensor, gradient: bool, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """Each row's loss in nats and whether its greatest logit is the target; with ``gradient`` the logits become theirs."""
    if kernels.usable(logits_nV):
        from crossbreed.core.ops.kernels.softmax_loss import softmax_loss_

        return softmax_loss_(logits_nV, target_n, gradient)
    right_n = logits_nV.argmax(-1) == target_n
    log_p_nV = F.log_softmax(logits_nV, -1, dtype=dtype)
    log_target_n1 = log_p_nV.gather(1, target_n.unsqueeze(1))
    if gradient:
        torch.exp(log_p_nV, out=logits_nV)
        logits_nV.scatter_(1, target_n.unsqueeze(1), (log_target_n1.exp() - 1).to(logits_nV.dtype))
    return -log_target_n1.squeeze(1), right_n


def _add_product(sum_VD: Tensor, a_Vn: Tensor, b_nD: Tensor) -> None:
    """sum += a b, in the sum's precision where the device can."""
    if a_Vn.dtype == sum_VD.dtype:
        torch.addmm(sum_VD, a_Vn, b_nD, out=sum_VD)
    elif sum_VD.is_cuda:
        torch.addmm(sum_VD, a_Vn, b_nD, out_dtype=sum_VD.dtype, out=sum_VD)
    else:
        sum_VD += a_Vn @ b_nD


def _check(h_ND: Tensor, labels_N: Tensor) -> None:
    if labels_N.shape != h_ND.shape[:1]:
        raise ConfigError(f"labels have shape {tuple(labels_N.shape)}; {h_ND.shape[0]} rows need one each.")
