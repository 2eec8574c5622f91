"""Casts of weights, each made once a pass: what autocast keeps of whole weights for its own operations, for all others too.

Blocks that share weights over depth run with one cast, and so do products with a part of a weight.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

_KEPT: ContextVar[dict[Hashable, Tensor] | None] = ContextVar("kept", default=None)


@contextmanager
def once() -> Iterator[None]:
    """While the block lasts, which must not change a weight, each cast is made once. A block within another one is part of it."""
    token = _KEPT.set({}) if _KEPT.get() is None else None
    try:
        yield
    finally:
        if token is not None:
            _KEPT.reset(token)


def cast(weight: Tensor, dtype: torch.dtype, multiple: int = 1) -> Tensor:
    """``weight`` in ``dtype``, its last two dimensions filled up with zeros to a multiple of ``multiple``; itself where it is so.

    Casts of parameters and of views of them are kept, others would pile up.
    """
    rows, columns = (-size % multiple for size in weight.shape[-2:])
    if weight.dtype == dtype and not (rows or columns):
        return weight

    def made() -> Tensor:
        narrow = weight.to(dtype)
        return F.pad(narrow, (0, columns, 0, rows)) if rows or columns else narrow

    kept, whole = _KEPT.get(), weight if weight._base is None else weight._base
    if kept is None or not isinstance(whole, nn.Parameter):
        return made()
    place = weight.untyped_storage()._cdata, weight.storage_offset(), weight.shape, weight.stride()
    # What was made without gradients is of no use with them.
    key = (*place, dtype, multiple, torch.is_grad_enabled())
    if key not in kept:
        kept[key] = made()
    return kept[key]
