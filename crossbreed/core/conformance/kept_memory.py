"""What autograd really keeps: the check behind ``kept_bytes``, blind to any formula."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable


@dataclass
class Kept:
    """Storages that a graph holds for its backward pass, each counted once; a model's own tensors are left out."""

    sizes: dict[int, int] = field(default_factory=dict)
    _alive: list[Any] = field(default_factory=list)

    @property
    def bytes(self) -> int:
        return sum(self.sizes.values())


@contextmanager
def kept_memory(model: nn.Module) -> Iterator[Kept]:
    """Measure what forward passes inside the block keep. RMS norms keep their input and one size, as the fused ones do."""
    own = {t.untyped_storage().data_ptr() for t in (*model.parameters(), *model.buffers())}
    kept = Kept()

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            kept.sizes[storage.data_ptr()] = storage.nbytes()
            # Alive, so that no later tensor takes its address.
            kept._alive.append(storage)
        return tensor

    with _fused_norms(), torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        yield kept


@contextmanager
def _fused_norms() -> Iterator[None]:
    """A CPU writes RMS norms out in several operations; here they keep what the fused ones of a CUDA device keep."""
    plain = torch.nn.functional.rms_norm

    def fused(x: Tensor, shape: Any, weight: Tensor | None = None, eps: float | None = None) -> Tensor:
        wide = (
            x.to(torch.promote_types(x.dtype, torch.float32))
            if torch.is_autocast_enabled(x.device.type)
            else x
        )
        y: Tensor = _FusedNorm.apply(wide, weight, eps, plain)
        return y

    torch.nn.functional.rms_norm = fused  # type: ignore[assignment]
    try:
        yield
    finally:
        torch.nn.functional.rms_norm = plain


class _FusedNorm(torch.autograd.Function):
    """An RMS norm over the last dimension that keeps its input, its weight and one size a row."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor | None, eps: float | None, plain: Callable[..., Tensor]
    ) -> Tensor:
        ctx.save_for_backward(x, weight, x[..., :1].clone())
        ctx.eps, ctx.plain = eps, plain
        return plain(x, x.shape[-1:], weight, eps)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, _ = ctx.saved_tensors
        with torch.enable_grad():
            inputs = [t.detach().requires_grad_() for t in (x, weight) if t is not None]
            y = ctx.plain(inputs[0], x.shape[-1:], inputs[1] if weight is not None else None, ctx.eps)
            grads = torch.autograd.grad(y, inputs, grad)
        return grads[0], grads[1] if weight is not None else None, None, None
