"""Settings of the channel mixers."""

from __future__ import annotations

from pydantic import Field, model_validator

from crossbreed.plugins.mixers.configs.common import Config


class SwiGLUConfig(Config):
    """A gated feed-forward layer: W_down(SiLU(W_gate x) * W_up x)."""

    hidden: int = Field(
        default=176, ge=1, description="Width inside; about 8/3 of a width of 64, as in Llama."
    )


class ExpertsConfig(Config):
    """Sparse experts: Dreamer's expert attention with bias balancing."""

    experts: int = Field(
        default=8, ge=1, description="Routed experts; 8 is sparse at top_k 2 and small on a CPU."
    )
    hidden: int = Field(default=64, ge=1, description="Width inside one expert.")
    top_k: int = Field(default=2, ge=1, description="Experts a token uses; 2 keeps the layer sparse.")
    shared: int = Field(
        default=1, ge=0, description="Always-active experts; one restores the router's gradient at 1 routed."
    )
    shared_in_top_k: bool = Field(
        default=True,
        description="Shared experts take slots of top_k: no compute overhead, the paper's reading.",
    )
    shared_score: float = Field(
        default=0.5,
        gt=0,
        description="Score c of a shared expert inside the normaliser; 0.5 is one typical gate.",
    )
    bias_rate: float = Field(
        default=1e-3,
        ge=0,
        description="Step of the balancing bias after each optimiser step; 0 turns balancing off.",
    )
    router_key: int | None = Field(
        default=16,
        ge=1,
        description="Size of routing queries and keys; None routes by one matrix d_model x experts.",
    )
    depth_encoding: bool = Field(
        default=True,
        description="Rotate routing queries by depth and by depths left where a stage repeats; needs router_key.",
    )

    @model_validator(mode="after")
    def _legal(self) -> ExpertsConfig:
        if self.routed < 1:
            raise ValueError(
                f"top_k ({self.top_k}) must exceed shared ({self.shared}), which take slots of it, "
                "or shared_in_top_k be false"
            )
        if self.routed > self.experts:
            raise ValueError(f"a token uses {self.routed} routed experts, but there are only {self.experts}")
        if self.depth_encoding and self.router_key is not None and self.router_key % 4:
            raise ValueError(
                f"router_key must be a multiple of 4 for depth_encoding (two halves of rotated pairs), got {self.router_key}"
            )
        return self

    @property
    def routed(self) -> int:
        """Routed experts a token uses."""
        return self.top_k - self.shared if self.shared_in_top_k else self.top_k
