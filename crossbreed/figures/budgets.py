"""Figures of budgets: how far candidates lie from them, before training and after, and predicted against measured cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import plotly.graph_objects as go

from crossbreed.core.budget.certificate import Certificate, Residual
from crossbreed.core.search.candidates import Candidate
from crossbreed.core.search.tuning import OWN
from crossbreed.figures.palette import COLOURS, NEUTRAL, faded
from crossbreed.figures.words import chart_text, percent, short_name

LANE, FRAME = 74, 100
"""Pixels of a quantity's lane, and of what stands around all lanes."""
SPREAD = 0.32
"""How far candidates are moved apart in a lane, of its half height; by number, so that a marker stays where it is."""
WIDEST = 4.0
"""Tolerances shown on either side; what lies further out is drawn at the edge and says so."""

MOST_SHOWN = 400
"""Candidates drawn at once."""

LOOK = {
    "feasible": (COLOURS[0], "circle"),
    "infeasible": (COLOURS[3], "x"),
    "off budget": (COLOURS[1], "cross"),
}


@dataclass(frozen=True)
class Certified:
    """A candidate with its certificates: nominal before training, realised (mean residual over runs) after."""

    number: int
    family: str
    nominal: Certificate
    realised: dict[str, float]
    off_budget: bool

    @property
    def standing(self) -> str:
        return "off budget" if self.off_budget else "feasible" if self.nominal.feasible else "infeasible"


def certified(candidates: Sequence[Candidate]) -> list[Certified]:
    """Those that have a certificate."""
    found = []
    for candidate in candidates:
        row = candidate.row
        if row.certificate is None:
            continue
        residuals: dict[str, list[float]] = {}
        for seed in row.seeds:
            point = seed.points.get(OWN)
            for entry in ((point.certificate if point is not None else None) or {}).get("quantities", ()):
                residuals.setdefault(entry["quantity"], []).append(entry["residual"])
        realised = {name: sum(values) / len(values) for name, values in residuals.items()}
        off = any(s.state == "off_budget" for s in row.seeds)
        found.append(
            Certified(row.number, row.family, Certificate.model_validate(row.certificate), realised, off)
        )
    return found


def furthest(found: Sequence[Certified], most: int = MOST_SHOWN) -> list[Certified]:
    """Those a chart shows: of more than ``most``, those furthest outside their budget, then the latest."""
    return sorted(found, key=lambda c: (-c.nominal.excess(), -c.number))[:most]


def residuals_figure(found: Sequence[Certified]) -> go.Figure:
    """Signed residuals in tolerances, a lane a quantity: 1 is the edge of what is allowed, the shaded band.

    A filled marker is nominal; where trained routers moved it, a line leads to a hollow one, the realised residual.
    """
    quantities = list(dict.fromkeys(r.quantity for c in found for r in c.nominal.quantities))
    rules = {r.quantity: r for c in found for r in c.nominal.quantities}
    figure = go.Figure()
    for lane, name in enumerate(quantities):
        low = -1.0 if rules[name].kind == "match" else -WIDEST
        figure.add_shape(
            type="rect", x0=low, x1=1.0, y0=lane - 0.42, y1=lane + 0.42, line={"width": 0},
            fillcolor=faded(COLOURS[2], 0.13), layer="below",
        )  # fmt: skip
    for standing, (colour, symbol) in LOOK.items():
        members = [c for c in found if c.standing == standing]
        _residual_markers(figure, members, quantities, standing, colour, symbol)
    ticks = [f"{chart_text(short_name(q))}<br>{_rule(rules[q])}" for q in quantities]
    figure.update_layout(
        height=FRAME + LANE * len(quantities),
        margin={"l": 16, "r": 16, "t": 12, "b": 60},
        hovermode="closest",
        hoverlabel={"align": "left"},
        legend={"orientation": "h", "yanchor": "bottom", "y": 1.02, "xanchor": "left", "x": 0, "title": ""},
    )
    figure.add_vline(x=0, line={"color": NEUTRAL, "width": 1, "dash": "dot"})
    figure.update_xaxes(title="residual, in tolerances", range=[-WIDEST - 0.2, WIDEST + 0.2], zeroline=False)
    figure.update_yaxes(
        tickvals=list(range(len(quantities))), ticktext=ticks, automargin=True, showgrid=False, zeroline=False,
        range=[len(quantities) - 0.5, -0.5],
    )  # fmt: skip
    return figure


def _rule(residual: Residual) -> str:
    sign = "±" if residual.kind == "match" else "≤ +"
    return f"{sign}{100 * residual.tolerance:.3g}%"


def _residual_markers(
    figure: go.Figure,
    members: Sequence[Certified],
    quantities: Sequence[str],
    name: str,
    colour: str,
    symbol: str,
) -> None:
    x, y, hints, moved_x, moved_y, ends = [], [], [], [], [], []
    for candidate in members:
        for r in candidate.nominal.quantities:
            # The same place for a number every time, spread evenly over the lane.
            place = quantities.index(r.quantity) + SPREAD * (2 * (candidate.number * 0.618034 % 1) - 1)
            nominal, realised = _clipped(r, r.residual), candidate.realised.get(r.quantity)
            x.append(nominal)
            y.append(place)
            hints.append([_hint(candidate, r, realised), candidate.number])
            if realised is not None and abs(realised - r.residual) > 1e-4:
                moved_x += [nominal, _clipped(r, realised), None]
                moved_y += [place, place, None]
                ends.append((_clipped(r, realised), place))
    if not x:
        return
    if ends:
        line = {"color": faded(colour, 0.6), "width": 1.4}
        figure.add_scatter(x=moved_x, y=moved_y, mode="lines", line=line, hoverinfo="skip", showlegend=False)
        figure.add_scatter(
            x=[end[0] for end in ends], y=[end[1] for end in ends], mode="markers", hoverinfo="skip", showlegend=False,
            marker={"size": 9, "color": colour, "symbol": "circle-open", "line": {"width": 2}},
        )  # fmt: skip
    figure.add_scatter(
        x=x, y=y, mode="markers", name=name, customdata=hints, hovertemplate="%{customdata[0]}<extra></extra>",
        marker={"size": 9, "color": colour, "symbol": symbol, "opacity": 0.8},
    )  # fmt: skip


def _clipped(residual: Residual, value: float) -> float:
    """In tolerances, at the edge of the chart where it lies further out. A tolerance of 0 is an edge by itself."""
    scaled = (
        value / residual.tolerance
        if residual.tolerance
        else (0.0 if value == 0 else WIDEST if value > 0 else -WIDEST)
    )
    return max(-WIDEST, min(WIDEST, scaled))


def _hint(candidate: Certified, residual: Residual, realised: float | None) -> str:
    lines = [f"<b>#{candidate.number}</b> {chart_text(candidate.family)}"]
    lines.append(f"{chart_text(short_name(residual.quantity))}: {percent(residual.residual)} nominal")
    if realised is not None:
        lines.append(f"{percent(realised)} realised")
    return "<br>".join(lines)


def agreement_figure(points: Sequence[tuple[int, float, float]], title: str, unit: str) -> go.Figure:
    """Predicted (across) against measured (up) of candidates ``(number, predicted, measured)``; the line is equality."""
    predicted, measured = [p for _, p, _ in points], [m for *_, m in points]
    low, high = min(*predicted, *measured), max(*predicted, *measured)
    figure = go.Figure()
    figure.add_scatter(
        x=[low, high],
        y=[low, high],
        mode="lines",
        line={"color": NEUTRAL, "dash": "dot"},
        hoverinfo="skip",
        showlegend=False,
    )
    figure.add_scatter(
        x=predicted,
        y=measured,
        mode="markers",
        marker={"size": 10, "color": COLOURS[0]},
        customdata=[
            [f"#{n}: predicted {p:,.4g}, measured {m:,.4g} {unit} ({percent(m / p - 1)})"]
            for n, p, m in points
        ],
        hovertemplate="%{customdata[0]}<extra></extra>",
        showlegend=False,
    )
    figure.update_layout(height=340, margin={"l": 64, "r": 16, "t": 12, "b": 56})
    figure.update_xaxes(title=f"predicted {title}, {unit}", tickformat="~s", zeroline=False)
    figure.update_yaxes(title=f"measured {title}, {unit}", tickformat="~s", zeroline=False)
    return figure
