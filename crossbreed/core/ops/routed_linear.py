"""Sparse experts: each token's slots go through the weights of the experts they name, and come back weighted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from crossbreed.core.errors import ConfigError
from crossbreed.core.ops import casts, kernels
from crossbreed.core.ops.chunks import product_dtype
from crossbreed.core.ops.gated import silu_times

Product = Callable[[Tensor, Tensor], Tensor]

GROUPED_ALIGNMENT = 8
"""Numbers of 16 bits that rows of a grouped product's matrices are a multiple of; what is missing is filled up with zeros."""


@dataclass(frozen=True)
class Dispatch:
    """Which rows go to which expert, sorted by expert; made once where several maps follow the same choice.

    order_M: the slots, sorted by expert. place_NJ: where each slot came to lie. end_E: int32, where each expert's slots end.
    """

    order_M: Tensor
    place_NJ: Tensor
    end_E: Tensor

    @staticmethod
    def of(expert_NJ: Tensor, experts: int) -> Dispatch:
        """Raises ConfigError for ids outside 0..experts - 1, on a CPU; a device would have to be waited for."""
        # The sort is stable: an expert's rows keep the tokens' order, so that sums are deterministic. A device sorts by eight bits
        # at a time, so that narrow numbers take a quarter of the passes.
        narrow = torch.int16 if expert_NJ.is_cuda and experts <= torch.iinfo(torch.int16).max else torch.int64
        sorted_M, order_M = expert_NJ.flatten().to(narrow).sort(stable=True)
        M, device = len(sorted_M), expert_NJ.device
        if M and device.type == "cpu" and (int(sorted_M[0]) < 0 or int(sorted_M[-1]) >= experts):
            raise ConfigError(
                f"expert ids span {int(sorted_M[0])}..{int(sorted_M[-1])}; they must lie in 0..{experts - 1}."
            )
        place_M = torch.empty_like(order_M)
        place_M.scatter_(0, order_M, torch.arange(M, device=device))
        end_E = torch.searchsorted(
            sorted_M, torch.arange(experts, device=device, dtype=narrow), right=True, out_int32=True
        )
        return Dispatch(order_M, place_M.view(expert_NJ.shape), end_E)

    @cached_property
    def counts(self) -> list[int]:
        """Slots of each expert, on the host."""
        return self.end_E.diff(prepend=self.end_E.new_zeros(1)).tolist()


def routed_linear(x_ND: Tensor, w_EDO: Tensor, expert: Tensor | Dispatch, weight_NJ: Tensor) -> Tensor:
    """y_n = sum_j weight_nj x_n W[expert_nj]; only the chosen products are computed.

    Args:
        x_ND: one row a token.
        w_EDO: a matrix an expert, in any dtype: it is cast to that of products of rows here, once a pass (``casts``).
        expert: ids in 0..E-1 of shape (N, J), or their dispatch.
        weight_NJ: weight of each slot.

    Returns:
        `y_NO`. The order of summation is fixed: results and gradients are deterministic on every device.

    Raises:
        ConfigError: ids out of range, or shapes that do not fit.
    """
    return _routed(x_ND, expert, weight_NJ, (w_EDO,), lambda product, x_MD, w: product(x_MD, w))


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
    counts = len(gate_w_EDF), len(up_w_EDF), len(down_w_EFD)
    if len(set(counts)) > 1:
        raise ConfigError("experts have {} gates, {} ups and {} downs; the rule is one each.".format(*counts))

    def swiglu(product: Product, x_MD: Tensor, gate: Tensor, up: Tensor, down: Tensor) -> Tensor:
        return product(silu_times(product(x_MD, gate), product(x_MD, up)), down)

    return _routed(x_ND, expert, weight_NJ, (gate_w_EDF, up_w_EDF, down_w_EFD), swiglu)


def _routed(
    x_ND: Tensor,
    expert: Tensor | Dispatch,
    weight_NJ: Tensor,
    weights: Sequence[Tensor],
    apply: Callable[..., Tensor],
) -> Tensor:
    """``apply(product, rows, *matrices)`` computes the rows of one expert with its matrices, or those of all with all."""
    N, J = expert.place_NJ.shape if isinstance(expert, Dispatch) else expert.shape
    experts = len(weights[0])
    if weight_NJ.shape != (N, J) or x_ND.shape != (N, weights[0].shape[1]):
        raise ConfigError(
            f"rows {tuple(x_ND.shape)}, ids {(N, J)} and weights {tuple(weight_NJ.shape)} do not fit experts "
            f"{tuple(weights[0].shape)}; rows must agree and be as wide as an expert's input."
        )
    to = expert if isinstance(expert, Dispatch) else Dispatch.of(expert, experts)
    if len(to.end_E) != experts:
        raise ConfigError(f"a dispatch to {len(to.end_E)} experts does not fit {experts} of them.")
    # Before rows are taken: there are J times as many of them then.
    dtype, grouped = product_dtype(x_ND), _grouped(x_ND)
    multiple = GROUPED_ALIGNMENT if grouped else 1
    x_ND, missing = x_ND.to(dtype), -x_ND.shape[1] % multiple
    if missing:
        x_ND = F.pad(x_ND, (0, missing))
    matrices = [casts.cast(w, dtype, multiple) for w in weights]
    x_MD = _Take.apply(x_ND, to.order_M // J, to.place_NJ)
    if grouped:
        y_MO = apply(partial(F.grouped_mm, offs=to.end_E), x_MD, *matrices)
    else:
        rows, experts_of = x_MD.split(to.counts), [w.unbind(0) for w in matrices]
        results = [
            apply(torch.matmul, rows[e], *(w[e] for w in experts_of)) for e in range(experts) if to.counts[e]
        ]
        y_MO = torch.cat(results or [apply(torch.matmul, rows[0], *(w[0] for w in experts_of))])
    if kernels.usable(y_MO):
        y_NO = _WeightedSum.apply(y_MO, weight_NJ, to.place_NJ)
    else:
        y_NJO = _Take.apply(y_MO, to.place_NJ.flatten(), to.order_M.unsqueeze(1)).unflatten(0, (N, J))
        y_NO = (y_NJO * weight_NJ.unsqueeze(-1).to(y_NJO.dtype)).sum(1)
    O = weights[-1].shape[2]  # noqa: E741
    return y_NO[:, :O]  # type: ignore[no-any-return]


def _grouped(x_ND: Tensor) -> bool:
    """Whether one kernel computes all experts here, without the host knowing how many rows each has."""
    return x_ND.is_cuda and product_dtype(x_ND) == torch.bfloat16 and len(x_ND) > 0


class _Take(torch.autograd.Function):
    """`x[index]` where row n of x was taken at the places `places[n]`: its gradient is a gather and a sum over J.

    Autograd's own is a scatter-add, which is slow on a CPU and in no fixed order on a GPU.
    """

    @staticmethod
    def forward(ctx: Any, x_N: Tensor, index_M: Tensor, places_NJ: Tensor) -> Tensor:
        ctx.save_for_backward(places_NJ)
        ctx.by_kernel = kernels.usable(x_N)
        return x_N[index_M]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_M: Tensor) -> tuple[Tensor, None, None]:
        (places_NJ,) = ctx.saved_tensors
        if not ctx.by_kernel:
            return grad_M[places_NJ].sum(1), None, None
        from crossbreed.core.ops.kernels import gather_sum

        return gather_sum.forward(grad_M, places_NJ, None), None, None


class _WeightedSum(torch.autograd.Function):
    """y_n = sum_j weight_nj y[place_nj] by one kernel, and both gradients by another. Every row lies at one place."""

    @staticmethod
    def forward(ctx: Any, y_MO: Tensor, weight_NJ: Tensor, place_NJ: Tensor) -> Tensor:
        from crossbreed.core.ops.kernels import gather_sum

        place_NJ, weight_NJ = place_NJ.contiguous(), weight_NJ.contiguous()
        ctx.save_for_backward(y_MO, weight_NJ, place_NJ)
        return gather_sum.forward(y_MO, place_NJ, weight_NJ)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_NO: Tensor) -> tuple[Tensor, Tensor, None]:
        from crossbreed.core.ops.kernels import gather_sum

        y_MO, weight_NJ, place_NJ = ctx.saved_tensors
        of_y, of_weight = gather_sum.backward(grad_NO, y_MO, place_NJ, weight_NJ)
        return of_y, of_weight.to(weight_NJ.dtype), None
