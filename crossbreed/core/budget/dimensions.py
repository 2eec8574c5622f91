"""Free dimensions: the integers of an architecture that a budget may move, with their legal grids."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from crossbreed.core.contracts.parts import Parts
from crossbreed.core.contracts.space import Choices, Floats, Integers, Range
from crossbreed.core.errors import ConfigError, UnknownName
from crossbreed.core.genome import Architecture, Block, Params, canonical

Bounds = Mapping[str, tuple[int, int]]


@dataclass(frozen=True)
class Dimension:
    """One integer shared by all sublayers of the same mixer with equal params.

    ``grid``: legal values within the bounds, ascending. ``start``: the value in the proposed architecture.
    ``places``: (block, sublayer) in the layout's list of distinct blocks.
    """

    name: str
    param: str
    start: int
    grid: tuple[int, ...]
    places: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Layout:
    """An architecture taken apart into distinct blocks, so that a point of the grid is put in place once per block."""

    architecture: Architecture
    blocks: tuple[Block, ...]
    stages: tuple[tuple[int, ...], ...]
    dimensions: tuple[Dimension, ...]

    def start(self) -> tuple[int, ...]:
        return tuple(d.start for d in self.dimensions)

    def at(self, point: tuple[int, ...]) -> Architecture:
        """The architecture with every dimension set."""
        changes: dict[int, dict[int, Params]] = {}
        for dimension, value in zip(self.dimensions, point, strict=True):
            for block, sub in dimension.places:
                changes.setdefault(block, {}).setdefault(sub, {})[dimension.param] = value
        blocks = list(self.blocks)
        for b, of_sub in changes.items():
            subs = list(blocks[b].sublayers)
            for i, params in of_sub.items():
                subs[i] = subs[i].model_copy(update={"params": {**subs[i].params, **params}})
            blocks[b] = blocks[b].model_copy(update={"sublayers": tuple(subs)})
        stages = tuple(
            stage.model_copy(update={"blocks": tuple(blocks[b] for b in indices)})
            for stage, indices in zip(self.architecture.stages, self.stages, strict=True)
        )
        return self.architecture.model_copy(update={"stages": stages})


def fill(architecture: Architecture, parts: Parts) -> Architecture:
    """The canonical form: every plugin's defaults filled in. Raises ConfigError for unknown names or settings."""

    def resolve(kind: Any, name: str, params: Params) -> Params:
        return dict(parts.config(kind, name, params).model_dump(mode="json"))

    return canonical(architecture, resolve)


def layout(architecture: Architecture, parts: Parts, bounds: Bounds | None = None) -> Layout:
    """Find the free dimensions of an architecture whose defaults are filled in.

    A dimension's bounds are half to twice its value, unless ``bounds`` gives them by dimension (``"swiglu.hidden"``).
    Raises UnknownName for bounds of no dimension and ConfigError for bounds that leave no legal value.
    """
    blocks: list[Block] = []
    stages = []
    for stage in architecture.stages:
        indices = []
        for block in stage.blocks:
            if block not in blocks:
                blocks.append(block)
            indices.append(blocks.index(block))
        stages.append(tuple(indices))
    groups: list[tuple[str, Params, list[tuple[int, int]]]] = []
    for b, block in enumerate(blocks):
        for i, sub in enumerate(block.sublayers):
            for mixer, params, places in groups:
                if mixer == sub.mixer and params == sub.params:
                    places.append((b, i))
                    break
            else:
                groups.append((sub.mixer, sub.params, [(b, i)]))
    dimensions = []
    names = [mixer for mixer, _, _ in groups]
    used: set[str] = set()
    for g, (mixer, params, places) in enumerate(groups):
        # Several groups of one mixer are told apart by number, in order of appearance.
        suffix = f"[{names[:g].count(mixer)}]" if names.count(mixer) > 1 else ""
        for param, legal in parts.descriptor("mixer", mixer).free.items():
            start = params.get(param)
            if not isinstance(start, int) or isinstance(start, bool):
                continue
            name, shared = f"{mixer}{suffix}.{param}", f"{mixer}.{param}"
            declared = None if bounds is None else bounds.get(name, bounds.get(shared))
            used |= {name, shared}
            grid = _grid(name, start, legal, declared)
            if len(grid) > 1 or grid[0] != start:
                nearest = min(grid, key=lambda value: (abs(value - start), value))
                dimensions.append(Dimension(name, param, nearest, grid, tuple(places)))
    for name in bounds or {}:
        if name not in used:
            raise UnknownName("free dimension", name, used)
    return Layout(architecture, tuple(blocks), tuple(stages), tuple(dimensions))


def _grid(name: str, start: int, legal: Range, declared: tuple[int, int] | None) -> tuple[int, ...]:
    if isinstance(legal, Floats):
        raise ConfigError(f"free dimension {name!r} must have a grid of integers, got {legal}.")
    low, high = declared if declared is not None else (math.ceil(start / 2), 2 * start)
    values = legal.values() if isinstance(legal, Integers) else _integers(name, legal)
    # The proposed value is legal too, wherever the grid lies.
    grid = sorted({int(v) for v in values if low <= v <= high} | ({start} if low <= start <= high else set()))
    if not grid:
        raise ConfigError(f"free dimension {name!r} has no legal value in its bounds {low}..{high}.")
    return tuple(grid)


def _integers(name: str, legal: Choices) -> tuple[int, ...]:
    if not all(isinstance(v, int) for v in legal.values):
        raise ConfigError(f"free dimension {name!r} must have a grid of integers, got {legal.values}.")
    return legal.values
