"""Settings of the built-in mixers and their readers. Imports no torch; every model is frozen and hashable.

Each field's description says why its default is what it is. "Equal to the heads" is written None, so that a budget or a
search can change the number of heads alone.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

Activation = Literal["none", "silu"]
Norm = Literal["none", "full", "head"]
Rope = Literal["all", "attention", "none"]


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


# --- readers ---------------------------------------------------------------------------------------------------------


class SoftmaxSettings(Config):
    """Softmax attention over cached keys and values."""

    window: int | None = Field(
        default=None, ge=1, description="Tokens a query sees, itself included; None sees the whole document."
    )
    qk_norm: bool = Field(
        default=False,
        description="RMS-normalise queries and keys, with a gain per head; off as in Llama and Oryx.",
    )
    scale: float | None = Field(
        default=None, gt=0, description="Factor on the scores; None is 1/sqrt(head size), the usual one."
    )


class DecaySettings(Config):
    """How the decays of a recurrence start."""

    dt_min: float = Field(default=1e-3, gt=0, description="Smallest initial time step (Mamba-2's value).")
    dt_max: float = Field(default=0.1, gt=0, description="Largest initial time step (Mamba-2's value).")
    a_min: float = Field(default=1.0, gt=0, description="Smallest initial decay rate A (Mamba-2's value).")
    a_max: float = Field(default=16.0, gt=0, description="Largest initial decay rate A (Mamba-2's value).")

    @model_validator(mode="after")
    def _ordered(self) -> DecaySettings:
        for low, high in (("dt_min", "dt_max"), ("a_min", "a_max")):
            if getattr(self, low) > getattr(self, high):
                raise ValueError(
                    f"{low} ({getattr(self, low)}) must not exceed {high} ({getattr(self, high)})"
                )
        return self


class SsdSettings(DecaySettings):
    """The scalar-decay recurrence of Mamba-2."""

    skip: bool = Field(
        default=True,
        description="Add D times the value to each head's output, as Mamba-2 does; D starts at 1.",
    )


class DeltaSettings(DecaySettings):
    """The gated delta rule."""

    a_min: float = Field(
        default=0.01, gt=0, description="Smallest initial decay rate; above 0 so that its log exists."
    )
    qk_l2_norm: bool = Field(
        default=True,
        description="L2-normalise queries and keys of this reader; the delta rule is unstable without.",
    )


# --- sequence mixers -------------------------------------------------------------------------------------------------


class AttentionConfig(SoftmaxSettings):
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
    short_conv: ActivatedConv | None = Field(
        default=None, description="A short convolution; off, since plain attention has none."
    )

    @field_validator("kv_heads")
    @classmethod
    def _none_when_equal(cls, kv_heads: int | None, info: Any) -> int | None:
        return None if kv_heads == info.data.get("heads") else kv_heads

    @model_validator(mode="after")
    def _legal(self) -> AttentionConfig:
        _divides("kv_heads", self.kv_heads, "heads", self.heads)
        check_rotary(self.head_size, self.rope_fraction)
        return self


class Mamba2Config(SsdSettings):
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
    short_conv: MambaConv | None = Field(
        default=MambaConv(), description="Width 4 on x, B and C, then SiLU, as in Mamba-2."
    )

    @model_validator(mode="after")
    def _legal(self) -> Mamba2Config:
        _divides("groups", self.groups, "heads", self.heads)
        return self


class GatedDeltaNetConfig(DeltaSettings):
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
    short_conv: DeltaConv | None = Field(
        default=DeltaConv(), description="Width 4 on queries, keys and values, then SiLU, as published."
    )

    @field_validator("key_heads")
    @classmethod
    def _none_when_equal(cls, key_heads: int | None, info: Any) -> int | None:
        return None if key_heads == info.data.get("heads") else key_heads

    @model_validator(mode="after")
    def _legal(self) -> GatedDeltaNetConfig:
        _divides("key_heads", self.key_heads, "heads", self.heads)
        return self


READER_SETTINGS: dict[str, type[Config]] = {
    "attention": SoftmaxSettings,
    "mamba2": SsdSettings,
    "gated_deltanet": DeltaSettings,
}
"""Settings of the built-in readers; a built-in's name is never anybody else's."""


class ReaderChoice(Config):
    """A reader by the name of the mixer that offers it, with the reader's settings."""

    name: str
    params: dict[str, Any] = Field(default_factory=dict, validate_default=True)

    @field_validator("params")
    @classmethod
    def _fill_defaults(cls, params: dict[str, Any], info: Any) -> dict[str, Any]:
        settings = READER_SETTINGS.get(info.data.get("name", ""))
        return params if settings is None else settings.model_validate(params).model_dump(mode="json")

    def __hash__(self) -> int:
        return hash((self.name, repr(sorted(self.params.items()))))


FAMILY_DEFAULTS: dict[str, dict[str, Any]] = {
    "tm": {"kv_activation": "none", "q_activation": "none", "rope": "all", "norm": "full"},
    "tg": {"kv_activation": "silu", "q_activation": "silu", "rope": "attention", "norm": "head"},
}
"""What Oryx uses with Mamba-2 (tm) and with Gated DeltaNet (tg): paper, appendix B."""


class MultiMixerConfig(Config):
    """Several readers over one stream of keys and values (Oryx); a mode router chooses who reads."""

    readers: tuple[ReaderChoice, ...] = Field(
        default=(ReaderChoice(name="mamba2"), ReaderChoice(name="attention")),
        min_length=1,
        description="Mixers whose readers are held, cheapest first: a mode is an index into this list.",
    )
    heads: int = Field(default=4, ge=1, description="Heads of queries, keys and values alike, as in Oryx.")
    head_size: int = Field(default=16, ge=1, description="Size of a head; 4 x 16 is the width of 64.")
    style: Literal["auto", "tm", "tg"] = Field(
        default="auto",
        description="Whose defaults the next four settings take: tg with a gated_deltanet among the readers, else tm.",
    )
    kv_activation: Activation = Field(
        default="none", description="On keys and values after the convolution; by style."
    )
    q_activation: Activation = Field(default="none", description="On every reader's queries; by style.")
    rope: Rope = Field(
        default="all",
        description="Who sees rotary positions: all readers, attention alone, or none; by style.",
    )
    norm: Norm = Field(
        default="full", description="RMS norm of the output: full after gating, head before; by style."
    )
    gate: bool = Field(default=True, description="Multiply the output by SiLU of a projection, as in Oryx.")
    rope_theta: float = Field(default=10_000.0, gt=0, description="Base of the rotary angles.")
    rope_fraction: float = Field(default=1.0, gt=0, le=1, description="Share of each head that is rotated.")
    short_conv: ShortConv | None = Field(
        default=ShortConv(), description="Width 4 on keys and values; Oryx never convolves queries."
    )

    @model_validator(mode="before")
    @classmethod
    def _family(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        readers = data.get("readers", cls.model_fields["readers"].default)
        if isinstance(readers, list | tuple):
            readers = tuple({"name": r} if isinstance(r, str) else r for r in readers)
        style = data.get("style", "auto")
        if style == "auto":
            style = "tg" if "gated_deltanet" in map(_name, readers) else "tm"
        return {**FAMILY_DEFAULTS.get(style, {}), **data, "readers": readers, "style": style}

    @model_validator(mode="after")
    def _legal(self) -> MultiMixerConfig:
        if self.rope != "none":
            check_rotary(self.head_size, self.rope_fraction)
        return self


# --- channel mixers --------------------------------------------------------------------------------------------------


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


def _name(reader: Any) -> Any:
    """The name of a reader before validation, whatever was written."""
    return reader.get("name") if isinstance(reader, dict) else getattr(reader, "name", None)


def check_rotary(head_size: int, fraction: float) -> None:
    """Raise ValueError unless the rotated part of a head is whole pairs."""
    rotated = int(head_size * fraction)
    if rotated % 2:
        raise ValueError(
            f"rotary positions turn pairs: int(head_size x rope_fraction) must be even, got int({head_size} x {fraction}) = {rotated}"
        )


def _divides(name: str, part: int | None, whole_name: str, whole: int) -> None:
    if part is not None and whole % part:
        raise ValueError(f"{name} ({part}) must divide {whole_name} ({whole})")
