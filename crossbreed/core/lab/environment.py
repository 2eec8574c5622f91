"""Where a trial ran: device, threads and versions, kept with every result."""

from __future__ import annotations

import platform
import re
from collections.abc import Iterable
from contextlib import AbstractContextManager
from importlib.metadata import packages_distributions, version
from pathlib import Path
from typing import Any

import torch
from torch import nn

from crossbreed.core.contracts.capabilities import CUDA, KNOWN_NEEDS
from crossbreed.core.contracts.context import ExecutionChoice
from crossbreed.core.errors import ConfigError
from crossbreed.core.lab import mps


def pick_device(name: str) -> torch.device:
    """The device called ``name``. Raises ConfigError when this machine has none such."""
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise ConfigError(f"unknown device {name!r}; it must be 'cpu', 'cuda' or 'cuda:INDEX'") from error
    if device.type not in ("cpu", "cuda"):
        raise ConfigError(f"device {name!r} is not supported; it must be 'cpu', 'cuda' or 'cuda:INDEX'")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise ConfigError(
            f"device {name!r} is not there; this process sees {torch.cuda.device_count()} CUDA devices"
        )
    return device


def device_name(device: torch.device) -> str:
    """What a throughput is keyed by: the GPU's name, or the processor's with the number of threads in use."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    threads = torch.get_num_threads()
    return f"{_processor()} ({threads} thread{'s' if threads > 1 else ''})"


def describe(device: torch.device, model: nn.Module | None = None) -> dict[str, Any]:
    """Plain data about the process a trial runs in."""
    used = {} if model is None else backends(model)
    return {
        "crossbreed": version("crossbreed"),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "platform": platform.platform(),
        "device": device_name(device),
        "device_type": device.type,
        "cuda": torch.version.cuda if device.type == "cuda" else None,
        "mps": mps.enabled(device),
        "threads": torch.get_num_threads(),
        "backends": used,
        "libraries": libraries(used.values()) or None,
    }


def backends(model: nn.Module) -> dict[str, str]:
    """Module path -> implementation in use, for every part of the model that states one."""
    found = {name: getattr(module, "backend", None) for name, module in model.named_modules()}
    return {name: backend for name, backend in found.items() if isinstance(backend, str)}


def libraries(used: Iterable[str]) -> dict[str, str]:
    """Distribution -> version, for what the backends in use import beside PyTorch."""
    words = {word for backend in used for word in re.findall(r"\w+", backend)}
    modules = {need.split(".")[0] for word in words for need in KNOWN_NEEDS.get(word, ()) if need != CUDA}
    owners = packages_distributions() if modules - {"torch"} else {}
    names = {name for module in modules - {"torch"} for name in owners.get(module, ())}
    return {name: version(name) for name in sorted(names)}


def policy(backend: str, execution: ExecutionChoice = "auto") -> str:
    """Execution policy of a requested backend: ``best``, ``reference`` or ``forced:NAME``.

    ``+dense`` or ``+sparse`` follows where the treatment of unread tokens was forced.
    """
    name = {"auto": "best", "reference": "reference"}.get(backend, f"forced:{backend}")
    return name if execution == "auto" else f"{name}+{execution}"


def precision(dtype: str, device: torch.device, *, cached: bool = True) -> AbstractContextManager[Any]:
    """Autocast to bfloat16 on CUDA, or nothing for float32. Weights stay float32 in both.

    ``cached``: casts of weights are kept until the outermost autocast ends.

    Raises ConfigError for any other pair of dtype and device.
    """
    if dtype == "bfloat16" and device.type != "cuda":
        raise ConfigError(
            f"train.dtype 'bfloat16' needs a CUDA device, but this run is on {device.type!r}; use 'float32'"
        )
    return torch.autocast("cuda", torch.bfloat16, enabled=dtype == "bfloat16", cache_enabled=cached)


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
