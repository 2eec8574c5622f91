"""Small pictures of a study: where its front stands, and how its hypervolume grew."""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go

from crossbreed.core.search.candidates import Candidate
from crossbreed.core.search.growth import Growth
from crossbreed.figures.palette import COLOURS, NEUTRAL
from crossbreed.figures.words import UNITS, chart_text, number

HEIGHT = 170
DOTS = 300
"""Dominated candidates drawn in a thumbnail, evenly taken."""


def thumbnail_figure(shown: Sequence[Candidate], x: str, y: str) -> go.Figure:
    """The front over its dominated candidates, without legend or intervals."""
    front = sorted((c for c in shown if c.on_front), key=lambda c: c.means[x])
    rest = [c for c in shown if not c.on_front]
    rest = rest[:: max(1, len(rest) // DOTS)]
    figure = go.Figure()
    figure.add_scatter(
        x=[c.means[x] for c in rest], y=[c.means[y] for c in rest], mode="markers", hoverinfo="skip",
        marker={"size": 5, "color": NEUTRAL, "opacity": 0.4},
    )  # fmt: skip
    figure.add_scatter(
        x=[c.means[x] for c in front],
        y=[c.means[y] for c in front],
        mode="lines+markers",
        line={"color": COLOURS[0], "width": 1.5},
        marker={"size": 8, "color": COLOURS[0]},
        customdata=[[f"#{c.row.number} {chart_text(c.row.family)}"] for c in front],
        hovertemplate="%{customdata[0]}<extra></extra>",
    )
    return _small(figure, UNITS.get(x, x), UNITS.get(y, y))


def trend_figure(changes: Sequence[Growth]) -> go.Figure:
    """Hypervolume over training tokens, from the study's fixed reference point. A step stays until the next one is known.

    It may fall: fresh seeds replace the lucky run that chose a member.
    """
    figure = go.Figure()
    figure.add_scatter(
        x=[c.tokens for c in changes],
        y=[c.hypervolume for c in changes],
        mode="lines",
        line={"color": COLOURS[2], "width": 2, "shape": "hv"},
        customdata=[[number(c.hypervolume)] for c in changes],
        hovertemplate="%{customdata[0]} after %{x:.3s} tokens<extra></extra>",
    )
    return _small(figure, "training tokens", "hypervolume")


def _small(figure: go.Figure, x: str, y: str) -> go.Figure:
    title = {"font": {"size": 11}, "standoff": 16}
    # Left to themselves, margins leave titles on the numbers of their axes.
    figure.update_layout(height=HEIGHT, margin={"l": 60, "r": 8, "t": 8, "b": 46}, showlegend=False)
    figure.update_xaxes(
        title={"text": x, **title},
        tickformat="~s",
        nticks=4,
        tickfont={"size": 10},
        zeroline=False,
    )
    figure.update_yaxes(title={"text": y, **title}, nticks=4, tickfont={"size": 10}, zeroline=False)
    return figure
