"""Charts over the length of texts: throughput by phase, and what a model is worth beyond its training length."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import plotly.graph_objects as go

from crossbreed.core.search.lengths import AtLength
from crossbreed.figures.palette import COLOURS
from crossbreed.figures.scales import error_bars, log_ticks
from crossbreed.figures.words import UNITS, chart_text, number, seeds

HEIGHT = 320


def contexts_figure(speeds: Mapping[str, Sequence[AtLength]], tokens: int) -> go.Figure:
    """Throughput (tokens/s, a line a phase) over context length (tokens); both axes are logarithmic.

    ``speeds``: name of a speed -> its values; ``tokens``: the training length.
    """
    figure = go.Figure()
    for place, (name, found) in enumerate(speeds.items()):
        label = UNITS.get(name, name)
        _line(figure, label, [each.times * tokens for each in found], found, COLOURS[place % len(COLOURS)])
    lengths = sorted({each.times * tokens for found in speeds.values() for each in found})
    _lay_out(figure, "context, tokens", {length: f"{length:,}" for length in lengths}, "tokens/s")
    means = [each.mean for found in speeds.values() for each in found]
    ticks = log_ticks(min(means) / 1.1, max(means) * 1.1)
    figure.update_yaxes(type="log", tickvals=ticks, ticktext=[f"{t:,.10g}" for t in ticks])
    return figure


def lengths_figure(found: Sequence[AtLength], label: str) -> go.Figure:
    """A score or metric over the length of the texts, in multiples of the training length (logarithmic)."""
    figure = go.Figure()
    _line(figure, label, [each.times for each in found], found, COLOURS[0])
    _lay_out(figure, "times the training length", {each.times: f"{each.times}×" for each in found}, label)
    figure.update_layout(showlegend=False)
    return figure


def _line(figure: go.Figure, label: str, x: Sequence[int], found: Sequence[AtLength], colour: str) -> None:
    """Means joined by a line, with the ends of their intervals where there are any."""
    figure.add_scatter(
        x=list(x),
        y=[each.mean for each in found],
        error_y=error_bars([each.interval for each in found], thickness=1.2),
        mode="lines+markers",
        line={"color": colour, "width": 2},
        marker={"size": 9},
        name=chart_text(label),
        customdata=[[chart_text(_words(label, each))] for each in found],
        hovertemplate="%{customdata[0]}<extra></extra>",
    )


def _words(label: str, each: AtLength) -> str:
    span = each.interval
    shown = "" if span is None else f" [{number(span.low)} – {number(span.high)}]"
    return f"{label}: {number(each.mean)}{shown} at {each.times}× the training length, {seeds(len(each.by_seed))}"


def _lay_out(figure: go.Figure, title: str, ticks: Mapping[int, str], up: str) -> None:
    figure.update_layout(
        height=HEIGHT,
        margin={"l": 64, "r": 16, "t": 12, "b": 56},
        hoverlabel={"align": "left"},
        showlegend=True,
        legend={"orientation": "h", "yanchor": "bottom", "y": 1.02, "xanchor": "left", "x": 0, "title": ""},
    )
    figure.update_xaxes(
        title=title, type="log", tickvals=list(ticks), ticktext=list(ticks.values()), zeroline=False
    )
    figure.update_yaxes(title=chart_text(up), zeroline=False)
