"""Triton kernels. A module of this folder imports triton, so it is imported where a kernel is called, never before."""

from __future__ import annotations

from importlib.util import find_spec

import torch
from torch import Tensor


def usable(x: Tensor) -> bool:
    """Whether kernels may compute on ``x`` here: on a CUDA device, in 16 or 32 bits, where triton is installed."""
    return x.is_cuda and x.dtype != torch.float64 and find_spec("triton") is not None
