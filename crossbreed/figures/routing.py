"""Figures of router analytics; ``docs/router-analytics.md`` defines every number they draw."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import plotly.graph_objects as go

from crossbreed.figures.palette import COLOURS, NEUTRAL, faded
from crossbreed.figures.words import chart_text, number

ROW, FRAME = 26, 110
"""Pixels of a line of a map, and of what stands around it."""
WORDS_A_LINE = 32
MARGIN = {"l": 16, "r": 16, "t": 12, "b": 56}
SCALE = [[0.0, "rgba(15,133,201,0.04)"], [1.0, "#0F85C9"]]
"""From nothing to all, on light and on dark alike."""

Numbers = Mapping[str, Any]


def positions_figure(sites: Sequence[Numbers]) -> go.Figure:
    """Share of tokens with a choice above the cheapest, a line a site, along the text; empty cells were never asked."""
    width = sites[0]["positions"]["width"]
    most = max(len(site["positions"]["shares"]) for site in sites)
    table = [[_above(shares) for shares in site["positions"]["shares"]] for site in sites]
    names = [chart_text(site["site"]) for site in sites]
    return _map(table, [n * width for n in range(most)], names, "position, tokens", "share")


def classes_figure(sites: Sequence[Numbers]) -> go.Figure:
    """Share of choices above the cheapest, a line a site, by class of token."""
    names = [entry["class"] for entry in sites[0]["classes"]]
    table = [[_above(entry["shares"]) for entry in site["classes"]] for site in sites]
    labels = [chart_text(site["site"]) for site in sites]
    return _map(table, [chart_text(n) for n in names], labels, "class of token", "share")


def _above(shares: Sequence[float] | None) -> float | None:
    return None if shares is None else 1.0 - shares[0]


def _map(
    table: Sequence[Sequence[float | None]], x: Sequence[Any], y: Sequence[str], title: str, about: str
) -> go.Figure:
    figure = go.Figure(
        go.Heatmap(
            z=table,
            x=x,
            y=y,
            zmin=0.0,
            zmax=1.0,
            colorscale=SCALE,
            xgap=1,
            ygap=2,
            colorbar={"title": {"text": about, "side": "right"}, "thickness": 10, "len": 1.0},
            hovertemplate="%{y} at %{x}: %{z:.3f}<extra></extra>",
            hoverongaps=False,
        )
    )
    figure.update_layout(height=FRAME + ROW * len(y), margin=MARGIN)
    figure.update_xaxes(title=title, showgrid=False)
    figure.update_yaxes(type="category", autorange="reversed", automargin=True, showgrid=False)
    return figure


def text_figure(found: Numbers, site: Numbers, *, by_entropy: bool, ink: str | None = None) -> go.Figure:
    """The text, a cell a word: strong where the site chose above its cheapest, or as high as the entropy it read.

    ``ink``: colour of the words, None for Plotly's choice.
    """
    words, length = found["words"], found["length"]
    per_line = min(WORDS_A_LINE, length)
    top = max(1, len(site["choices"]) - 1)
    table: list[list[float | None]] = []
    texts: list[list[str]] = []
    hints: list[list[str]] = []
    for start in range(0, len(words), length):
        for line in range(start, start + length, per_line):
            cells = range(line, min(line + per_line, start + length))
            asked = [site["asked"][i] for i in cells]
            value = [site["entropy"][i] if by_entropy else site["choice"][i] / top for i in cells]
            table.append([v if a else None for v, a in zip(value, asked, strict=True)])
            texts.append([chart_text(words[i]) for i in cells])
            hints.append([_hint(found, site, i) for i in cells])
    figure = go.Figure(
        go.Heatmap(
            z=table,
            text=texts,
            customdata=hints,
            texttemplate="%{text}",
            textfont={"size": 11, "color": ink},
            zmin=0.0,
            zmax=1.0,
            colorscale=[[0.0, faded(COLOURS[1], 0.14)], [1.0, faded(COLOURS[1], 0.6)]],
            showscale=False,
            xgap=1,
            ygap=3,
            hovertemplate="%{customdata}<extra></extra>",
        )
    )
    figure.update_layout(height=24 + ROW * len(table), margin={"l": 0, "r": 0, "t": 4, "b": 4})
    figure.update_xaxes(visible=False)
    figure.update_yaxes(visible=False, autorange="reversed")
    return figure


def _hint(found: Numbers, site: Numbers, i: int) -> str:
    """What is known of one word."""
    chose = site["choices"][site["choice"][i]] if site["asked"][i] else "not asked"
    lines = [f"<b>{chart_text(found['words'][i])}</b>, {chart_text(found['classes'][found['class'][i]])}"]
    lines.append(f"row {i // found['length']}, position {i % found['length']}: {chart_text(chose)}")
    if site["entropy"] is not None:
        lines.append(f"entropy {site['entropy'][i]:.3f}")
    if found["loss_nats"][i] is not None:
        lines.append(f"loss {found['loss_nats'][i]:.3f} nats")
    return "<br>".join(lines)


def entropy_figure(entropy: Numbers) -> go.Figure:
    """Against the entropy that the router reads: the share above choice 0, and the mean loss, by tenths of the tokens."""
    bins = entropy["bins"]
    middle = [(b["low"] + b["high"]) / 2 for b in bins]
    figure = go.Figure()
    figure.add_scatter(
        x=middle,
        y=[_above(b["shares"]) for b in bins],
        name="share above choice 0",
        mode="lines+markers",
        line={"color": COLOURS[0], "width": 2},
        hovertemplate="%{y:.3f} at entropy %{x:.3f}<extra></extra>",
    )
    figure.add_scatter(
        x=middle,
        y=[b["mean_nats"] for b in bins],
        name="mean loss, nats",
        mode="lines+markers",
        line={"color": COLOURS[3], "width": 2, "dash": "dot"},
        yaxis="y2",
        hovertemplate="%{y:.3f} nats at entropy %{x:.3f}<extra></extra>",
    )
    _lines(figure, "normalised entropy", "share above choice 0")
    figure.update_layout(
        yaxis={"range": [-0.02, 1.02]},
        yaxis2={
            "title": "mean loss, nats",
            "overlaying": "y",
            "side": "right",
            "showgrid": False,
            "tickformat": ".3g",
            "tickmode": "auto",
        },
    )
    return figure


def threshold_figure(entropy: Numbers) -> go.Figure:
    """The rate that a threshold on entropy would give: the share of asked tokens above it, at the edges of tenths."""
    bins = entropy["bins"]
    total = sum(b["asked"] for b in bins)
    above, x, y = total, [], []
    for b in bins:
        x += [b["low"]]
        y += [above / total]
        above -= b["asked"]
    x, y = [*x, bins[-1]["high"]], [*y, 0.0]
    figure = go.Figure()
    figure.add_scatter(
        x=x,
        y=y,
        mode="lines+markers",
        line={"color": COLOURS[0], "width": 2},
        showlegend=False,
        hovertemplate="rate %{y:.3f} at threshold %{x:.3f}<extra></extra>",
    )
    _lines(figure, "threshold on normalised entropy", "rate")
    return figure


def timeline_figure(site: Numbers) -> go.Figure:
    """Which reader reads along the text: shares of the modes, stacked to one."""
    places, width = site["positions"]["shares"], site["positions"]["width"]
    figure = go.Figure()
    for n, name in enumerate(site["choices"]):
        figure.add_scatter(
            x=[i * width for i in range(len(places))],
            y=[None if shares is None else shares[n] for shares in places],
            name=chart_text(name),
            stackgroup="modes",
            line={"width": 0.5, "shape": "hv", "color": COLOURS[n % len(COLOURS)]},
            hovertemplate=f"{chart_text(name)} %{{y:.3f}} at %{{x}}<extra></extra>",
        )
    _lines(figure, "position, tokens", "share of tokens")
    figure.update_yaxes(range=[0, 1])
    return figure


def switches_figure(found: Numbers) -> go.Figure:
    """Mean loss around a switch of modes (full lines), beside texts that stay in one mode (dotted)."""
    names = [chart_text(n) for n in found["choices"]]
    figure = go.Figure()
    for entry in found["alone"]:
        tint = COLOURS[entry["mode"] % len(COLOURS)]
        _curve(figure, found, entry["mean_nats"], f"{names[entry['mode']]} alone", tint, "dot")
    for place, entry in enumerate(found["switched"]):
        label = f"{names[entry['before']]} → {names[entry['after']]}"
        tint = COLOURS[(len(found["alone"]) + place) % len(COLOURS)]
        _curve(figure, found, entry["mean_nats"], label, tint, "solid")
    figure.add_vline(x=0, line={"color": NEUTRAL, "width": 1, "dash": "dash"})
    _lines(figure, f"distance from the switch at position {found['position']}, tokens", "loss, nats/token")
    return figure


def _curve(
    figure: go.Figure, found: Numbers, y: Sequence[float | None], name: str, colour: str, dash: str
) -> None:
    figure.add_scatter(
        x=found["distances"],
        y=y,
        name=name,
        mode="lines",
        line={"color": colour, "width": 2, "dash": dash},
        connectgaps=True,
        hovertemplate=f"{name}: %{{y:.4f}} nats at %{{x}}<extra></extra>",
    )


def depth_figure(mixer: Numbers, head: int | None) -> go.Figure:
    """Weights of attention over depths: from each depth (down) on each it sees (across), of one head or their mean."""
    heads = mixer["weights"] if head is None else [mixer["weights"][head]]
    depths = range(len(mixer["sites"]))
    table = [
        [_mean([h[at][j] for h in heads if h[at] is not None and j < len(h[at])]) for j in depths]
        for at in depths
    ]
    names = [chart_text(site) for site in mixer["sites"]]
    figure = _map(table, [str(d) for d in depths], names, "depth looked at", "weight")
    figure.update_xaxes(type="category")
    return figure


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def experts_figure(pool: Numbers) -> go.Figure:
    """Load of the experts at each depth: share of the depth's slots, relative to an even load."""
    even = 1.0 / pool["experts"]
    table = [None if load is None else [share / even for share in load] for load in pool["load"]]
    names = [chart_text(site) for site in pool["sites"]]
    known = [v for row in table if row is not None for v in row]
    figure = _map(
        [row or [None] * pool["experts"] for row in table],
        list(range(pool["experts"])),
        names,
        "expert",
        "load, times even",
    )
    figure.update_traces(
        zmax=max([1.0, *known]), hovertemplate="expert %{x} at %{y}: %{z:.2f} times even<extra></extra>"
    )
    return figure


def diversity_figure(pools: Sequence[Numbers]) -> go.Figure:
    """How many experts each depth uses: exp of the entropy of its load, a line a pool."""
    figure = go.Figure()
    for place, pool in enumerate(pools):
        name = chart_text(f"{pool['sites'][0]} {pool['part']}".strip())
        figure.add_scatter(
            x=list(range(len(pool["sites"]))),
            y=pool["diversity"],
            name=f"{name} (of {pool['experts']})",
            mode="lines+markers",
            line={"color": COLOURS[place % len(COLOURS)], "width": 2},
            hovertemplate="%{y:.2f} experts at depth %{x}<extra></extra>",
        )
    _lines(figure, "depth of the pool", "diversity, experts")
    deepest = max((len(pool["sites"]) for pool in pools), default=1)
    figure.update_xaxes(tickformat="d", tick0=0, dtick=math.ceil(deepest / 12))
    figure.update_yaxes(rangemode="tozero")
    return figure


def _lines(figure: go.Figure, x: str, y: str) -> None:
    figure.update_layout(
        height=320,
        margin={"l": 56, "r": 16, "t": 12, "b": 56},
        legend={"orientation": "h", "yanchor": "bottom", "y": 1.02, "xanchor": "left", "x": 0, "title": ""},
    )
    figure.update_xaxes(title=x, zeroline=False)
    figure.update_yaxes(title=y, zeroline=False)


def rates_in_words(site: Numbers) -> str:
    """``run 0.22, skip 0.78`` - dearest choice first."""
    pairs = list(zip(site["choices"], site["shares"], strict=True))[::-1]
    return ", ".join(f"{name} {number(share)}" for name, share in pairs)
