"""What a sequence or depth mixer is made of, derived from its settings. Imports no torch.

Every one of them is the same machine: projections, an optional short convolution, readers over one stream of keys and
values, an optional gate and norm, one output matrix. A single mixer is a multi-mixer with one reader.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import singledispatch
from typing import Any

from crossbreed.core.contracts.mixer import HeadShape
from crossbreed.core.contracts.parts import Parts
from crossbreed.core.errors import ConfigError, MissingCapability
from crossbreed.core.genome import parse
from crossbreed.plugins.mixers.configs import (
    Activation,
    AttentionConfig,
    Config,
    DepthAttentionConfig,
    GatedDeltaNetConfig,
    Mamba2Config,
    MultiMixerConfig,
    Norm,
    ProjectionExperts,
    ShortConv,
)

SOFTMAX = "crossbreed.plugins.mixers.softmax_reader:SoftmaxReader"
SSD = "crossbreed.plugins.mixers.ssd_reader:SsdReader"
DELTA = "crossbreed.plugins.mixers.delta_reader:DeltaReader"
DEPTH = "crossbreed.plugins.mixers.depth_reader:DepthReader"


@dataclass(frozen=True)
class ReaderPart:
    """One reader: its name, where its class is, its settings, whether it sees rotated queries and keys."""

    name: str
    factory: str | Callable[..., Any]
    config: Any
    rotated: bool = False

    def load(self) -> Any:
        """The reader's class, imported now if it was not yet."""
        if isinstance(self.factory, str):
            module, _, attribute = self.factory.partition(":")
            return getattr(importlib.import_module(module), attribute)
        return self.factory if isinstance(self.factory, type) else self.factory()


@dataclass(frozen=True)
class Plan:
    """The parts of one sequence or depth mixer.

    conv, kv_activation, q_activation: what follows the projections; queries are convolved only if ``conv.on`` is qkv.
    rotary: (theta, fraction) of the positions that readers marked ``rotated`` see, or None where none is.
    norm: none, full (RMS over all heads, after gating) or head (RMS per head, before gating).
    experts: routing of the projections, or None where they are plain matrices.
    """

    heads: HeadShape
    readers: tuple[ReaderPart, ...]
    conv: ShortConv | None
    kv_activation: Activation
    q_activation: Activation
    gate: bool
    norm: Norm
    rotary: tuple[float, float] | None = None
    experts: ProjectionExperts | None = None

    @property
    def key_width(self) -> int:
        return self.heads.key_heads * self.heads.key_size

    @property
    def value_width(self) -> int:
        return self.heads.value_heads * self.heads.value_size

    @property
    def query_width(self) -> int:
        """Of one reader."""
        return self.heads.query_heads * self.heads.key_size

    @property
    def output_width(self) -> int:
        return self.heads.heads * self.heads.value_size

    @property
    def queries_convolved(self) -> bool:
        return self.conv is not None and self.conv.on == "qkv"

    @property
    def written_width(self) -> int:
        """Projected channels that every token pays: keys, values, and queries where they are convolved."""
        queries = self.query_width * len(self.readers) if self.queries_convolved else 0
        return self.key_width + self.value_width + queries

    @property
    def channels(self) -> tuple[tuple[str, int], ...]:
        """Names and widths of what a token is projected to, in order."""
        queries = [(f"query{i}", self.query_width) for i in range(len(self.readers))]
        gate = [("gate", self.output_width)] if self.gate else []
        return ("key", self.key_width), ("value", self.value_width), *queries, *gate

    @property
    def projected_width(self) -> int:
        """All projected channels."""
        return sum(width for _, width in self.channels)

    @property
    def norm_width(self) -> int:
        return {"none": 0, "full": self.output_width, "head": self.heads.value_size}[self.norm]


@singledispatch
def plan(config: Config, parts: Parts | None = None) -> Plan:
    """The plan of a mixer's config; ``parts`` is needed where readers are given by name."""
    raise ConfigError(f"{type(config).__name__} is not the config of a sequence or depth mixer")


@plan.register
def _(config: AttentionConfig, parts: Parts | None = None) -> Plan:
    groups = config.kv_heads or config.heads
    size = config.head_size
    return _single(
        config,
        HeadShape(config.heads, config.heads, groups, groups, size, size),
        ReaderPart("attention", SOFTMAX, config, rotated=config.rope_fraction > 0),
        (config.rope_theta, config.rope_fraction) if config.rope_fraction > 0 else None,
    )


@plan.register
def _(config: Mamba2Config, parts: Parts | None = None) -> Plan:
    heads, groups = config.heads, config.groups
    return _single(
        config,
        HeadShape(heads, groups, groups, heads, config.state_size, config.head_size),
        ReaderPart("mamba2", SSD, config),
    )


@plan.register
def _(config: GatedDeltaNetConfig, parts: Parts | None = None) -> Plan:
    heads, keys = config.heads, config.key_heads or config.heads
    return _single(
        config,
        HeadShape(heads, keys, keys, heads, config.key_size, config.value_size),
        ReaderPart("gated_deltanet", DELTA, config),
    )


@plan.register
def _(config: MultiMixerConfig, parts: Parts | None = None) -> Plan:
    if parts is None:
        raise ConfigError("multi_mixer finds its readers by name and needs the registry, but parts is None")
    heads = config.heads
    return Plan(
        heads=HeadShape(heads, heads, heads, heads, config.head_size, config.head_size),
        readers=tuple(_reader(choice.name, choice.params, config, parts) for choice in config.readers),
        conv=config.short_conv,
        kv_activation=config.kv_activation,
        q_activation=config.q_activation,
        gate=config.gate,
        norm=config.norm,
        rotary=None if config.rope == "none" else (config.rope_theta, config.rope_fraction),
        experts=config.projection_experts,
    )


@plan.register
def _(config: DepthAttentionConfig, parts: Parts | None = None) -> Plan:
    heads, groups, size = config.heads, config.kv_heads or config.heads, config.head_size
    return Plan(
        heads=HeadShape(heads, heads, groups, groups, size, size),
        readers=(ReaderPart("depth_attention", DEPTH, config),),
        conv=None,
        kv_activation="none",
        q_activation="none",
        gate=False,
        norm="none",
        experts=config.projection_experts,
    )


def _single(
    config: AttentionConfig | Mamba2Config | GatedDeltaNetConfig,
    heads: HeadShape,
    reader: ReaderPart,
    rotary: tuple[float, float] | None = None,
) -> Plan:
    conv = config.short_conv
    after: Activation = "none" if conv is None else conv.activation
    return Plan(
        heads=heads,
        readers=(reader,),
        conv=conv,
        kv_activation=after,
        q_activation=after if conv is not None and conv.on == "qkv" else "none",
        gate=config.gate,
        norm=config.norm,
        rotary=rotary,
        experts=config.projection_experts,
    )


def _reader(name: str, params: dict[str, Any], config: MultiMixerConfig, parts: Parts) -> ReaderPart:
    descriptor = parts.descriptor("mixer", name)
    if descriptor.reader is None or descriptor.reader_config is None:
        able = [n for n in parts.names("mixer") if parts.descriptor("mixer", n).reader is not None]
        raise MissingCapability(
            f"mixer {name!r} offers no reader, so a multi_mixer cannot hold it; these do: {', '.join(able)}"
        )
    rotated = config.rope == "all" or (config.rope == "attention" and name == "attention")
    settings = parse(descriptor.reader_config, params, f"reader {name!r}")
    return ReaderPart(name, descriptor.reader, settings, rotated)
