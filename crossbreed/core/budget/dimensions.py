"""Free dimensions: the integers of an architecture that a budget may move, with their legal grids."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from crossbreed.core.budget.moves import Draft, Layers, Move, Repeats, Setting, Width, setting
from crossbreed.core.budget.spans import Span
from crossbreed.core.contracts.canonical import lists_layers, pattern
from crossbreed.core.contracts.mixer import MixerDescriptor
from crossbreed.core.contracts.parts import Parts
from crossbreed.core.contracts.space import Choices, Floats, Integers, Range
from crossbreed.core.errors import ConfigError, PluginError, UnknownName
from crossbreed.core.genome import Architecture, Params, parse

Free = Mapping[str, Any]
"""Dimensions by name with what ``Span`` reads, or None: within half to twice the proposed value."""

WIDTH, DEPTH, LAYERS = "d_model", "depth", "layers"
WHOLE_MODEL = {
    WIDTH: "width of the residual stream",
    DEPTH: "repeats of a stage's depth policy",
    LAYERS: "blocks of a stage, in whole patterns",
}
"""Dimensions that every architecture has; they move on request only."""
WIDTH_STEP = 8
"""Widths a matcher tries lie on multiples of this, which every device's matrix units like."""
MOST = 1 << 20
_NUMBER = re.compile(r"\[\d+\]")


@dataclass(frozen=True)
class Dimension:
    """One integer that may move. ``grid``: legal values within its span, ascending. ``start``: the proposed value, or the
    legal one nearest to it."""

    name: str
    start: int
    grid: tuple[int, ...]
    move: Move


@dataclass(frozen=True)
class Layout:
    """An architecture with its free dimensions; a point is one value for each of them."""

    draft: Draft
    dimensions: tuple[Dimension, ...]

    @property
    def architecture(self) -> Architecture:
        return self.draft.architecture

    def start(self) -> tuple[int, ...]:
        return tuple(d.start for d in self.dimensions)

    def at(self, point: tuple[int, ...]) -> Architecture:
        """The architecture with every dimension set."""
        draft = self.draft.copy()
        for dimension, value in zip(self.dimensions, point, strict=True):
            dimension.move.apply(draft, value)
        return draft.assembled()


@dataclass(frozen=True)
class _Candidate:
    """An integer of an architecture, before anybody said whether it is free. ``shared``: its name without a number."""

    name: str
    start: int
    legal: Range
    move: Move
    by_default: bool

    @property
    def shared(self) -> str:
        return unnumbered(self.name)


def layout(
    architecture: Architecture, parts: Parts, free: Free | None = None, asked: Collection[str] | None = None
) -> Layout:
    """Find the free dimensions of an architecture in canonical form.

    Free are the params that mixers declare free, and every dimension that ``free`` names: a mixer's param such as
    ``"swiglu.hidden"`` (or ``"swiglu[1].hidden"`` for one of several groups), ``"d_model"``, ``"depth"`` or ``"layers"``
    (``"depth[1]"`` in one of several stages). Spans are half to twice the proposed value unless ``free`` gives them.

    Raises UnknownName for a name of no dimension, or for one of ``asked`` that this architecture lacks, and ConfigError
    for a span that leaves no legal value.
    """
    draft = Draft.of(architecture)
    candidates = list(_candidates(draft, parts))
    spans = {name: _span(name, span) for name, span in (free or {}).items()}
    here = {c.name for c in candidates} | {c.shared for c in candidates}
    missing = [name for name in spans if name not in here]
    if missing:
        check_free(missing, parts)
    for name in missing:
        if name in (asked or ()):
            raise UnknownName("free dimension of this architecture", name, here)
    dimensions: list[Dimension] = []
    for found in candidates:
        named = next((n for n in (found.name, found.shared) if n in spans), None)
        if named is None and not found.by_default:
            continue
        # Where both names mean one number, layers says it.
        if any(_both_repeat(d.move, found.move) for d in dimensions):
            continue
        grid = _grid(found, None if named is None else spans[named])
        if len(grid) > 1 or grid[0] != found.start:
            nearest = min(grid, key=lambda value: (abs(value - found.start), value))
            dimensions.append(Dimension(found.name, nearest, grid, found.move))
    return Layout(draft, tuple(dimensions))


def movable(parts: Parts) -> set[str]:
    """Every dimension that could be freed in some architecture of the registered parts, without numbers."""
    names = set(WHOLE_MODEL)
    for mixer in parts.names("mixer"):
        try:
            descriptor = parts.descriptor("mixer", mixer)
        except PluginError:
            continue  # a broken plugin offers nothing; who uses it is told why
        names |= {f"{mixer}.{param}" for param in (*descriptor.free, *descriptor.on_request)}
    return names


def unnumbered(name: str) -> str:
    """``"swiglu[1].hidden"`` -> ``"swiglu.hidden"``, the name that stands for all of them."""
    return _NUMBER.sub("", name)


def check_free(names: Iterable[str], parts: Parts) -> None:
    """Raise UnknownName for a name of no dimension that any architecture could have."""
    known = movable(parts)
    for name in names:
        if unnumbered(name) not in known:
            raise UnknownName("free dimension", name, known)


def _candidates(draft: Draft, parts: Parts) -> Iterator[_Candidate]:
    """Mixers' params in order of appearance, then the whole model's."""
    # Sublayers of one mixer with equal params share their dimensions, wherever they stand.
    groups: list[tuple[str, Params, list[tuple[int, int]]]] = []
    for b, block in enumerate(draft.blocks):
        for i, sub in enumerate(block.sublayers):
            for mixer, params, places in groups:
                if mixer == sub.mixer and params == sub.params:
                    places.append((b, i))
                    break
            else:
                groups.append((sub.mixer, sub.params, [(b, i)]))
    names = [mixer for mixer, _, _ in groups]
    for g, (mixer, params, places) in enumerate(groups):
        descriptor: MixerDescriptor = parts.descriptor("mixer", mixer)
        number = f"[{names[:g].count(mixer)}]" if names.count(mixer) > 1 else ""
        for param, legal in {**descriptor.on_request, **descriptor.free}.items():
            start = setting(params, param)
            if start is None and param in descriptor.equal:
                start = setting(params, descriptor.equal[param])
            # What is switched off (0 or nothing) has no size to move.
            if isinstance(start, int) and not isinstance(start, bool) and start >= 1:
                move = Setting(param, tuple(places))
                yield _Candidate(f"{mixer}{number}.{param}", start, legal, move, param in descriptor.free)
    yield _Candidate(WIDTH, draft.d_model, Integers(WIDTH_STEP, MOST, WIDTH_STEP), Width(), False)
    for s, stage in enumerate(draft.architecture.stages):
        number = f"[{s}]" if len(draft.stages) > 1 else ""
        order, repeats = draft.stages[s], draft.repeats[s]
        unit = order[: pattern(order)]
        legal = Integers(len(unit), MOST, len(unit))
        # A list of layers is one pattern, repeated: its layers and its repeats are one number.
        if lists_layers(stage, parts):
            yield _Candidate(f"{LAYERS}{number}", len(order) * repeats, legal, Repeats(s, len(order)), False)
        else:
            yield _Candidate(f"{LAYERS}{number}", len(order), legal, Layers(s, unit), False)
        # One repeat leaves a halt nothing to decide.
        least = 1 if stage.halt is None else 2
        yield _Candidate(f"{DEPTH}{number}", repeats, Integers(least, MOST), Repeats(s), False)


def _both_repeat(a: Move, b: Move) -> bool:
    return isinstance(a, Repeats) and isinstance(b, Repeats) and a.stage == b.stage


def _span(name: str, span: Any) -> Span | None:
    return None if span is None else parse(Span, span, f"free dimension {name!r}")


def _grid(found: _Candidate, span: Span | None) -> tuple[int, ...]:
    span = span or Span(low=math.ceil(found.start / 2), high=2 * found.start)
    legal = _integers(found.name, found.legal, span)
    # The proposed value is legal too, wherever the grid lies.
    inside = {found.start} if span.low <= found.start <= span.high else set()
    grid = sorted({v for v in legal if span.holds(v)} | inside)
    if not grid:
        raise ConfigError(
            f"free dimension {found.name!r} has no legal value in its bounds {_written(span)}; "
            f"legal are {_written(found.legal)}."
        )
    return tuple(grid)


def _written(values: Span | Range) -> str:
    if isinstance(values, Choices):
        return ", ".join(map(str, values.values))
    step = 1 if isinstance(values, Floats) else values.step
    return f"{values.low}..{values.high}" + ("" if step == 1 else f":{step}")


def _integers(name: str, legal: Range, span: Span) -> tuple[int, ...] | range:
    if isinstance(legal, Integers):
        skipped = max(0, -(-(span.low - legal.low) // legal.step))
        return range(legal.low + skipped * legal.step, min(legal.high, span.high) + 1, legal.step)
    if isinstance(legal, Floats) or not all(isinstance(v, int) for v in legal.values):
        shown = legal.values if isinstance(legal, Choices) else legal
        raise ConfigError(f"free dimension {name!r} must have a grid of integers, got {shown}.")
    return legal.values
