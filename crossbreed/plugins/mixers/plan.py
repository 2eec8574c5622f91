"""What a sequence or depth mixer is made of, derived from its settings. Imports no torch.

Every one of them is the same machine: projections, an optional short convolution, readers over one stream of keys and
values, an optional gate and norm, one output matrix. A single mixer is a multi-mixer with one reader.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import singledispatch
from typing import Any, Literal

from crossbreed.core.contracts.mixer import HeadShape
from crossbreed.core.contracts.parts import Parts
from crossbreed.core.errors import ConfigError, MissingCapability
from crossbreed.core.genome import NORM_EPS, parse
from crossbreed.plugins.mixers import backends
from crossbreed.plugins.mixers.configs import (
    Activation,
    AttentionConfig,
    Config,
    DepthAttentionConfig,
    GatedDeltaNetConfig,
    Mamba2Config,
    MultiMixerConfig,
    Norm,
    NormPlace,
    ProjectionExperts,
    ShortConv,
)

SOFTMAX = "crossbreed.plugins.mixers.softmax_reader:SoftmaxReader"
SSD = "crossbreed.plugins.mixers.ssd_reader:SsdReader"
DELTA = "crossbreed.plugins.mixers.delta_reader:DeltaReader"
DEPTH = "crossbreed.plugins.mixers.depth_reader:DepthReader"


@dataclass(frozen=True)
class ReaderPart:
    """One reader: its name, where its class is, its settings, whether it sees rotated queries and keys.

    kv, queries: which of the plan's streams of keys and values, and of queries, it reads.
    fused: its implementations beside the reference.
    """

    name: str
    factory: str | Callable[..., Any]
    config: Any
    rotated: bool = False
    q_activation: Activation = "none"
    kv: int = 0
    queries: int = 0
    fused: tuple[str, ...] = ()

    def backend_for(self, requested: str) -> str:
        """What it is built with: beside a reader that has the forced backend, one without it computes as it would of itself."""
        return requested if requested in (backends.REFERENCE, *self.fused) else "auto"

    def load(self) -> Any:
        """The reader's class, imported now if it was not yet."""
        if isinstance(self.factory, str):
            module, _, attribute = self.factory.partition(":")
            return getattr(importlib.import_module(module), attribute)
        return self.factory if isinstance(self.factory, type) else self.factory()


@dataclass(frozen=True)
class Plan:
    """The parts of one sequence or depth mixer.

    conv, kv_activation: what follows the projections; queries are convolved only if ``conv.on`` is qkv.
    rotary: (theta, fraction) of the positions that readers marked ``rotated`` see, or None where none is.
    norm: none, full (RMS over all heads) or head (RMS per head); ``norm_place`` counts where there is a gate, ``norm_eps``
        is added to the mean square.
    experts: routing of the projections, or None where they are plain matrices.
    kv_from: what keys and values are projected from.
    """

    heads: HeadShape
    readers: tuple[ReaderPart, ...]
    conv: ShortConv | None
    kv_activation: Activation
    gate: bool
    norm: Norm
    norm_place: NormPlace
    rotary: tuple[float, float] | None = None
    experts: ProjectionExperts | None = None
    norm_eps: float = NORM_EPS
    kv_from: Literal["stream", "embeddings"] = "stream"

    @property
    def kv_streams(self) -> int:
        """Streams of keys and values: one where all readers share it."""
        return 1 + max(reader.kv for reader in self.readers)

    @property
    def query_streams(self) -> int:
        return 1 + max(reader.queries for reader in self.readers)

    @property
    def key_width(self) -> int:
        """Of one stream, as the next two."""
        return self.heads.key_heads * self.heads.key_size

    @property
    def value_width(self) -> int:
        return self.heads.value_heads * self.heads.value_size

    @property
    def query_width(self) -> int:
        return self.heads.query_heads * self.heads.key_size

    @property
    def output_width(self) -> int:
        return self.heads.heads * self.heads.value_size

    @property
    def queries_convolved(self) -> bool:
        return self.conv is not None and self.conv.on == "qkv"

    @property
    def one_activation(self) -> bool:
        """Whether one activation follows the convolution in all of its channels."""
        own = {part.q_activation for part in self.readers} if self.queries_convolved else set()
        return own <= {self.kv_activation}

    @property
    def written_width(self) -> int:
        """Projected channels that every token pays: keys, values, and queries where they are convolved."""
        queries = self.query_width * self.query_streams if self.queries_convolved else 0
        return self.kv_width + queries

    @property
    def kv_width(self) -> int:
        """All streams of keys and values."""
        return self.kv_streams * (self.key_width + self.value_width)

    @property
    def channels(self) -> tuple[tuple[str, int], ...]:
        """Names and widths of what a token is projected to, in order; the first stream's keys have no number."""
        names = [(f"key{i or ''}", f"value{i or ''}") for i in range(self.kv_streams)]
        kv = [pair for k, v in names for pair in ((k, self.key_width), (v, self.value_width))]
        queries = [(f"query{i}", self.query_width) for i in range(self.query_streams)]
        gate = [("gate", self.output_width)] if self.gate else []
        return *kv, *queries, *gate

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
    single = _single(
        config,
        HeadShape(config.heads, config.heads, groups, groups, size, size),
        ReaderPart("attention", SOFTMAX, config, config.rope_fraction > 0, fused=backends.SOFTMAX),
        (config.rope_theta, config.rope_fraction) if config.rope_fraction > 0 else None,
    )
    return replace(single, kv_from=config.kv_from)


@plan.register
def _(config: Mamba2Config, parts: Parts | None = None) -> Plan:
    heads, groups = config.heads, config.groups
    return _single(
        config,
        HeadShape(heads, groups, groups, heads, config.state_size, config.head_size),
        ReaderPart("mamba2", SSD, config, fused=backends.SSD),
    )


@plan.register
def _(config: GatedDeltaNetConfig, parts: Parts | None = None) -> Plan:
    heads, keys = config.heads, config.key_heads or config.heads
    return _single(
        config,
        HeadShape(heads, keys, keys, heads, config.key_size, config.value_size),
        ReaderPart("gated_deltanet", DELTA, config, fused=backends.DELTA),
    )


@plan.register
def _(config: MultiMixerConfig, parts: Parts | None = None) -> Plan:
    if parts is None:
        raise ConfigError("multi_mixer finds its readers by name and needs the registry, but parts is None")
    heads = config.heads
    return Plan(
        heads=HeadShape(heads, heads, heads, heads, config.head_size, config.head_size),
        readers=tuple(_reader(i, config, parts) for i in range(len(config.readers))),
        conv=config.short_conv,
        kv_activation=config.kv_activation,
        gate=config.gate,
        norm=config.norm,
        norm_place=config.norm_place or "after_gate",
        rotary=None if config.rope == "none" else (config.rope_theta, config.rope_fraction),
        experts=config.projection_experts,
        norm_eps=config.norm_eps,
    )


@plan.register
def _(config: DepthAttentionConfig, parts: Parts | None = None) -> Plan:
    heads, groups, size = config.heads, config.kv_heads or config.heads, config.head_size
    return Plan(
        heads=HeadShape(heads, heads, groups, groups, size, size),
        readers=(ReaderPart("depth_attention", DEPTH, config),),
        conv=None,
        kv_activation="none",
        gate=False,
        norm="none",
        norm_place="after_gate",
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
    if conv is not None and conv.on == "qkv":
        reader = replace(reader, q_activation=after)
    return Plan(
        heads=heads,
        readers=(reader,),
        conv=conv,
        kv_activation=after,
        gate=config.gate,
        norm=config.norm,
        norm_place="before_gate" if config.norm == "head" else "after_gate",
        rotary=rotary,
        experts=config.projection_experts,
        norm_eps=config.norm_eps,
    )


def _reader(index: int, config: MultiMixerConfig, parts: Parts) -> ReaderPart:
    name, params = config.readers[index].name, config.readers[index].params
    descriptor = parts.descriptor("mixer", name)
    if descriptor.reader is None or descriptor.reader_config is None:
        able = [n for n in parts.names("mixer") if parts.descriptor("mixer", n).reader is not None]
        raise MissingCapability(
            f"mixer {name!r} offers no reader, so a multi_mixer cannot hold it; these do: {', '.join(able)}"
        )
    rotated = config.rope == "all" or (config.rope == "attention" and name == "attention")
    settings = parse(descriptor.reader_config, params, f"reader {name!r}")
    activation = config.q_activation
    return ReaderPart(
        name,
        descriptor.reader,
        settings,
        rotated,
        q_activation=activation[index] if isinstance(activation, tuple) else activation,
        kv=0 if config.tied_kv else index,
        queries=0 if config.tied_queries else index,
        fused=tuple(one for one in descriptor.capabilities.backends if one != backends.REFERENCE),
    )
