"""Charts of where a candidate's loss comes from: by class of positions, and along documents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import plotly.graph_objects as go

from crossbreed.core.search.losses import Measure, Part
from crossbreed.figures.palette import COLOURS, faded
from crossbreed.figures.scales import error_bars
from crossbreed.figures.words import chart_text, number, seeds

HEIGHT, ROW = 320, 34
"""Pixels: of the chart along documents, and of a class's row in the other."""

LABELS = {"loss_nats": "loss, nats/token", "accuracy": "accuracy"}


def classes_figure(found: Sequence[Part], of: Measure) -> go.Figure:
    """A dot with its interval for every class that has labelled positions, the task's first class at the top."""
    figure = go.Figure()
    shown = [part for part in found if part.by_seed]
    figure.add_scatter(
        x=[part.mean for part in shown],
        y=[chart_text(str(part.name)) for part in shown],
        error_x=error_bars([part.interval for part in shown], thickness=1.2),
        mode="markers",
        marker={"size": 10, "color": COLOURS[0]},
        customdata=[[chart_text(f"{part.name}, {part.labelled:,} positions: {_value(part)}")] for part in shown],
        hovertemplate="%{customdata[0]}<extra></extra>",
    )  # fmt: skip
    _lay_out(figure, max(HEIGHT // 2, 90 + ROW * len(shown)))
    figure.update_xaxes(title=LABELS[of], zeroline=False, rangemode="tozero")
    figure.update_yaxes(autorange="reversed", type="category", automargin=True)
    return figure


def positions_figure(found: Mapping[int, Sequence[Part]], of: Measure) -> go.Figure:
    """A line for every length of texts, in multiples of the training length, over the position in a document; where nothing is
    labelled it has a gap."""
    figure = go.Figure()
    for place, (times, parts) in enumerate(found.items()):
        colour = COLOURS[place % len(COLOURS)]
        figure.add_scatter(
            x=[part.name for part in parts],
            y=[part.mean if part.by_seed else None for part in parts],
            error_y=error_bars(
                [part.interval for part in parts], thickness=1, width=0, color=faded(colour, 0.4)
            ),
            mode="lines+markers",
            line={"color": colour, "width": 1.5},
            marker={"size": 4},
            name=f"{times}× the training length",
            customdata=[
                [f"position {part.name:,}: {_value(part)}" if part.by_seed else ""] for part in parts
            ],
            hovertemplate="%{customdata[0]}<extra>" + f"{times}×" + "</extra>",
        )
    _lay_out(figure, HEIGHT)
    figure.update_layout(
        showlegend=True,
        legend={"orientation": "h", "yanchor": "bottom", "y": 1.02, "xanchor": "left", "x": 0, "title": ""},
    )
    figure.update_xaxes(title="position in its document", zeroline=False)
    figure.update_yaxes(title=LABELS[of], zeroline=False, rangemode="tozero")
    return figure


def _value(part: Part) -> str:
    """``0.31 [0.29 – 0.33], 3 seeds``."""
    span = part.interval
    shown = "" if span is None else f" [{number(span.low)} – {number(span.high)}]"
    return f"{number(part.mean)}{shown}, {seeds(len(part.by_seed))}"


def _lay_out(figure: go.Figure, height: int) -> None:
    figure.update_layout(
        height=height,
        margin={"l": 64, "r": 16, "t": 12, "b": 56},
        hoverlabel={"align": "left"},
        showlegend=False,
    )
