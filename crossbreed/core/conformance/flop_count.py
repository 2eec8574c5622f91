"""A count of the operations that PyTorch really dispatches: the check behind ``executed_*_flops``.

It sees sizes of matrices, never of mixers, and so shares no formula with any cost. PyTorch's own counter reads 0 for a CPU's
attention, for triangular solves and for operations that it does not know, and it takes grouped convolutions backward for
dense ones; here these have formulas, and an operation that multiplies but has none is an error.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from math import prod
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from crossbreed.core.errors import CrossbreedError
from crossbreed.core.ops.entropy import head_entropy

aten = torch.ops.aten


class UncountedWork(CrossbreedError):
    """Operations multiply matrices but have no formula, or nothing was counted at all."""


def _attention(q: Any, k: Any, v: Any, *_: Any, **__: Any) -> int:
    """Scores and weighted values of every pair, hidden ones included."""
    batch, heads, queries, size = q.shape
    return int(2 * batch * heads * queries * k.shape[2] * (size + v.shape[-1]))


def _attention_backward(_grad: Any, q: Any, k: Any, v: Any, *_: Any, **__: Any) -> int:
    """Scores again, then the gradients of values, probabilities, queries and keys: five products."""
    batch, heads, queries, size = q.shape
    return int(2 * batch * heads * queries * k.shape[2] * (3 * size + 2 * v.shape[-1]))


def _solve(a: Any, b: Any, *_: Any, **__: Any) -> int:
    """Substitution with a triangular matrix: half the multiply-adds of a product."""
    return int(prod(b.shape) * a.shape[-1])


def _convolution_backward(grad: Any, _x: Any, weight: Any, *args: Any, **__: Any) -> int:
    """Gradients of input and weight, each as much as the forward pass; only those that are asked for."""
    wanted = args[-1]
    return int(2 * sum(wanted[:2]) * prod(grad.shape) * prod(weight.shape[1:]))


def _dot(a: Any, b: Any, *_: Any, **__: Any) -> int:
    return int(2 * a.shape[-1])


def _matrix_vector(a: Any, _b: Any, *_: Any, **__: Any) -> int:
    return int(2 * prod(a.shape))


def _added_matrix_vector(_c: Any, a: Any, _b: Any, *_: Any, **__: Any) -> int:
    return int(2 * prod(a.shape))


def _head(h: Any, weight: Any, *_: Any, **__: Any) -> int:
    """Every logit of every row."""
    return int(2 * h.shape[0] * prod(weight.shape))


FORMULAS: dict[Any, Callable[..., int]] = {
    aten._scaled_dot_product_flash_attention_for_cpu: _attention,
    aten._scaled_dot_product_flash_attention_for_cpu_backward: _attention_backward,
    aten.linalg_solve_triangular: _solve,
    aten.triangular_solve: lambda b, a, *_, **__: _solve(a, b),
    aten.convolution_backward: _convolution_backward,
    aten.dot: _dot,
    aten.vdot: _dot,
    aten.mv: _matrix_vector,
    aten.addmv: _added_matrix_vector,
    head_entropy._opoverload.overloadpacket: _head,
}
"""Of operations that PyTorch counts as nothing, or wrongly, from their arguments. A plugin adds its own kernels' here."""

MULTIPLIES = re.compile(
    r"(^|_)(\w*mm|\w*mv|v?dot|matmul|linear|\w*conv\w*|einsum|attention|solve|cdist|bilinear|lstm|gru|rnn|addr|cholesky"
    r"|inv|inverse|lu|svd|eigh?|qr|matrix_exp|lstsq)(_|$)"
)
"""Names of PyTorch's operations that multiply matrices."""


def count_flops(run: Callable[[], object], formulas: dict[Any, Callable[..., int]] | None = None) -> float:
    """FLOPs dispatched while ``run`` runs, its backward passes included; a multiply-add is 2.

    ``formulas``: of further operations. Raises UncountedWork for an operation that multiplies but has no formula, for any
    operation of a plugin's own without one, and when nothing was counted.
    """
    with _Counting({**FORMULAS, **(formulas or {})}) as counting:
        run()
    total = sum(counting.by_operation.values())
    if not total:
        raise UncountedWork(
            "nothing was counted: no operation that ran multiplies anything this counter can see"
        )
    return float(total)


class _Counting(TorchDispatchMode):
    def __init__(self, formulas: dict[Any, Callable[..., int]]) -> None:
        super().__init__()
        self.formulas = formulas
        self.by_operation: Counter[str] = Counter()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs, packet = kwargs or {}, getattr(func, "_overloadpacket", func)
        known = packet in self.formulas or packet in flop_registry
        if not known and isinstance(func, torch._ops.OpOverload) and func.namespace != "prim":
            # Compound operations arrive whole in inference mode: their parts are counted instead.
            with self:
                result = func.decompose(*args, **kwargs)
            if result is not NotImplemented:
                return result
        result = func(*args, **kwargs)
        if packet in self.formulas:
            self.by_operation[str(packet)] += self.formulas[packet](*args, **kwargs)
        elif known:
            self.by_operation[str(packet)] += flop_registry[packet](*args, **kwargs, out_val=result)
        elif _works(func):
            raise UncountedWork(
                f"operation {packet} may multiply matrices, but has no formula; add one to {__name__}.FORMULAS"
            )
        return result


def _works(func: Any) -> bool:
    """Whether an operation may hide products: any that is not PyTorch's, and PyTorch's by its name."""
    namespace = getattr(func, "namespace", "")
    if namespace in ("aten", "prim", "prims"):
        return MULTIPLIES.search(func._schema.name.removeprefix("aten::")) is not None
    return namespace not in ("profiler", "c10d", "_c10d_functional")
