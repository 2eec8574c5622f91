"""Which backends of mixers work here, found out without importing anything heavy, and why others do not."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from crossbreed.core.contracts.capabilities import CUDA, MixerCapabilities


@dataclass(frozen=True)
class Backend:
    """One backend of a mixer; ``missing`` says what it lacks here, and is empty where it works."""

    name: str
    missing: str


def backends_of(capabilities: MixerCapabilities) -> Iterator[Backend]:
    """All backends that a mixer states. Modules are looked for, not imported: ``crossbreed doctor`` imports them."""
    for name in capabilities.backends:
        yield Backend(name, _missing(capabilities.needs(name)))


def _missing(needed: Iterable[str]) -> str:
    found = []
    for need in needed:
        if need == CUDA:
            found += [] if _cuda_device() else ["no CUDA device"]
        elif importlib.util.find_spec(need.partition(".")[0]) is None:
            found.append(f"{need.partition('.')[0]} is not installed")
    return ", ".join(found)


def _cuda_device() -> bool:
    """Whether the driver shows a device that is not hidden by ``CUDA_VISIBLE_DEVICES``."""
    if os.environ.get("CUDA_VISIBLE_DEVICES", "all").strip() in ("", "-1", "NoDevFiles"):
        return False
    return any(Path("/dev").glob("nvidia[0-9]*")) or Path("/dev/dxg").exists()
