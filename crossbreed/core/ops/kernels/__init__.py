"""Triton kernels. A module of this folder imports triton, so it is imported where a kernel is called, never before."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from importlib.util import find_spec

import torch
from torch import Tensor

_PLAIN: ContextVar[bool] = ContextVar("plain", default=False)


def usable(x: Tensor) -> bool:
    """Whether kernels may compute on ``x`` here: on a CUDA device, in 16 or 32 bits, where triton is installed and nobody asked
    for PyTorch alone."""
    return x.is_cuda and x.dtype != torch.float64 and not _PLAIN.get() and _installed()


@contextmanager
def plain(on: bool = True) -> Iterator[None]:
    """While the block lasts no kernel is used: what the backend ``reference`` means. A backward pass does as its forward pass did."""
    token = _PLAIN.set(on or _PLAIN.get())
    try:
        yield
    finally:
        _PLAIN.reset(token)


@cache
def _installed() -> bool:
    return find_spec("triton") is not None
