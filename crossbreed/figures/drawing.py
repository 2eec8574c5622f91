"""A genome as a drawing: stages from top to bottom, each block a row of its sublayers, routers where they stand.

Distances downwards are pixels, so that text always fits its box; widths are shares of the drawing's width.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import groupby
from typing import Any

import plotly.graph_objects as go

from crossbreed.core.genome import Architecture, Block, Router, Stage, Sublayer
from crossbreed.figures.palette import AXES, NEUTRAL, ROUTER, faded
from crossbreed.figures.words import chart_text

ROW, GAP, HEAD, PILL = 46, 8, 26, 24
"""Heights in pixels: a block, the space between two, a stage's title, a line such as the embedding's."""

TITLE, DETAIL = 12, 10
"""Sizes of text in pixels."""

NARROWEST = 520
"""The narrowest drawing in pixels for which text is cut to fit; a character is about half as wide as it is high."""

ARROWS = {"sequential": "→", "parallel": "+", "parallel_mean": "mean"}

AxisOf = Callable[[str], str]


def architecture_figure(architecture: Architecture, axis_of: AxisOf, ink: str | None = None) -> go.Figure:
    """The drawing. ``axis_of`` maps a mixer's name to ``sequence``, ``depth``, ``channel`` or ``unknown``; ``ink`` is the
    colour of the text, None for the theme's."""
    pen = _Pen()
    tied = "tied" if architecture.tie_embeddings else "untied"
    pen.line(f"embedding: {architecture.vocab} tokens, width {architecture.d_model}, {tied}", NEUTRAL)
    if architecture.mode_router is not None:
        pen.line(f"mode router: {_router(architecture.mode_router)} (chooses the reader)", ROUTER)
    for index, stage in enumerate(architecture.stages):
        _stage(pen, index, stage, axis_of)
    pen.line("final norm, output head" if architecture.final_norm else "output head", NEUTRAL)
    return pen.figure(ink)


class _Pen:
    """Draws downwards from the top."""

    def __init__(self) -> None:
        self.y = 0.0
        self.shapes: list[dict[str, Any]] = []
        self.notes: list[dict[str, Any]] = []
        self.hints: list[tuple[float, float, str]] = []

    def box(self, x0: float, x1: float, height: float, colour: str, *, strength: float = 0.2) -> None:
        """A box from here downwards."""
        self.shapes.append(
            {
                "type": "rect",
                "x0": x0,
                "x1": x1,
                "y0": self.y,
                "y1": self.y + height,
                "fillcolor": faded(colour, strength),
                "line": {"color": faded(colour, 0.9), "width": 1},
                "layer": "below",
            }
        )

    def text(self, x: float, y: float, text: str, *, size: int = TITLE, anchor: str = "center") -> None:
        note = {"x": x, "y": self.y + y, "text": text, "font": {"size": size}, "xanchor": anchor}
        self.notes.append(note | {"showarrow": False, "yanchor": "middle"})

    def line(self, text: str, colour: str) -> None:
        """A box over the whole width with one line of text."""
        self.box(0, 1, PILL, colour, strength=0.16)
        self.text(0.5, PILL / 2, chart_text(_cut(text, 1.0)))
        self.hints.append((0.5, self.y + PILL / 2, chart_text(text)))
        self.y += PILL + GAP

    def figure(self, ink: str | None) -> go.Figure:
        figure = go.Figure(
            go.Scatter(
                x=[x for x, _, _ in self.hints],
                y=[y for _, y, _ in self.hints],
                customdata=[[text] for _, _, text in self.hints],
                mode="markers",
                marker={"size": 30, "opacity": 0},
                hovertemplate="%{customdata[0]}<extra></extra>",
                showlegend=False,
            )
        )
        hidden = {"visible": False, "fixedrange": True}
        figure.update_layout(
            height=int(self.y) + 8,
            margin={"l": 0, "r": 0, "t": 4, "b": 4},
            shapes=self.shapes,
            annotations=[note | {"font": {**note["font"], "color": ink}} for note in self.notes],
            xaxis={"range": [-0.005, 1.005], **hidden},
            yaxis={"range": [self.y + 4, -4], **hidden},
            hovermode="closest",
            dragmode=False,
        )
        return figure


def _stage(pen: _Pen, index: int, stage: Stage, axis_of: AxisOf) -> None:
    groups = [(block, len(list(same))) for block, same in groupby(stage.blocks)]
    router = PILL + GAP if stage.halt is not None else 0
    pen.box(0, 1, HEAD + len(groups) * (ROW + GAP) + router, NEUTRAL, strength=0.06)
    title = f"stage {index}: {stage.depth.name}, {stage.depth.repeats} deep"
    title += ", normalised on entry" if stage.entry_norm else ""
    pen.text(0.015, HEAD / 2, chart_text(_cut(title, 0.9)), anchor="left")
    pen.y += HEAD
    for block, count in groups:
        _block(pen, block, count, axis_of)
    if stage.halt is not None:
        pen.box(0.015, 0.985, PILL, ROUTER)
        pen.text(0.5, PILL / 2, chart_text(_cut(f"halt: {_router(stage.halt)}", 0.95)))
        pen.y += PILL + GAP
    pen.y += GAP


def _block(pen: _Pen, block: Block, count: int, axis_of: AxisOf) -> None:
    left, right = 0.015, 0.985
    if count > 1:
        pen.text(0.96, ROW / 2, f"× {count}", size=14)
        right = 0.93
    if block.gate is not None:
        width = 0.2
        hints = [block.gate.name, *_settings(block.gate.params)]
        _labelled(pen, left, left + width, "gate", block.gate.name, ROUTER, hints)
        left += width + 0.012
    gap = 0.035
    width = (right - left - gap * (len(block.sublayers) - 1)) / len(block.sublayers)
    for place, sublayer in enumerate(block.sublayers):
        start = left + place * (width + gap)
        if place:
            size = 9 if block.arrangement == "parallel_mean" else 15
            pen.text(start - gap / 2, ROW / 2, ARROWS[block.arrangement], size=size)
        axis = axis_of(sublayer.mixer)
        hints = [f"{axis} mixer, norm {block.norm}", *_settings(sublayer.params)]
        # Readers are in the title; what is off says little.
        told = {k: v for k, v in sublayer.params.items() if k != "readers" and v is not False}
        settings = ", ".join(_settings(told))
        _labelled(pen, start, start + width, _title(sublayer), settings, AXES[axis], hints)
    pen.y += ROW + GAP


def _labelled(
    pen: _Pen, x0: float, x1: float, title: str, detail: str, colour: str, hints: list[str]
) -> None:
    """A box with a title and one smaller line; what was cut shows on hover."""
    pen.box(x0, x1, ROW, colour)
    middle, width = (x0 + x1) / 2, x1 - x0
    pen.text(middle, 15, f"<b>{chart_text(_cut(title, width * 0.9))}</b>")
    pen.text(middle, 33, chart_text(_cut(detail, width, DETAIL)), size=DETAIL)
    lines = [f"<b>{chart_text(title)}</b>", *(chart_text(hint) for hint in hints)]
    pen.hints.append((middle, pen.y + ROW / 2, "<br>".join(lines)))


def _title(sublayer: Sublayer) -> str:
    readers = sublayer.params.get("readers") or ()
    held = " | ".join(r if isinstance(r, str) else str(r.get("name")) for r in readers)
    return f"{sublayer.mixer}: {held}" if held else sublayer.mixer


def _router(router: Router) -> str:
    settings = ", ".join(_settings(router.params))
    return f"{router.name} ({settings})" if settings else router.name


def _settings(params: dict[str, Any]) -> list[str]:
    """Settings that hold something, plain ones first."""
    held = {k: v for k, v in params.items() if v not in (None, {}, [], ())}
    plain = [
        f"{k} {v:.4g}" if isinstance(v, float) else f"{k} {v}" for k, v in held.items() if not _nested(v)
    ]
    nested = [f"{k} {_flat(v)}" for k, v in held.items() if _nested(v)]
    return plain + nested


def _nested(value: Any) -> bool:
    return isinstance(value, dict | list | tuple)


def _flat(value: Any) -> str:
    if isinstance(value, dict):
        return "(" + ", ".join(f"{k} {_flat(v)}" for k, v in value.items() if v not in (None, {})) + ")"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_flat, value)) + "]"
    return str(value)


def _cut(text: str, width: float, size: int = TITLE) -> str:
    """``text`` shortened to fit a share of the drawing's width."""
    most = max(4, int(width * NARROWEST / (0.55 * size)))
    return text if len(text) <= most else text[: most - 1] + "…"
