"""Several fronts in one chart, each with its hypervolume."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import plotly.graph_objects as go

from crossbreed.core.search.layers import Layer
from crossbreed.figures.front import USUAL, Marks, add_rings, costs, join_front, lay_out, markers
from crossbreed.figures.palette import styles
from crossbreed.figures.words import chart_text, number


def layers_figure(
    layers: Sequence[Layer],
    x: str,
    y: str,
    *,
    log_x: bool,
    log_y: bool = False,
    line: bool,
    selected: int | None,
    together: Collection[int] = (),
    marks: Marks = USUAL,
) -> go.Figure:
    """Every layer in its own colour and shape: members of its front strong and, with ``line``, joined; the others faint.

    ``layers`` hold what is to be drawn; one that holds nothing keeps its colour. Markers of another study name it and cannot be chosen; see ``front_figure``.
    """
    figure = go.Figure()
    look = styles(each.name for each in layers)
    shown = [c for each in layers for c in each.candidates]
    largest = max((costs(c).get(marks.size_by or "", 0.0) for c in shown), default=0.0)
    for each in layers:
        if line:
            join_front(figure, each.candidates, x, y, look[each.name][0])
    # All fronts last, so that no layer's dominated candidates hide another's front.
    for strong in (False, True):
        for each in layers:
            members = [c for c in each.candidates if c.on_front == strong]
            if members:
                colour, symbol = look[each.name]
                made = markers(members, x, y, colour, symbol, strong, marks, largest, each.study)
                figure.add_trace(
                    made.update(name=chart_text(each.name), legendgroup=each.name, showlegend=False)
                )
    drawn = [each for each in layers if each.candidates]
    for each in drawn:
        colour, symbol = look[each.name]
        figure.add_scatter(
            x=[None],
            y=[None],
            mode="markers",
            marker={"color": colour, "symbol": symbol, "size": 11},
            name=chart_text(label(each)),
            legendgroup=each.name,
        )
    own = [c for each in layers if each.study is None for c in each.candidates]
    add_rings(figure, own, x, y, selected, together)
    lay_out(figure, shown, x, y, log_x, log_y, [label(each) for each in drawn])
    return figure


def label(layer: Layer) -> str:
    """A layer with the hypervolume of its front: ``attention, volume 1.23k``."""
    return layer.name if layer.volume is None else f"{layer.name}, volume {number(layer.volume)}"
