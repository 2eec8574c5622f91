"""NVIDIA's multi-process service (MPS): kernels of several processes side by side on one GPU, where without it they take turns.

It is started by whoever runs the machine (``scripts/with-mps``); processes find it by ``CUDA_MPS_PIPE_DIRECTORY``.
"""

from __future__ import annotations

import ctypes
from typing import Any

import torch

LIBRARY = "libcuda.so.1"
ENABLED = 133
"""``CU_DEVICE_ATTRIBUTE_MPS_ENABLED`` of the CUDA driver's API: contexts on the device are shared through the service."""


def enabled(device: torch.device) -> bool | None:
    """Whether this process computes on ``device`` through the service, as the driver says it; None where none does: on a CPU,
    without the driver's library, with a driver that does not know the question."""
    if device.type != "cuda":
        return None
    try:
        driver = _driver()
    except OSError:
        return None
    answer, handle = ctypes.c_int(), ctypes.c_int()
    index = device.index if device.index is not None else torch.cuda.current_device()
    asked = (
        lambda: driver.cuInit(0),
        lambda: driver.cuDeviceGet(ctypes.byref(handle), index),
        lambda: driver.cuDeviceGetAttribute(ctypes.byref(answer), ENABLED, handle),
    )
    return None if any(call() for call in asked) else bool(answer.value)


def _driver() -> Any:
    return ctypes.CDLL(LIBRARY)
