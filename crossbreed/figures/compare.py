"""Figures that hold candidates against each other: paired differences, bars on common scales, curves, effects of genes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import groupby

import plotly.graph_objects as go

from crossbreed.core.search.candidates import Candidate
from crossbreed.core.search.genes import Effect
from crossbreed.core.search.pairs import ALPHA, Comparison
from crossbreed.core.search.statistics import Paired
from crossbreed.figures.palette import COLOURS, NEUTRAL, faded
from crossbreed.figures.scales import error_bars
from crossbreed.figures.words import UNITS, amount, chart_text, number
from crossbreed.storage.rows import CurveRow, RunDetail

ROW = 30
"""Pixels of a line of a chart with one line a comparison, a candidate or an effect."""
FRAME = 96
"""Pixels around such a chart: axis, its title, margins."""

EFFECTS_SHOWN = 12
"""Effects of genes drawn for one objective, the surest."""

ABSENT = "not applicable"
"""Where a candidate has no such value: it never came so far."""

BETTER, WORSE = "#009E73", "#D55E00"


def colours(numbers: Sequence[int]) -> dict[int, str]:
    """Candidate -> its colour in every chart of a comparison, in the order chosen."""
    return {n: COLOURS[place % len(COLOURS)] for place, n in enumerate(numbers)}


def pairs_figure(found: Sequence[Comparison]) -> go.Figure:
    """Paired differences of one objective with 95% t intervals, a line a pair; zero is no difference."""
    known = [c for c in found if c.paired is not None]
    name = known[0].objective
    figure = go.Figure()
    for comparison in known:
        assert comparison.paired is not None
        favours_first = comparison.better == comparison.first
        colour = NEUTRAL if comparison.better is None else BETTER if favours_first else WORSE
        lines = [comparison.sentence]
        if comparison.corrected is not None:
            lines.append(f"p {comparison.corrected:.3g} after Holm's correction")
        _difference(
            figure,
            f"#{comparison.first} − #{comparison.second}",
            comparison.paired,
            colour,
            lines,
        )
    return _differences(figure, len(known), f"difference in {UNITS.get(name, name)}")


def effects_figure(found: Sequence[Effect]) -> go.Figure:
    """Effects of genes on one objective, the surest on top; coloured where the corrected p-value is below ALPHA."""
    name = found[0].objective
    figure = go.Figure()
    for effect in found:
        label = f"{effect.gene}: {_short(effect.before)} → {_short(effect.after)}"
        sure = effect.corrected < ALPHA
        about = [
            f"{effect.paired.pairs} pairs alike in all else",
            f"p {effect.corrected:.3g} after Holm's correction",
        ]
        _difference(figure, label, effect.paired, COLOURS[0] if sure else NEUTRAL, about)
    return _differences(figure, len(found), f"change of {UNITS.get(name, name)}")


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) <= 24 else text[:23] + "…"


def _difference(figure: go.Figure, label: str, test: Paired, colour: str, about: Sequence[str]) -> None:
    """A dot with its interval; without one, a hollow dot."""
    known = test.interval
    span = "" if known is None else f" [{number(known.low)} – {number(known.high)}]"
    figure.add_scatter(
        x=[test.mean],
        y=[chart_text(label)],
        error_x=error_bars([known], color=colour, thickness=2, width=5),
        mode="markers",
        marker={"size": 11, "color": colour, "symbol": "circle-open" if known is None else "circle"},
        customdata=[["<br>".join(map(chart_text, (f"{label}: {number(test.mean)}{span}", *about)))]],
        hovertemplate="%{customdata[0]}<extra></extra>",
        showlegend=False,
    )


def _differences(figure: go.Figure, lines: int, title: str) -> go.Figure:
    figure.add_vline(x=0, line={"color": NEUTRAL, "width": 1, "dash": "dot"})
    figure.update_layout(
        height=FRAME + ROW * lines,
        margin={"l": 16, "r": 16, "t": 12, "b": 60},
        hovermode="closest",
        hoverlabel={"align": "left"},
    )
    figure.update_xaxes(title=title, zeroline=False)
    figure.update_yaxes(autorange="reversed", automargin=True)
    return figure


def bars_figure(candidates: Sequence[Candidate], name: str) -> go.Figure:
    """One quantity, a bar a candidate from zero; 95% intervals where there are any, and a word where the value is missing."""
    tint = colours([c.row.number for c in candidates])
    labels = [f"#{c.row.number}" for c in candidates]
    values = [quantity(c, name) for c in candidates]
    figure = go.Figure()
    figure.add_bar(
        x=values,
        y=labels,
        orientation="h",
        marker={"color": [faded(tint[c.row.number], 0.75) for c in candidates]},
        error_x=error_bars([c.intervals.get(name) for c in candidates], color=NEUTRAL),
        customdata=[[f"{label}: {amount(name, v)}"] for label, v in zip(labels, values, strict=True)],
        hovertemplate="%{customdata[0]}<extra></extra>",
        showlegend=False,
    )
    for label, value in zip(labels, values, strict=True):
        if value is None:
            figure.add_annotation(
                x=0, y=label, text=ABSENT, showarrow=False, xanchor="left", font={"size": 11}
            )
    figure.update_layout(height=FRAME + ROW * len(candidates), margin={"l": 16, "r": 16, "t": 12, "b": 56})
    figure.update_xaxes(title=UNITS.get(name, name), rangemode="tozero", nticks=4, zeroline=False)
    # Plotly would read "#1" as a number.
    figure.update_yaxes(autorange="reversed", automargin=True, type="category")
    return figure


def quantity(candidate: Candidate, name: str) -> float | None:
    """An objective's mean, costs at the rates that trained routers chose; else a quantity of the ledger at nominal rates. None
    where it is not known."""
    if name in candidate.means:
        mean = candidate.means[name]
        return mean if math.isfinite(mean) else None
    value = (candidate.row.ledger or {}).get(name)
    return None if value is None else float(value)


def overlaid_figure(
    runs: Mapping[int, Sequence[RunDetail]], curves: Mapping[int, Sequence[CurveRow]]
) -> go.Figure:
    """Training loss of several candidates, a colour each, a line a seed. ``runs``: of each candidate, by its number."""
    figure = go.Figure()
    tint = colours(list(runs))
    shown = [(n, run) for n, found in runs.items() for run in found if curves.get(run.run.id)]
    for n, group in groupby(shown, key=lambda item: item[0]):
        for place, (_, run) in enumerate(group):
            points = curves[run.run.id]
            figure.add_scatter(
                x=[p.tokens for p in points],
                y=[p.loss_nats for p in points],
                mode="lines",
                line={"color": faded(tint[n], 0.8), "width": 1.6},
                name=f"#{n}",
                legendgroup=str(n),
                showlegend=place == 0,
                hovertemplate=f"#{n}, seed {run.run.seed}: %{{y:.4g}} nats at %{{x:.4s}} tokens<extra></extra>",
            )
    figure.update_layout(
        height=380,
        margin={"l": 56, "r": 16, "t": 12, "b": 56},
        legend={"orientation": "h", "yanchor": "bottom", "y": 1.02, "xanchor": "left", "x": 0, "title": ""},
    )
    figure.update_xaxes(title="training tokens", tickformat="~s", zeroline=False)
    figure.update_yaxes(title="training loss, nats/token", zeroline=False)
    return figure
