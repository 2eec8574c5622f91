"""Settings of the channel mixers."""

from __future__ import annotations

from pydantic import Field

from crossbreed.plugins.mixers.configs.common import Config
from crossbreed.plugins.mixers.configs.routing import RoutingSettings


class SwiGLUConfig(Config):
    """A gated feed-forward layer: W_down(SiLU(W_gate x) * W_up x)."""

    hidden: int = Field(
        default=176, ge=1, description="Width inside; about 8/3 of a width of 64, as in Llama."
    )


class ExpertsConfig(RoutingSettings):
    """Sparse experts: Dreamer's expert attention with bias balancing."""

    hidden: int = Field(default=64, ge=1, description="Width inside one expert.")
