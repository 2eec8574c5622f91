"""What a study allows, sorted by what each part can do. Only capabilities, configs and costs are looked at, never names.

Mixers along depth are not on this menu: they are worth proposing only where a space is about repeated stages.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from crossbreed.core.contracts.capabilities import SiteKind
from crossbreed.core.contracts.parts import Parts
from crossbreed.core.contracts.space import Floats, Integers, Range, Setting
from crossbreed.core.errors import ConfigError
from crossbreed.core.genome import Params
from crossbreed.core.ledger import Cost, Phase, Shape

FACTORS = tuple(2.0 ** (i / 2) for i in range(-8, 13))
"""Scales tried on default sizes."""
STORED_ONLY = 0.25
"""A param that adds to the active parameters less than this share of what it stores is one that stores."""
SHORT, LONG = 64, 4096
"""Context lengths between which the read cost of a mixer that looks back at every token grows."""


@dataclass(frozen=True)
class Menu:
    """Names by use.

    growing / constant: single sequence mixers whose decoding read grows with the context, or does not.
    multi: sequence mixers that hold several readers; only listed if a mode router and a pair of readers are allowed.
    pairs: readers for them, the reader that decodes cheapest first; the pair that trains cheapest first.
    dense / sparse: channel mixers that use all their weights for every token, or store more.
    gates / modes / halts: routers that may stand there. depth: depth policies. over_depth: mixers of the depth axis.
    """

    growing: tuple[str, ...]
    constant: tuple[str, ...]
    multi: tuple[str, ...]
    pairs: tuple[tuple[str, str], ...]
    dense: tuple[str, ...]
    sparse: tuple[str, ...]
    gates: tuple[str, ...]
    modes: tuple[str, ...]
    halts: tuple[str, ...]
    depth: tuple[str, ...]
    over_depth: tuple[str, ...] = ()

    @property
    def sequence(self) -> tuple[str, ...]:
        return self.constant + self.growing + self.multi

    @property
    def channel(self) -> tuple[str, ...]:
        return self.dense + self.sparse


def menu(setting: Setting, space: str) -> Menu:
    """Sort what a setting allows. Raises ConfigError, naming the space, when no sequence mixer or depth policy is left."""
    parts = setting.parts
    on_axis: dict[str, list[str]] = {"sequence": [], "channel": [], "depth": []}
    for name in setting.mixers:
        able = parts.descriptor("mixer", name).capabilities
        if able.causal:
            on_axis[able.axis].append(name)
    several = [m for m in on_axis["sequence"] if holds_readers(parts, m)]
    single = [m for m in on_axis["sequence"] if m not in several]
    read = {m: [_read(parts, m, setting.d_model, tokens) for tokens in (SHORT, LONG)] for m in single}
    growing = [m for m in single if read[m][1] > read[m][0]]
    readers = [m for m in single if parts.descriptor("mixer", m).capabilities.reader]
    readers.sort(key=lambda m: (read[m][1], m))
    pairs = list(combinations(readers, 2))
    # A constant reader beside a growing one is what a mode is for; other pairs only where there is no such pair.
    pairs = [(a, b) for a, b in pairs if (a in growing) != (b in growing)] or pairs
    work = {m: _training(parts, m, setting.d_model, setting.length) for m in readers}
    pairs.sort(key=lambda pair: work[pair[0]] + work[pair[1]])
    modes = _able(setting, "mode", 2)
    sparse = [c for c in on_axis["channel"] if _stores_more(parts, c, setting.d_model)]
    found = Menu(
        growing=tuple(growing),
        constant=tuple(m for m in single if m not in growing),
        multi=tuple(several) if modes and pairs else (),
        pairs=tuple(pairs),
        dense=tuple(c for c in on_axis["channel"] if c not in sparse),
        sparse=tuple(sparse),
        gates=_able(setting, "gate", 2),
        modes=modes,
        halts=_able(setting, "halt", 2),
        depth=tuple(setting.depth),
        over_depth=tuple(on_axis["depth"]),
    )
    if not found.sequence:
        allowed = ", ".join(setting.mixers) or "none"
        raise ConfigError(
            f"space {space!r} needs a sequence mixer, and for a multi-mixer two readers and a mode router; "
            f"the study allows the mixers: {allowed}."
        )
    if not found.depth:
        raise ConfigError(f"space {space!r} needs a depth policy, such as 'layered'; the study allows none.")
    return found


def holds_readers(parts: Parts, mixer: str) -> bool:
    """Whether a mixer's settings list readers, so that a mode router must choose among them."""
    return "readers" in parts.descriptor("mixer", mixer).config.model_fields


def sizes(
    parts: Parts, mixer: str, params: Params, d_model: int, active: float, stored: float
) -> dict[str, int]:
    """Starting values of a mixer's free params, on their grids, so that it has about the wanted parameters.

    The params that widen the mixer are scaled together until a token uses ``active`` parameters; those that only store
    more (experts) until ``stored`` are kept. A budget then has room to both sides of the start.
    """
    descriptor = parts.descriptor("mixer", mixer)
    config = parts.config("mixer", mixer, params)
    start = {p: getattr(config, p) for p in descriptor.free if isinstance(getattr(config, p), int)}
    values = {p: sorted(options(descriptor.free[p])) for p in start}

    def scaled(names: list[str], factor: float) -> dict[str, int]:
        wanted = {p: start[p] * (factor if p in names else 1.0) for p in start}
        return {p: _nearest(values[p], wanted[p]) for p in start}

    def count(point: dict[str, int]) -> Cost | None:
        try:
            return _cost(parts, mixer, d_model, SHORT, {**params, **point})
        except ConfigError:
            return None

    def closest(names: list[str], wanted: float, field: str) -> dict[str, int]:
        points = [scaled(names, factor) for factor in FACTORS] if names else []
        found = [(point, count(point)) for point in points]
        legal = [(abs(math.log(getattr(c, field) / wanted)), i) for i, (_, c) in enumerate(found) if c]
        return found[min(legal)[1]][0] if legal else start

    widening: list[str] = []
    storing: list[str] = []
    here = count(scaled([], 1.0))
    for param in start:
        there = count({**scaled([], 1.0), **scaled([param], 2.0)})
        if here is None or there is None or there.parameters == here.parameters:
            continue
        used = (there.active_parameters - here.active_parameters) / (there.parameters - here.parameters)
        (storing if used < STORED_ONLY else widening).append(param)
    start = closest(widening, active, "active_parameters")
    return closest(storing, stored, "parameters")


def options(legal: Range) -> list[Any]:
    """The values of a finite range. Raises ConfigError for real numbers."""
    if isinstance(legal, Floats):
        raise ConfigError(f"a free dimension needs a finite range, got {legal}.")
    return list(legal.values()) if isinstance(legal, Integers) else list(legal.values)


def reaches(values: Iterable[int | None], length: int) -> list[int | None]:
    """Windows that differ at a length: shorter than it, or none at all."""
    return [v for v in values if v is None or v < length]


def segments(values: Iterable[int], length: int, feedback: bool) -> list[int]:
    """Segment lengths that leave at least two segments; under feedback at most eight, each being one forward pass."""
    least = length / 8 if feedback else 1
    return [v for v in values if least <= v <= max(length // 2, 1)]


def usual(parts: Parts, kind: Any, name: str, ranges: Mapping[str, Range]) -> dict[str, Any]:
    """A plugin's own defaults for the params a search may draw, as far as they lie in their ranges."""
    found = {}
    fields = parts.descriptor(kind, name).config.model_fields
    for param, legal in ranges.items():
        default = fields[param].default if param in fields else None
        if isinstance(legal, Floats):
            inside = isinstance(default, int | float) and legal.low <= default <= legal.high
        else:
            inside = default in options(legal)
        if inside:
            found[param] = default
    return found


def _nearest(ascending: list[int], wanted: float) -> int:
    at = bisect_left(ascending, wanted)
    return min(ascending[max(at - 1, 0) : at + 1], key=lambda v: abs(v - wanted))


def _able(setting: Setting, kind: SiteKind, choices: int) -> tuple[str, ...]:
    found = []
    for name in setting.routers:
        able = setting.parts.descriptor("router", name).capabilities
        enough = able.max_choices is None or able.max_choices >= choices
        if kind in able.sites and able.searchable and enough:
            found.append(name)
    return tuple(found)


def _cost(
    parts: Parts,
    mixer: str,
    d_model: int,
    tokens: int,
    params: Params | None = None,
    phase: Phase = "decode",
) -> Cost:
    config = parts.config("mixer", mixer, params or {})
    shape = Shape(tokens=tokens, phase=phase)
    cost: Cost = parts.factory("mixer", mixer).cost(config, d_model, shape, 1, parts)
    return cost


def _read(parts: Parts, mixer: str, d_model: int, tokens: int) -> float:
    return _cost(parts, mixer, d_model, tokens).reads[0].forward


def _training(parts: Parts, mixer: str, d_model: int, tokens: int) -> float:
    cost = _cost(parts, mixer, d_model, tokens, phase="train")
    return cost.write.training + sum(read.training for read in cost.reads)


def _stores_more(parts: Parts, mixer: str, d_model: int) -> bool:
    cost = _cost(parts, mixer, d_model, SHORT)
    return cost.active_parameters < cost.parameters
