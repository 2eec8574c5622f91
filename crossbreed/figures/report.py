"""A study as one HTML file that opens without a server: front, intervals, certificates, what matters, what failed and why."""

from __future__ import annotations

import importlib.resources
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import plotly.graph_objects as go
import plotly.offline
import yaml
from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from crossbreed import __version__
from crossbreed.core.ledger import QUANTITIES
from crossbreed.core.search import candidates, genes
from crossbreed.core.search.candidates import OWN, Candidate, Objectives, crowded, front_volume
from crossbreed.core.search.membership import front_probabilities
from crossbreed.core.search.study import Study
from crossbreed.figures.budgets import certified, furthest, residuals_figure
from crossbreed.figures.compare import EFFECTS_SHOWN, effects_figure
from crossbreed.figures.front import axes, drawable, front_figure
from crossbreed.figures.words import (
    CONVENTIONS,
    UNITS,
    amount,
    counts,
    key_in_words,
    mean_with_interval,
    number,
    percent,
    raced,
    short_name,
)

LATEST_RUNS = 100
CROWDED_NAMED = 3
"""Speeds that were not timed alone of which the report says who else was at work; a study may have thousands."""
COSTS = ("parameters", "training_flops_per_token", "memory_bytes")
PROGRESS = ("resumed_step",)
"""What an environment tells of a run's course and not of its software."""


@dataclass(frozen=True)
class Table:
    headings: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True)
class Section:
    """A heading with figures (HTML), a table, texts that unfold, and notes."""

    title: str
    figures: Sequence[Markup] = ()
    table: Table | None = None
    texts: Sequence[tuple[str, str]] = ()
    notes: Sequence[str] = ()


def report_html(study: Study) -> str:
    """The whole report. Names, notes and tracebacks are text in it, whatever they hold; it loads nothing from anywhere."""
    objectives, found = _read(study)
    template = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True).from_string(
        importlib.resources.files(__package__).joinpath("report.html.j2").read_text()
    )
    return template.render(
        name=study.row.name,
        about=_about(study),
        written=f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
        version=__version__,
        database=study.repository.database.shown,
        plotly=Markup(f"<script>{plotly.offline.get_plotlyjs()}</script>"),
        numbers=_numbers(study, found, objectives),
        sections=[
            _front(found, objectives),
            _members(found, objectives),
            _certificates(found),
            _budget([c for c in found if c.point == OWN]),
            _genes(study, found, objectives),
            _failures(study),
            _environment(study),
            Section(
                "Study file", texts=[("The whole file", yaml.safe_dump(study.row.spec, sort_keys=False))]
            ),
        ],
    )


def front_chart(study: Study) -> go.Figure:
    """The front of a study as a figure: score, or the first objective, against the first other one."""
    objectives, found = _read(study)
    return _front_chart(found, objectives)[0]


def _read(study: Study) -> tuple[Objectives, list[Candidate]]:
    """The study's candidates at every operating point that competes, and its objectives with the keys of its speeds."""
    rows = study.repository.candidates(study.row.id, points=study.objectives.points)
    objectives = study.objectives.over(rows)
    return objectives, candidates.read(rows, objectives)


def _front_chart(found: Sequence[Candidate], objectives: Objectives) -> tuple[go.Figure, dict[str, int]]:
    x, y = axes(objectives)
    shown, hidden = drawable(found, objectives, x, y, off_budget=False)
    figure = front_figure(
        shown,
        [c.row.family for c in found],
        x,
        y,
        log_x=bool(shown) and all(c.means[x] > 0 for c in shown),
        line=len(objectives.names) == 2,
        selected=None,
    )
    return _on_paper(figure), hidden


def _on_paper(figure: go.Figure) -> go.Figure:
    """The looks of a figure outside the dashboard, which has a theme of its own."""
    figure.update_layout(template="plotly_white", font={"family": "system-ui, sans-serif"})
    return figure


def _html(figure: go.Figure, key: str) -> Markup:
    # Plotly's own text is made by the charts, which escape names; the script is loaded once, above.
    return Markup(
        figure.to_html(
            full_html=False,
            include_plotlyjs=False,
            div_id=key,
            config={"displaylogo": False, "responsive": True},
        )
    )


def _about(study: Study) -> str:
    spec = study.row.spec
    task = spec.get("task", {})
    settings = ", ".join(f"{k} {v}" for k, v in (task.get("params") or {}).items())
    return (
        f"Task {task.get('name')}"
        + (f" ({settings})" if settings else "")
        + f", begun {study.row.created_at:%Y-%m-%d}."
    )


def _numbers(study: Study, found: Sequence[Candidate], objectives: Objectives) -> list[tuple[str, str]]:
    own = [c for c in found if c.point == OWN]
    states = Counter(c.row.state for c in own)
    shown = [("candidates", str(len(own))), ("on the front", str(sum(c.on_front for c in found)))]
    shown += [(state.replace("_", " "), str(n)) for state, n in states.most_common() if state != "done"]
    point = study.row.reference_point
    if point:
        at = ", ".join(f"{UNITS.get(k, k)} {number(v)}" for k, v in point.items())
        shown.append((f"hypervolume from {at}", number(front_volume(found, objectives, point))))
    return shown


def _front(found: Sequence[Candidate], objectives: Objectives) -> Section:
    if not any(c.eligible for c in found):
        return Section("Front", notes=["No candidate is trained and measured yet."])
    figure, hidden = _front_chart(found, objectives)
    notes = [
        "Means over fresh seeds with 95% Student t intervals, from 3 seeds on. Open stars are provisional."
    ]
    if hidden:
        notes.append(f"Not shown: {counts(hidden)}.")
    notes += [
        f"{UNITS.get(name, name)}, measured under one key: {key_in_words(key)}."
        for name, key in objectives.keys.items()
    ]
    timed = crowded(found, objectives)
    notes += [
        f"Not timed alone: candidate {c.number}, seed {c.seed}, {UNITS.get(c.metric, c.metric)}: {c.neighbours}."
        for c in timed[:CROWDED_NAMED]
    ]
    if len(timed) > CROWDED_NAMED:
        notes.append(f"{len(timed) - CROWDED_NAMED} more of the speeds were not timed alone.")
    return Section("Front", figures=[_html(figure, "front")], notes=notes)


def _members(found: Sequence[Candidate], objectives: Objectives) -> Section:
    surely = front_probabilities(found, objectives)
    members = [c for c in found if c.on_front]
    points = ["point"] if len(objectives.points) > 1 else []
    headings = [
        "#",
        "family",
        *points,
        "seeds",
        *(UNITS.get(n, n) for n in objectives.names),
        "on the front in",
    ]
    ruled = {q["quantity"] for c in members for q in (c.row.certificate or {}).get("quantities", ())}
    # What the budget rules stands in the certificates.
    costs = [n for n in COSTS if n not in objectives.names and n not in ruled]
    headings += [*(UNITS.get(n, n) for n in costs), "hash"]
    rows = []
    for c in members:
        probability = surely.get(c.key)
        cells = [
            f"{c.row.number}{' (provisional)' if c.provisional else ''}",
            c.row.family,
            *([c.point] if points else []),
            str(len(c.done)),
        ]
        cells += [mean_with_interval(c, name) for name in objectives.names]
        cells.append("–" if probability is None else f"{probability:.0%}")
        cells += [amount(n, (c.row.ledger or {}).get(n)) for n in costs]
        rows.append([*cells, c.row.hash[:12]])
    return Section(
        "Members of the front",
        table=Table(headings, rows),
        notes=["On the front in: of draws of all means from their t distributions; unknown below 3 seeds."],
    )


def _certificates(found: Sequence[Candidate]) -> Section:
    """What the members of the front cost, and how far that is from what the budget asks: a line a quantity, so that a sheet of
    paper holds it."""
    members = {c.row.number: c for c in found if c.on_front}
    rows = []
    for each in certified(list(members.values())):
        for q in each.nominal.quantities:
            rows.append(
                [
                    str(each.number),
                    short_name(q.quantity),
                    f"{'±' if q.kind == 'match' else '≤ +'}{100 * q.tolerance:.3g}%",
                    amount(q.quantity, q.target),
                    amount(q.quantity, q.value),
                    f"{percent(q.residual)} {'✓' if q.ok else '✗'}",
                    percent(each.realised.get(q.quantity)),
                ]
            )
    headings = ["#", "quantity", "allowed", "reference", "value", "nominal residual", "realised residual"]
    notes = ["Nominal: before training. Realised: at the rates that trained routers chose, mean over runs."]
    return Section(
        "Certificates of the members",
        table=Table(headings, rows) if rows else None,
        notes=[*notes, CONVENTIONS],
    )


def _budget(found: Sequence[Candidate]) -> Section:
    shown = certified(found)
    if not shown:
        return Section("Budget", notes=["No candidate has a certificate yet."])
    off = [c for c in shown if c.standing != "feasible"]
    table = Table(
        ["#", "family", "standing", "furthest out", "why"],
        [
            [
                str(c.number),
                c.family,
                c.standing,
                f"{short_name(c.nominal.worst().quantity)} {percent(c.nominal.worst().residual)}",
                c.nominal.reason or "the rates that trained routers chose",
            ]
            for c in off
        ],
    )
    return Section(
        "Budget",
        figures=[_html(_on_paper(residuals_figure(furthest(shown))), "residuals")],
        table=table if off else None,
    )


def _genes(study: Study, candidates: Sequence[Candidate], objectives: Objectives) -> Section:
    found = genes.in_study(study.repository, study.row.id, candidates, objectives)
    figures = []
    for name in objectives.names:
        effects = [e for e in found.effects if e.objective == name]
        if name not in QUANTITIES and effects:
            figures.append(_html(_on_paper(effects_figure(effects[:EFFECTS_SHOWN])), f"genes-{name}"))
    about = "Over pairs of candidates that differ in one choice alone, with 95% intervals; p after Holm's correction on hover."
    none = "No gene has three pairs of candidates that differ in it alone."
    return Section("Which gene matters", figures=figures, notes=[about if figures else none])


def _failures(study: Study) -> Section:
    failures = study.repository.failures(study.row.id)
    if not failures:
        return Section("What failed", notes=["Nothing."])
    rows = [[str(f.count), f.state.replace("_", " "), f.cause or "–", f.latest.key] for f in failures]
    texts = [(f"Traceback of {f.latest.key}", f.latest.traceback) for f in failures if f.latest.traceback]
    return Section("What failed", table=Table(["runs", "state", "cause", "latest"], rows), texts=texts)


def _environment(study: Study) -> Section:
    runs = study.repository.latest_runs(study.row.id, LATEST_RUNS)
    found: dict[str, set[str]] = {}
    for run in runs:
        for name, value in {**_flat(run.environment or {}), **run.identities}.items():
            found.setdefault(name, set()).add(str(value))
    rows = [[name, ", ".join(sorted(values))] for name, values in found.items()]
    rows += [
        [f"plugin file {p.path}", f"sha256 {p.sha256}"] for p in study.repository.plugin_files(study.row.id)
    ]
    note = f"Of the {len(runs)} runs that began last."
    return Section("Environment", table=Table(["what", "version"], rows) if rows else None, notes=[note])


def _flat(environment: Mapping[str, Any]) -> dict[str, str]:
    """Versions, which backends were used, how fast rivals were, and which were compared with the reference before they were used."""
    plain = {
        k: str(v) for k, v in environment.items() if isinstance(v, str | int | float) and k not in PROGRESS
    }
    used = sorted(set((environment.get("backends") or {}).values()))
    checked = {
        f"{p['mixer']} was checked against its reference": f"{p['backend']} in {p['dtype']}"
        for p in environment.get("probes") or ()
    }
    libraries = environment.get("libraries") or {}
    return plain | ({"backends": ", ".join(used)} if used else {}) | libraries | checked | raced(environment)


def report_parquet(study: Study) -> bytes:
    """The table that ``Study.candidates`` gives, as the bytes of a Parquet file."""
    found: bytes = study.candidates().to_parquet(None, index=False)
    return found


def report_json(study: Study) -> str:
    """All candidates as JSON records: the table that ``Study.candidates`` gives, missing values null."""
    return json.dumps(json.loads(study.candidates().to_json(orient="records")), indent=2)
