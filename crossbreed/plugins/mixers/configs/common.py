"""What the settings of several mixers share."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from crossbreed.core.genome import NORM_EPS

Activation = Literal["none", "silu"]
Norm = Literal["none", "full", "head"]
NormPlace = Literal["before_gate", "after_gate"]
Rope = Literal["all", "attention", "none"]
DepthEncoding = Literal["rose", "index", "none"]


class Config(BaseModel):
    """Base: immutable, unknown keys refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class ShortConv(Config):
    """A causal depthwise convolution on projected keys and values, and on queries where asked."""

    width: int = Field(
        default=4, ge=2, le=16, description="Taps; 4 is what Mamba-2, Gated DeltaNet and Oryx use."
    )
    on: Literal["kv", "qkv"] = Field(
        default="kv",
        description="Convolve keys and values, or queries too (their projection is then charged as write).",
    )
    bias: bool = Field(
        default=False, description="Add a bias per channel; off as in Gated DeltaNet and Oryx."
    )


class ActivatedConv(ShortConv):
    """A short convolution and what follows it."""

    activation: Activation = Field(
        default="none", description="After the convolution; none keeps attention's keys as they are."
    )


class DeltaConv(ActivatedConv):
    """The convolution of Gated DeltaNet: on queries too, then SiLU."""

    on: Literal["kv", "qkv"] = Field(default="qkv", description="Gated DeltaNet convolves queries too.")
    activation: Activation = Field(
        default="silu", description="Gated DeltaNet applies SiLU after the convolution."
    )


class MambaConv(DeltaConv):
    """The convolution of Mamba-2: as Gated DeltaNet's, with a bias."""

    bias: bool = Field(default=True, description="Mamba-2 has a bias.")


def check_rotary(head_size: int, fraction: float) -> None:
    """Raise ValueError unless the rotated part of a head is whole pairs."""
    rotated = int(head_size * fraction)
    if rotated % 2:
        raise ValueError(
            f"rotary positions turn pairs: int(head_size x rope_fraction) must be even, got int({head_size} x {fraction}) = {rotated}"
        )


def check_divides(name: str, part: int | None, whole_name: str, whole: int) -> None:
    if part is not None and whole % part:
        raise ValueError(f"{name} ({part}) must divide {whole_name} ({whole})")


def check_depth_encoding(name: str, size: int, encoding: DepthEncoding) -> None:
    """Raise ValueError unless a vector of ``size`` splits into the pairs that a depth encoding rotates."""
    multiple = {"rose": 4, "index": 2, "none": 1}[encoding]
    if size % multiple:
        parts = "two halves of rotated pairs" if encoding == "rose" else "rotated pairs"
        raise ValueError(
            f"{name} must be a multiple of {multiple} for depth_encoding {encoding!r} ({parts}), got {size}"
        )


def eps_of_a_norm(norm_eps: float, info: Any) -> float:
    """A field validator: without a norm its epsilon says nothing, so that it is the default."""
    return NORM_EPS if info.data.get("norm") == "none" else norm_eps
