"""Sparse experts: each token's slots go through the weights of the experts they name, and come back weighted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from crossbreed.core.errors import ConfigError


@dataclass(frozen=True)
class Dispatch:
    """Which rows go to which expert, sorted by expert; made once where several maps follow the same choice.

    order_M: the slots, sorted by expert. place_NJ: where each slot came to lie. counts: slots of each expert.
    """

    order_M: Tensor
    place_NJ: Tensor
    counts: list[int]

    @staticmethod
    def of(expert_NJ: Tensor, experts: int) -> Dispatch:
        """Raises ConfigError for ids outside 0..experts - 1."""
        # The sort is stable: an expert's rows keep the tokens' order, so that sums are deterministic.
        sorted_M, order_M = expert_NJ.flatten().sort(stable=True)
        M = len(sorted_M)
        if M and (int(sorted_M[0]) < 0 or int(sorted_M[-1]) >= experts):
            raise ConfigError(
                f"expert ids span {int(sorted_M[0])}..{int(sorted_M[-1])}; they must lie in 0..{experts - 1}."
            )
        place_M = torch.empty_like(order_M)
        place_M.scatter_(0, order_M, torch.arange(M, device=order_M.device))
        counts = torch.bincount(sorted_M, minlength=experts).tolist()
        return Dispatch(order_M, place_M.view(expert_NJ.shape), counts)


def routed_linear(x_ND: Tensor, w_EDO: Tensor, expert: Tensor | Dispatch, weight_NJ: Tensor) -> Tensor:
    """y_n = sum_j weight_nj x_n W[expert_nj]; only the chosen products are computed.

    Args:
        x_ND: one row a token.
        w_EDO: a matrix an expert.
        expert: ids in 0..E-1 of shape (N, J), or their dispatch.
        weight_NJ: weight of each slot.

    Returns:
        `y_NO`. The order of summation is fixed: results and gradients are deterministic on every device.

    Raises:
        ConfigError: ids out of range, or shapes that do not fit.
    """
    matrices = w_EDO.unbind(0)
    return _routed(x_ND, expert, weight_NJ, w_EDO.shape, lambda x_nD, e: x_nD @ matrices[e])


def routed_swiglu(
    x_ND: Tensor,
    gate_w_EDF: Tensor,
    up_w_EDF: Tensor,
    down_w_EFD: Tensor,
    expert: Tensor | Dispatch,
    weight_NJ: Tensor,
) -> Tensor:
    """y_n = sum_j weight_nj (silu(x_n gate) * x_n up) down, the three matrices those of expert_nj (Shazeer, 2020).

    Arguments, result and errors as for `routed_linear`, with one matrix of each kind an expert.
    """
    gates, ups, downs = gate_w_EDF.unbind(0), up_w_EDF.unbind(0), down_w_EFD.unbind(0)
    if not len(gates) == len(ups) == len(downs):
        raise ConfigError(
            f"experts have {len(gates)} gates, {len(ups)} ups and {len(downs)} downs; the rule is one each."
        )

    def swiglu(x_nD: Tensor, e: int) -> Tensor:
        return (F.silu(x_nD @ gates[e]) * (x_nD @ ups[e])) @ downs[e]

    return _routed(x_ND, expert, weight_NJ, gate_w_EDF.shape, swiglu)


def _routed(
    x_ND: Tensor,
    expert: Tensor | Dispatch,
    weight_NJ: Tensor,
    weights_shape: torch.Size,
    apply: Callable[[Tensor, int], Tensor],
) -> Tensor:
    N, J = expert.place_NJ.shape if isinstance(expert, Dispatch) else expert.shape
    experts = weights_shape[0]
    if weight_NJ.shape != (N, J) or x_ND.shape != (N, weights_shape[1]):
        raise ConfigError(
            f"rows {tuple(x_ND.shape)}, ids {(N, J)} and weights {tuple(weight_NJ.shape)} do not fit experts "
            f"{tuple(weights_shape)}; rows must agree and be as wide as an expert's input."
        )
    to = expert if isinstance(expert, Dispatch) else Dispatch.of(expert, experts)
    if len(to.counts) != experts:
        raise ConfigError(f"a dispatch to {len(to.counts)} experts does not fit {experts} of them.")
    rows = _Take.apply(x_ND, to.order_M // J, to.place_NJ).split(to.counts)
    results = [apply(rows[e], e) for e in range(experts) if to.counts[e]] or [apply(rows[0], 0)]
    y_NJO = _Take.apply(torch.cat(results), to.place_NJ.flatten(), to.order_M.unsqueeze(1)).unflatten(
        0, (N, J)
    )
    y_NO: Tensor = (y_NJO * weight_NJ.unsqueeze(-1).to(y_NJO.dtype)).sum(1)
    return y_NO


class _Take(torch.autograd.Function):
    """`x[index]` where row n of x was taken at the places `places[n]`: its gradient is a gather and a sum over J.

    Autograd's own is a scatter-add, which is slow on a CPU and in no fixed order on a GPU.
    """

    @staticmethod
    def forward(ctx: Any, x_N: Tensor, index_M: Tensor, places_NJ: Tensor) -> Tensor:
        ctx.save_for_backward(places_NJ)
        return x_N[index_M]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_M: Tensor) -> tuple[Tensor, None, None]:
        (places_NJ,) = ctx.saved_tensors
        return grad_M[places_NJ].sum(1), None, None
