"""Settings of the depth mixers."""

from __future__ import annotations

from typing import Any

from pydantic import Field, field_validator, model_validator

from crossbreed.plugins.mixers.configs.common import (
    Config,
    DepthEncoding,
    check_depth_encoding,
    check_divides,
)
from crossbreed.plugins.mixers.configs.routing import ProjectionSettings


class DepthSettings(Config):
    """Softmax attention of a token over its own earlier depths."""

    depth_encoding: DepthEncoding = Field(
        default="rose",
        description="Rotation of queries and keys: rose by depth and by depths left, index by depth alone, none. Between "
        "two rotated vectors only the difference of depths counts, in either form.",
    )
    depth_theta: float = Field(
        default=100.0,
        gt=0,
        description="Base of the depth rotation; a large one leaves most pairs unrotated.",
    )
    sees_current: bool = Field(
        default=True,
        description="A depth sees itself too: causal attention along depths includes the diagonal.",
    )
    scale: float | None = Field(
        default=None, gt=0, description="Factor on the scores; None is 1/sqrt(head size), the usual one."
    )


class DepthAttentionConfig(DepthSettings, ProjectionSettings):
    """Depth attention (Dreamer): each token attends to what it was at earlier depths of its stage."""

    heads: int = Field(
        default=2, ge=1, description="Query heads; 2, since a token has few depths to look at."
    )
    kv_heads: int | None = Field(
        default=None, ge=1, description="Key/value heads; None is one for each query head."
    )
    head_size: int = Field(default=16, ge=1, description="Size of a head. Independent of d_model.")

    @field_validator("kv_heads")
    @classmethod
    def _none_when_equal(cls, kv_heads: int | None, info: Any) -> int | None:
        return None if kv_heads == info.data.get("heads") else kv_heads

    @model_validator(mode="after")
    def _legal(self) -> DepthAttentionConfig:
        check_divides("kv_heads", self.kv_heads, "heads", self.heads)
        check_depth_encoding("head_size", self.head_size, self.depth_encoding)
        return self
