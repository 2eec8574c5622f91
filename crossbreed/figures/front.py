"""Plotly figures, from stored values only: nothing is smoothed, moved or corrected by hand."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import plotly.graph_objects as go

from crossbreed.core.ledger import QUANTITIES
from crossbreed.core.search.candidates import OWN, SCORE, Candidate, Objectives
from crossbreed.core.search.front import losses
from crossbreed.figures.palette import COLOURS, NEUTRAL, faded, styles
from crossbreed.figures.scales import error_bars, log_axis
from crossbreed.figures.words import UNITS, chart_text, mean_with_interval, seeds
from crossbreed.storage.rows import CurveRow, RunDetail

SMALLEST, LARGEST = 6, 30
"""Diameters of markers in pixels where their area stands for a quantity."""
FEW_DOMINATED, MOST_DOMINATED = 100, 400
"""Dominated candidates drawn, in a browser at first and at most; of more, those nearest to the front. Every one is an element
of the page."""

PLOT_HEIGHT, LEGEND_ROW, LEGEND_WIDTH = 440, 27, 600
"""Pixels: a chart of the front without its legend, a line of the legend, and the narrowest legend."""

CURVES_HEIGHT = 340
RING = "#D55E00"


def axes(objectives: Objectives) -> tuple[str, str]:
    """(x, y): what a front is drawn over. The score stands up; beside it the first other objective."""
    names = objectives.names
    y = SCORE if SCORE in names else names[0]
    return next((n for n in names if n != y), y), y


@dataclass(frozen=True)
class Marks:
    """What else markers say. size_by: a quantity of the ledger, as area. surely: (number, point) -> probability of standing on
    the front, as opacity; what is not known is drawn as usual."""

    size_by: str | None = None
    surely: Mapping[tuple[int, str], float] | None = None

    def sizes(self, members: Sequence[Candidate], largest: float, usual: float) -> list[float]:
        """Diameters in pixels."""
        if self.size_by is None or largest <= 0:
            return [usual] * len(members)
        values = [costs(c).get(self.size_by) for c in members]
        return [
            usual if v is None else SMALLEST + (LARGEST - SMALLEST) * math.sqrt(v / largest) for v in values
        ]

    def colours(self, members: Sequence[Candidate], colour: str, usual: float) -> str | list[str]:
        """A certain member in full colour, an improbable one nearly without; with ``usual`` opacity what is not known."""
        if self.surely is None:
            return colour
        known = [self.surely.get(c.key) for c in members]
        return [faded(colour, usual if p is None else 0.12 + 0.88 * p) for p in known]


def costs(candidate: Candidate) -> Mapping[str, float]:
    """Quantities of a candidate's ledger, at nominal rates."""
    return {n: float(v) for n in QUANTITIES if (v := (candidate.row.ledger or {}).get(n)) is not None}


def with_costs(candidates: Sequence[Candidate], names: Iterable[str]) -> list[Candidate]:
    """The same candidates, some quantities of their ledgers beside their objectives, so that axes may show them."""
    extra = [n for n in names if n in QUANTITIES]
    if not extra:
        return list(candidates)
    return [
        replace(
            c,
            means={**{n: costs(c).get(n, math.nan) for n in extra}, **c.means},
            intervals={**dict.fromkeys(extra), **c.intervals},
        )
        for c in candidates
    ]


USUAL = Marks()


def front_figure(
    shown: Sequence[Candidate],
    families: Sequence[str],
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
    """Candidates as markers by family, with 95% intervals where there are any; clicking one gives its number.

    Members of the front are strong and, with ``line``, joined; dominated ones are faint; those off budget are crosses.
    A marker's customdata is (number, hover text). ``families`` gives styles, in their order; ``selected`` has a ring, those
    chosen ``together`` thin ones.
    """
    figure = go.Figure()
    look = styles(families)
    if line:
        join_front(figure, shown, x, y, NEUTRAL)
    _join_points(figure, shown, x, y, look)
    named: set[str] = set()
    largest = max((costs(c).get(marks.size_by or "", 0.0) for c in shown), default=0.0)
    # The front last, so that it lies on top.
    for strong in (False, True):
        for family in dict.fromkeys(c.row.family for c in shown if c.on_front == strong):
            members = [c for c in shown if c.row.family == family and c.on_front == strong]
            colour, symbol = look[family]
            figure.add_trace(markers(members, x, y, colour, symbol, strong, marks, largest))
            figure.data[-1].update(name=chart_text(family), legendgroup=family, showlegend=False)
            named.add(family)
    for family in [f for f in look if f in named]:
        colour, symbol = look[family]
        # A legend entry of its own looks the same whether or not the family is on the front.
        marker = {"color": colour, "symbol": symbol, "size": 11}
        figure.add_scatter(
            x=[None], y=[None], mode="markers", marker=marker, name=chart_text(family), legendgroup=family
        )
    add_rings(figure, shown, x, y, selected, together)
    lay_out(figure, shown, x, y, log_x, log_y, [c.row.family for c in shown])
    return figure


def join_front(figure: go.Figure, shown: Sequence[Candidate], x: str, y: str, colour: str) -> None:
    """A line through the members of a front, along x."""
    front = sorted((c for c in shown if c.on_front), key=lambda c: c.means[x])
    if len(front) > 1:
        figure.add_scatter(
            x=[c.means[x] for c in front],
            y=[c.means[y] for c in front],
            mode="lines",
            line={"color": colour, "width": 1.5},
            hoverinfo="skip",
            name="front",
            showlegend=False,
        )


def add_rings(
    figure: go.Figure,
    shown: Sequence[Candidate],
    x: str,
    y: str,
    selected: int | None,
    together: Collection[int],
) -> None:
    """A ring around the selected candidate, thinner ones around those chosen together."""
    rings = [
        ("chosen together", [c for c in shown if c.row.number in together], 20, 1.5),
        ("selected", [c for c in shown if c.row.number == selected][:1], 26, 3),
    ]
    for name, ringed, diameter, width in rings:
        if ringed:
            figure.add_scatter(
                x=[c.means[x] for c in ringed],
                y=[c.means[y] for c in ringed],
                mode="markers",
                marker={
                    "symbol": "circle-open",
                    "size": diameter,
                    "color": RING,
                    "line": {"width": width},
                },
                hoverinfo="skip",
                name=name,
                showlegend=False,
            )


def _join_points(
    figure: go.Figure, shown: Sequence[Candidate], x: str, y: str, look: Mapping[str, tuple[str, str]]
) -> None:
    """A thin line through the operating points of each model that has several, along x."""
    points: dict[int, list[Candidate]] = {}
    for candidate in shown:
        points.setdefault(candidate.row.number, []).append(candidate)
    for several in points.values():
        if len(several) > 1:
            along = sorted(several, key=lambda c: c.means[x])
            figure.add_scatter(
                x=[c.means[x] for c in along],
                y=[c.means[y] for c in along],
                mode="lines",
                line={"color": faded(look[along[0].row.family][0], 0.6), "width": 1, "dash": "dot"},
                hoverinfo="skip",
                name="operating points",
                showlegend=False,
            )


def markers(
    members: Sequence[Candidate],
    x: str,
    y: str,
    colour: str,
    symbol: str,
    strong: bool,
    marks: Marks,
    largest: float,
    study: str | None = None,
) -> go.Scatter:
    """Some candidates in one colour and shape; of another ``study`` they name it and give no number."""
    opacity = 1.0 if strong or marks.surely is not None else 0.45
    symbols = ["x-thin" if _off_budget(c) else symbol for c in members]
    return go.Scatter(
        x=[c.means[x] for c in members],
        y=[c.means[y] for c in members],
        error_x=_error_bars(members, x, colour, strong),
        error_y=_error_bars(members, y, colour, strong),
        mode="markers",
        marker={
            "color": marks.colours(members, colour, 1.0 if strong else 0.45),
            "symbol": symbols,
            "size": marks.sizes(members, largest, 14 if strong else 10),
            "opacity": opacity,
            # A thin cross is drawn by its line alone.
            "line": {"width": [2 if _off_budget(c) else 1 for c in members], "color": colour},
        },
        customdata=[(None if study else c.row.number, _hover(c, (x, y), study)) for c in members],
        hovertemplate="%{customdata[1]}<extra></extra>",
        # Clicking dims nothing: the ring around the chosen marker says enough.
        unselected={"marker": {"opacity": opacity}},
        selected={"marker": {"opacity": opacity}},
    )


def _off_budget(candidate: Candidate) -> bool:
    return any(s.state == "off_budget" for s in candidate.counted)


def _error_bars(members: Sequence[Candidate], name: str, colour: str, strong: bool) -> dict[str, Any]:
    looks = {"color": faded(colour, 0.8 if strong else 0.35), "thickness": 1.2, "width": 3}
    return error_bars([c.intervals[name] for c in members], **looks)


def _hover(candidate: Candidate, axes: tuple[str, str], study: str | None = None) -> str:
    row = candidate.row
    place = f"{study}/{row.number}" if study else f"#{row.number}"
    lines = [f"<b>{chart_text(place)}</b> {chart_text(row.family)}"]
    lines += [] if candidate.point == OWN else [f"at {chart_text(candidate.point)}"]
    lines += [
        f"{UNITS.get(name, name)}: {mean_with_interval(candidate, name)}" for name in dict.fromkeys(axes)
    ]
    standing = "" if candidate.confirmed or not candidate.done else ", provisional"
    lines.append(f"{seeds(len(candidate.done))}, {row.state.replace('_', ' ')}{standing}")
    return "<br>".join(lines)


def lay_out(
    figure: go.Figure,
    shown: Sequence[Candidate],
    x: str,
    y: str,
    log_x: bool,
    log_y: bool,
    legend: Sequence[str],
) -> None:
    """Size, margins and axes of a chart of fronts; ``legend``: the entries of its legend."""
    figure.update_layout(
        height=PLOT_HEIGHT + LEGEND_ROW * _legend_rows(legend),
        margin={"l": 64, "r": 16, "t": 12, "b": 60},
        hovermode="closest",
        hoverlabel={"align": "left"},
        clickmode="event+select",
        dragmode="zoom",
        legend={"orientation": "h", "yanchor": "top", "y": -0.17, "xanchor": "left", "x": 0, "title": ""},
    )

    def scale(name: str, log: bool, linear: Mapping[str, Any]) -> Mapping[str, Any]:
        return log_axis([c.means[name] for c in shown], [c.intervals[name] for c in shown]) if log else linear

    figure.update_xaxes(title=UNITS.get(x, x), zeroline=False, **scale(x, log_x, {"tickformat": "~s"}))
    figure.update_yaxes(title=UNITS.get(y, y), zeroline=False, **scale(y, log_y, {}))


def _legend_rows(families: Sequence[str]) -> int:
    """Lines the legend takes where it is narrowest; the plot must not pay for a long one."""
    return math.ceil(sum(50 + 6.5 * len(family) for family in set(families)) / LEGEND_WIDTH)


def drawable(
    candidates: Sequence[Candidate],
    objectives: Objectives,
    x: str,
    y: str,
    *,
    off_budget: bool,
    most: int = MOST_DOMINATED,
) -> tuple[list[Candidate], dict[str, int]]:
    """The candidates a chart of two objectives shows, and how many it does not, by reason. ``most``: dominated ones."""
    shown: list[Candidate] = []
    hidden: dict[str, int] = {}
    for candidate in candidates:
        known = all(math.isfinite(candidate.means[n]) for n in (x, y))
        off = _off_budget(candidate)
        if known and (candidate.eligible or (off and off_budget)):
            shown.append(candidate)
        else:
            reason = "off budget" if off else candidate.row.state.replace("_", " ")
            reason = "done but not measured yet" if reason == "done" else reason
            hidden[reason] = hidden.get(reason, 0) + 1
    dominated = [c for c in shown if not c.on_front]
    if len(dominated) > most:
        distances = _distances(dominated, [c for c in shown if c.on_front], objectives)
        nearest = sorted(range(len(dominated)), key=lambda i: (distances[i], dominated[i].row.number))
        kept = {id(dominated[i]) for i in nearest[:most]}
        hidden["dominated and far from the front" if most else "dominated"] = len(dominated) - most
        shown = [c for c in shown if c.on_front or id(c) in kept]
    return shown, hidden


def _distances(
    dominated: Sequence[Candidate], front: Sequence[Candidate], objectives: Objectives
) -> list[float]:
    """How far each candidate is from the front: the least gain in all objectives, each as a share of its range, after
    which no member dominates it."""
    loss_NM = losses([[c.means[n] for n in objectives.names] for c in (*dominated, *front)], objectives.ways)
    low_M, high_M = loss_NM.min(axis=0), loss_NM.max(axis=0)
    share_NM = (loss_NM - low_M) / np.where(high_M > low_M, high_M - low_M, 1.0)
    mine_NM, front_FM = share_NM[: len(dominated)], share_NM[len(dominated) :]
    # Member by member: all at once would be a large array for tens of thousands of candidates.
    worst_N = np.zeros(len(dominated))
    for member_M in front_FM:
        worst_N = np.maximum(worst_N, (mine_NM - member_M).min(axis=1))
    return [float(d) for d in worst_N]


def curves_figure(runs: Sequence[RunDetail], curves: Mapping[int, Sequence[CurveRow]]) -> go.Figure:
    """Training loss (nats a token) over training tokens, one line a seed; steps whose loss was not finite are gaps."""
    figure = go.Figure()
    for place, run in enumerate(runs):
        points = curves[run.run.id]
        figure.add_scatter(
            x=[p.tokens for p in points],
            y=[p.loss_nats for p in points],
            mode="lines",
            line={"color": COLOURS[place % len(COLOURS)], "width": 2},
            name=f"seed {run.run.seed} ({run.run.state.replace('_', ' ')})",
            hovertemplate="%{y:.4g} nats at %{x:.4s} tokens<extra>seed " + str(run.run.seed) + "</extra>",
        )
    figure.update_layout(
        height=CURVES_HEIGHT,
        margin={"l": 56, "r": 16, "t": 12, "b": 56},
        showlegend=True,
        legend={"orientation": "h", "yanchor": "bottom", "y": 1.02, "xanchor": "left", "x": 0, "title": ""},
    )
    figure.update_xaxes(title="training tokens", tickformat="~s", zeroline=False)
    figure.update_yaxes(title="training loss, nats/token", zeroline=False)
    return figure
