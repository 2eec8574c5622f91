"""Settings of the sequence mixers with one reader."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from crossbreed.core.contracts.settings import later
from crossbreed.core.genome import NORM_EPS, Eps
from crossbreed.plugins.mixers.configs.common import (
    ActivatedConv,
    DeltaConv,
    MambaConv,
    Norm,
    check_divides,
    check_rotary,
    eps_of_a_norm,
)
from crossbreed.plugins.mixers.configs.readers import DeltaSettings, SoftmaxSettings, SsdSettings
from crossbreed.plugins.mixers.configs.routing import ProjectionSettings


class AttentionConfig(SoftmaxSettings, ProjectionSettings):
    """Causal softmax attention with rotary positions, grouped queries and an optional sliding window."""

    heads: int = Field(default=4, ge=1, description="Query heads; 4 suits widths near 64.")
    kv_heads: int | None = Field(
        default=None, ge=1, description="Key/value heads; None is one for each query head."
    )
    head_size: int = Field(
        default=16, ge=1, description="Size of a head; 4 x 16 is the width of 64. Independent of d_model."
    )
    rope_theta: float = Field(
        default=10_000.0, gt=0, description="Base of the rotary angles; the field's usual value."
    )
    rope_fraction: float = Field(
        default=1.0,
        ge=0,
        le=1,
        description="Share of each head that is rotated; 0 turns rotary positions off.",
    )
    gate: bool = Field(
        default=False, description="Multiply the output by SiLU of a projection; off as in Llama."
    )
    norm: Norm = Field(
        default="none", description="RMS norm of the output: full after gating, head before; off as in Llama."
    )
    norm_eps: Eps = Field(
        default=NORM_EPS, description="Added to the mean square by the norm; as in the residual stream."
    )
    short_conv: ActivatedConv | None = Field(
        default=None, description="A short convolution; off, since plain attention has none."
    )
    kv_from: Literal["stream", "embeddings"] = later(
        "stream",
        description="What keys and values are projected from: the block's input, or the token embeddings, RMS-normalised "
        "without gains. The stream, since embeddings know nothing of the context: AMOR's first version found 6 % recall "
        "with them and 36 % without.",
    )

    _eps = field_validator("norm_eps")(eps_of_a_norm)

    @field_validator("kv_heads")
    @classmethod
    def _none_when_equal(cls, kv_heads: int | None, info: Any) -> int | None:
        return None if kv_heads == info.data.get("heads") else kv_heads

    @model_validator(mode="after")
    def _legal(self) -> AttentionConfig:
        check_divides("kv_heads", self.kv_heads, "heads", self.heads)
        check_rotary(self.head_size, self.rope_fraction)
        return self


class Mamba2Config(SsdSettings, ProjectionSettings):
    """Mamba-2: state-space duality with a short convolution and a gated norm."""

    heads: int = Field(
        default=4, ge=1, description="Heads; heads x head_size is twice a width of 64, Mamba-2's expansion."
    )
    head_size: int = Field(default=32, ge=1, description="Size of a head's values (P in the paper).")
    state_size: int = Field(
        default=32, ge=1, description="Size of keys and queries (N in the paper: B and C)."
    )
    groups: int = Field(default=1, ge=1, description="Groups of heads that share B and C; 1 as in Mamba-2.")
    gate: bool = Field(
        default=True, description="Multiply the output by SiLU of a projection (z in the paper)."
    )
    norm: Norm = Field(
        default="full", description="RMS norm over all of the output after gating, as in Mamba-2."
    )
    norm_eps: Eps = Field(
        default=NORM_EPS,
        description="Added to the mean square by the norm; published Mamba-2 weights use 1e-5.",
    )
    short_conv: MambaConv | None = Field(
        default=MambaConv(), description="Width 4 on x, B and C, then SiLU, as in Mamba-2."
    )

    _eps = field_validator("norm_eps")(eps_of_a_norm)

    @model_validator(mode="after")
    def _legal(self) -> Mamba2Config:
        check_divides("groups", self.groups, "heads", self.heads)
        return self


class GatedDeltaNetConfig(DeltaSettings, ProjectionSettings):
    """Gated DeltaNet: the delta rule with a decay, a short convolution and a gated norm per head."""

    heads: int = Field(default=4, ge=1, description="Value heads; heads x value_size is twice a width of 64.")
    key_heads: int | None = Field(
        default=None, ge=1, description="Query and key heads; None is one for each value head."
    )
    key_size: int = Field(
        default=16, ge=1, description="Size of queries and keys; half the value size, as published."
    )
    value_size: int = Field(default=32, ge=1, description="Size of values; twice the key size, as published.")
    gate: bool = Field(default=True, description="Multiply the output by SiLU of a projection, as published.")
    norm: Norm = Field(default="head", description="RMS norm per head before gating, as published.")
    norm_eps: Eps = Field(
        default=NORM_EPS,
        description="Added to the mean square by the norm; 1e-6 as in fla's models, whose layer alone uses 1e-5.",
    )
    short_conv: DeltaConv | None = Field(
        default=DeltaConv(), description="Width 4 on queries, keys and values, then SiLU, as published."
    )

    _eps = field_validator("norm_eps")(eps_of_a_norm)

    @field_validator("key_heads")
    @classmethod
    def _none_when_equal(cls, key_heads: int | None, info: Any) -> int | None:
        return None if key_heads == info.data.get("heads") else key_heads

    @model_validator(mode="after")
    def _legal(self) -> GatedDeltaNetConfig:
        check_divides("key_heads", self.key_heads, "heads", self.heads)
        return self
