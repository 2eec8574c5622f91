"""Settings of the multi-mixer (Oryx)."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from crossbreed.core.genome import NORM_EPS, Eps
from crossbreed.plugins.mixers.configs.common import (
    Activation,
    Config,
    Norm,
    NormPlace,
    Rope,
    ShortConv,
    check_rotary,
    eps_of_a_norm,
)
from crossbreed.plugins.mixers.configs.readers import DeltaSettings, SoftmaxSettings, SsdSettings
from crossbreed.plugins.mixers.configs.routing import ProjectionSettings

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
    "tm": {
        "kv_activation": "none",
        "q_activation": "none",
        "rope": "all",
        "norm": "full",
        "norm_place": "after_gate",
    },
    "tg": {
        "kv_activation": "silu",
        "q_activation": "silu",
        "rope": "attention",
        "norm": "head",
        "norm_place": "before_gate",
    },
}
"""What Oryx uses with Mamba-2 (tm) and with Gated DeltaNet (tg): paper, appendix B."""


class MultiMixerConfig(ProjectionSettings):
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
        description="Whose defaults the next five settings take: tg with a gated_deltanet among the readers, else tm.",
    )
    kv_activation: Activation = Field(
        default="none", description="On keys and values after the convolution; by style."
    )
    q_activation: Activation | tuple[Activation, ...] = Field(
        default="none", description="On every reader's queries, or a list with one for each reader; by style."
    )
    rope: Rope = Field(
        default="all",
        description="Who sees rotary positions: all readers, attention alone, or none; by style.",
    )
    norm: Norm = Field(
        default="full",
        description="RMS norm of the output, over everything or each head with one gain for all; by style. Per head after "
        "the gate, Mamba-2 loses 1.6 perplexity (table 4a).",
    )
    norm_place: NormPlace | None = Field(
        default="after_gate",
        description="Whether the norm sees the gated output; by style. None without a norm or a gate.",
    )
    norm_eps: Eps = Field(
        default=NORM_EPS, description="Added to the mean square by the norm; as in the residual stream."
    )
    gate: bool = Field(default=True, description="Multiply the output by SiLU of a projection, as in Oryx.")
    rope_theta: float = Field(default=10_000.0, gt=0, description="Base of the rotary angles.")
    rope_fraction: float = Field(default=1.0, gt=0, le=1, description="Share of each head that is rotated.")
    tied_queries: bool = Field(
        default=False,
        description="One query matrix for all readers; off as in Oryx, whose own queries are worth 1% of perplexity "
        "(table 4a).",
    )
    tied_kv: bool = Field(
        default=True,
        description="One stream of keys and values for all readers, which is Oryx; off is a control that the paper does "
        "not have.",
    )
    short_conv: ShortConv | None = Field(
        default=ShortConv(), description="Width 4 on keys and values; Oryx never convolves queries."
    )

    _eps = field_validator("norm_eps")(eps_of_a_norm)

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
        filled = {**FAMILY_DEFAULTS.get(style, {}), **data, "readers": readers, "style": style}
        if filled.get("norm") == "none" or not filled.get("gate", True):
            filled["norm_place"] = None
        elif filled.get("norm_place") is None:
            filled["norm_place"] = FAMILY_DEFAULTS.get(style, {}).get("norm_place", "after_gate")
        if isinstance(readers, tuple) and len(readers) == 1:
            # With one reader there is nobody to share with.
            filled |= {"tied_queries": False, "tied_kv": True}
        return filled

    @field_validator("q_activation")
    @classmethod
    def _one_form(cls, value: Any, info: Any) -> Any:
        if not isinstance(value, tuple):
            return value
        readers = info.data.get("readers", value)
        if len(value) != len(readers):
            raise ValueError(f"lists {len(value)} activations for {len(readers)} readers; one each is needed")
        return value[0] if len(set(value)) == 1 else value

    @model_validator(mode="after")
    def _legal(self) -> MultiMixerConfig:
        if self.rope != "none":
            check_rotary(self.head_size, self.rope_fraction)
        return self


def _name(reader: Any) -> Any:
    """The name of a reader before validation, whatever was written."""
    return reader.get("name") if isinstance(reader, dict) else getattr(reader, "name", None)
