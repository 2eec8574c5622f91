"""Who computes: which of a reader's implementations serves activations of a dtype on a device. Imports no torch.

Fused kernels serve 16-bit activations on a CUDA device, where their library is installed; the plain PyTorch path serves
everything, everywhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING

from crossbreed.core.contracts.capabilities import CUDA, KNOWN_NEEDS
from crossbreed.core.errors import MissingCapability

if TYPE_CHECKING:
    import torch

REFERENCE = "reference"
SOFTMAX = ("sdpa", "flash_attn")
DELTA = ("fla",)
SSD = ("mamba_ssm", "fla")
"""Fused implementations of the built-in readers."""
FORCED_ONLY = frozenset({"flash_attn", "fla", "mamba_ssm"})
"""What ``auto`` leaves alone where nothing was measured: the recurrences' kernels try settings for minutes at each new size of a
head, and mamba-ssm's were not yet seen to be right at all sizes. A worker's race on a CUDA device takes them all in
(``core.lab.rivals``)."""
NARROW = ("torch.bfloat16", "torch.float16")


def check_backend(name: str, backend: str, fused: Sequence[str] = ()) -> None:
    """Raise MissingCapability unless part ``name`` has this implementation and its library is installed."""
    if backend in ("auto", REFERENCE):
        return
    if backend not in fused:
        has = " and ".join(repr(one) for one in (REFERENCE, *fused))
        raise MissingCapability(f"mixer {name!r} has the backend {has} only, got {backend!r}")
    if absent := _absent(backend):
        raise MissingCapability(
            f"backend {backend!r} of mixer {name!r} needs the module {absent!r}, which is not installed; "
            "see the extra 'cuda'"
        )


def serving(
    requested: str,
    fused: Sequence[str],
    device: torch.device,
    dtype: torch.dtype,
    sizes: tuple[int, int] | None = None,
) -> str:
    """The implementation that serves heads of these key and value sizes.

    Raises MissingCapability where the one that is forced cannot.
    """
    if requested == REFERENCE or not fused:
        return REFERENCE
    able = device.type == CUDA and str(dtype) in NARROW
    if requested == "auto":
        free = (
            one for one in fused if one not in FORCED_ONLY and not _absent(one) and not _illegal(one, sizes)
        )
        return next(free, REFERENCE) if able else REFERENCE
    if not able:
        raise MissingCapability(
            f"backend {requested!r} computes in bfloat16 or float16 on a CUDA device, but this is {dtype} on {device}"
        )
    if rule := _illegal(requested, sizes):
        raise MissingCapability(
            f"backend {requested!r} takes {rule}, but this mixer's key and value sizes are {sizes}"
        )
    return requested


def _illegal(backend: str, sizes: tuple[int, int] | None) -> str:
    """The rule that a backend has for sizes of keys and values and that these break, or nothing."""
    if sizes is None:
        return ""
    if backend == "fla" and max(sizes) > 256:
        return "key and value sizes up to 256"
    if backend == "flash_attn" and (sizes[0] != sizes[1] or sizes[0] % 8 or sizes[0] > 256):
        return "keys and values of one size, a multiple of 8 up to 256"
    return ""


@cache
def _absent(backend: str) -> str:
    """The first module that a backend imports and that is not installed, or nothing."""
    return next(
        (name for name in KNOWN_NEEDS[backend] if name != CUDA and find_spec(name.split(".")[0]) is None), ""
    )
