"""Settings of expert routing: how many experts a token uses, how they are weighted and how their load is balanced."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, model_validator

from crossbreed.plugins.mixers.configs.common import Config, DepthEncoding, check_depth_encoding


class RoutingSettings(Config):
    """Top-k of some experts beside shared ones (Dreamer, arXiv 2601.21582; DeepSeek-V3 for the balancing bias)."""

    experts: int = Field(
        default=8, ge=1, description="Routed experts; 8 is sparse at top_k 2 and small on a CPU."
    )
    top_k: int = Field(default=2, ge=1, description="Experts a token uses; 2 keeps the layer sparse.")
    shared: int = Field(
        default=1, ge=0, description="Always-active experts; one restores the router's gradient at 1 routed."
    )
    shared_in_top_k: bool = Field(
        default=True,
        description="Shared experts take slots of top_k: no compute overhead, the paper's reading.",
    )
    shared_scale: Literal["score", "learned"] = Field(
        default="score",
        description="How a shared expert is weighted: by the fixed score shared_score inside the normaliser, so that even "
        "one routed expert leaves the router a gradient; or by a learned factor on its output, which starts there.",
    )
    shared_score: float = Field(
        default=0.5,
        gt=0,
        description="Score c of a shared expert, or where its learned factor starts; 0.5 is one typical gate.",
    )
    gate_norm: Literal["l1", "l2", "none"] = Field(
        default="l1",
        description="Norm that divides the scores of a token's experts, shared ones included; l1 as in DeepSeek-V3.",
    )
    bias_rate: float = Field(
        default=1e-3,
        ge=0,
        description="Step of the balancing bias after each optimiser step; 0 turns balancing off.",
    )
    bias_on: Literal["score", "sigmoid"] = Field(
        default="score",
        description="What the bias is added to, for the choice alone: the raw score, as in Dreamer, or its sigmoid, as in "
        "DeepSeek-V3.",
    )
    balance: Literal["all_depths", "each_depth"] = Field(
        default="all_depths",
        description="What is balanced: the load over all depths by one bias, so that depths may differ in what they use; or "
        "every depth by its own.",
    )
    router_key: int | None = Field(
        default=16,
        ge=1,
        description="Size of routing queries and keys; small, since every depth scores all experts. None routes by one "
        "matrix d_model x experts, without depth_encoding.",
    )
    depth_encoding: DepthEncoding = Field(
        default="rose",
        description="Rotation of routing queries where a stage repeats: rose by depth and by depths left, which static "
        "keys can tell apart; index by depth alone; none.",
    )
    depth_theta: float = Field(
        default=100.0,
        gt=0,
        description="Base of the depth rotation; a large one leaves most pairs unrotated.",
    )

    @model_validator(mode="before")
    @classmethod
    def _without_key(cls, data: Any) -> Any:
        if isinstance(data, dict) and "router_key" in data and data["router_key"] is None:
            return {"depth_encoding": "none", **data}
        return data

    @model_validator(mode="after")
    def _routable(self) -> RoutingSettings:
        if self.routed < 1:
            raise ValueError(
                f"top_k ({self.top_k}) must exceed shared ({self.shared}), which take slots of it, "
                "or shared_in_top_k be false"
            )
        if self.routed > self.experts:
            raise ValueError(f"a token uses {self.routed} routed experts, but there are only {self.experts}")
        if self.router_key is None:
            if self.depth_encoding != "none":
                raise ValueError(
                    f"depth_encoding {self.depth_encoding!r} rotates routing queries and needs a router_key, got none"
                )
        else:
            check_depth_encoding("router_key", self.router_key, self.depth_encoding)
        return self

    def see_depth(self) -> bool:
        """Whether depths are told apart, in the choice of experts or in its balance."""
        return self.depth_encoding != "none" or self.balance == "each_depth"

    @property
    def routed(self) -> int:
        """Routed experts a token uses."""
        return self.top_k - self.shared if self.shared_in_top_k else self.top_k

    @property
    def slots(self) -> int:
        """Experts a token uses, shared ones included."""
        return self.routed + self.shared

    @property
    def stored(self) -> int:
        """All experts."""
        return self.experts + self.shared


class ProjectionExperts(RoutingSettings):
    """Projections as light sparse experts: one decision a token weighs whole sets of matrices (Dreamer)."""

    experts: int = Field(
        default=7,
        ge=1,
        description="Routed sets of matrices. Dreamer's own number is the stage's depths less the shared one, which "
        "equals the weights of a layered model; 7 is that at depth 8.",
    )
    tied: bool = Field(
        default=True,
        description="One decision for queries, keys, values, gate and output; otherwise each has a router of its own.",
    )


class ProjectionSettings(Config):
    """What every mixer with queries, keys and values has."""

    projection_experts: ProjectionExperts | None = Field(
        default=None,
        description="Projections as sparse experts, as Dreamer's recurrent models have; None is one matrix for every "
        "token and depth, as everywhere else.",
    )
