"""Front: a study's candidates as a scatter with intervals, and fronts over one another; a click or a lasso chooses."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import plotly.graph_objects as go
import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from crossbreed.core.budget.certificate import Certificate
from crossbreed.core.ledger import QUANTITIES
from crossbreed.core.search.candidates import Candidate, Objectives, SpeedKey, crowded
from crossbreed.core.search.layers import Layer, with_speed
from crossbreed.core.search.membership import front_probabilities
from crossbreed.dashboard import choice, queries
from crossbreed.dashboard.choosers import FEWEST, MOST, one_candidate, several_candidates
from crossbreed.dashboard.formats import MISSING, candidate_formats
from crossbreed.dashboard.live import current_study, follow, objective
from crossbreed.dashboard.overlays import Overlay, choose_keys, choose_overlay, layer_table
from crossbreed.dashboard.queries import Results
from crossbreed.dashboard.tables import candidate_rows
from crossbreed.figures.front import (
    FEW_DOMINATED,
    MOST_DOMINATED,
    Marks,
    axes,
    drawable,
    front_figure,
    with_costs,
)
from crossbreed.figures.layers import layers_figure
from crossbreed.figures.words import (
    UNITS,
    code,
    counts,
    key_in_words,
    percent,
    short_name,
    si,
    size,
)
from crossbreed.storage.rows import StudyRow

CHART = "front-chart"
MODE_BAR = {
    "displaylogo": False,
    "toImageButtonOptions": {"format": "svg", "filename": "front"},
}
"""The camera saves a picture that scales; `crossbreed report --out front.png` makes a bitmap."""

SHOWN = {
    f"front and {FEW_DOMINATED} nearest": FEW_DOMINATED,
    f"front and {MOST_DOMINATED} nearest": MOST_DOMINATED,
    "front alone": 0,
}
"""Choice of what is drawn -> how many dominated candidates: the fewer, the sooner a browser answers."""

Drawable = tuple[list[Candidate], dict[str, int]]


def body() -> None:
    study = current_study()
    if study is None:
        return
    at = queries.stamp(study)
    stored = queries.speed_keys(study, at)
    cells = st.columns(4)
    x, y = _axes(cells, queries.results(study, at).objectives, stored)
    keys = choose_keys(queries.results(study, at).objectives, stored, (x, y))
    results = queries.measured_under(study, at, keys)
    chart, details = st.columns([2, 1], gap="medium")
    with chart:
        overlay = choose_overlay(cells[2:], study, results)
        _chart(Sheet(results, x, y, keys), overlay)
    with details:
        one_candidate(results, "front-chooser")
        _details(results.find(choice.trial_number()), results.objectives)
    layer_table(overlay)
    _together(results)
    if results.front:
        st.markdown("##### The front")
        table = results.kept("table of the front", lambda: candidate_rows(results.front, results.objectives))
        st.dataframe(
            table.drop(columns=["cause"]),
            hide_index=True,
            column_config=candidate_formats(table),
            placeholder=MISSING,
            alt="Candidates on the front",
        )
    if results.candidates:
        _downloads(study)


@dataclass(frozen=True)
class Sheet:
    """What a chart of the front is drawn from: results, what stands across and up, and the keys of speeds on its axes."""

    results: Results
    x: str
    y: str
    keys: Mapping[str, SpeedKey]

    def drawable(self, candidates: Sequence[Candidate], *, off_budget: bool, most: int) -> Drawable:
        """What can be drawn of these candidates, and how many cannot, by reason."""
        found = with_costs(candidates, (self.x, self.y))
        for name in {self.x, self.y} - set(self.results.objectives.names):
            if name in self.keys:
                found = with_speed(found, name, self.keys[name])
        return drawable(found, self.results.objectives, self.x, self.y, off_budget=off_budget, most=most)


def _downloads(study: StudyRow) -> None:
    """The study as files, made when they are asked for."""
    files = [
        ("Report", "html", "text/html"),
        ("CSV", "csv", "text/csv"),
        ("Parquet", "parquet", "application/octet-stream"),
        ("JSON", "json", "application/json"),
    ]
    with st.container(horizontal=True):
        for label, kind, mime in files:
            st.download_button(
                label,
                partial(_file, study, kind),
                f"{study.name}.{kind}",
                mime,
                key=f"save-{label}",
                icon=":material/download:",
                on_click="ignore",
            )


def _file(study: StudyRow, kind: str) -> str | bytes:
    # A study that could be run brings PyTorch with it, which nobody who only looks should wait for.
    from crossbreed.core.search.study import Study
    from crossbreed.figures import report

    opened = Study(queries.repository(), study)
    if kind == "csv":
        return str(opened.candidates().to_csv(index=False))
    made: dict[str, Callable[[Study], str | bytes]] = {
        "html": report.report_html,
        "parquet": report.report_parquet,
        "json": report.report_json,
    }
    return made[kind](opened)


def _axes(cells: Sequence[DeltaGenerator], objectives: Objectives, stored: Iterable[str]) -> tuple[str, str]:
    """What stands across and up: any objective, measured speed or quantity of the ledger, kept in the address."""
    usual_x, usual_y = axes(objectives)
    names = list(dict.fromkeys([*objectives.names, *stored, *QUANTITIES]))
    with cells[0]:
        x = choice.one_of("Across", "x", [usual_x, *(n for n in names if n != usual_x)], words=UNITS.get)
    with cells[1]:
        y = choice.one_of("Up", "y", [usual_y, *(n for n in names if n != usual_y)], words=UNITS.get)
    return x, y


def _chart(sheet: Sheet, overlay: Overlay) -> None:
    results, x, y = sheet.results, sheet.x, sheet.y
    wanted = _looks(x, y)
    together = choice.trial_numbers() or []

    def drawn_parts() -> list[tuple[Layer, list[Candidate], dict[str, int]]]:
        return [
            (each, *sheet.drawable(each.candidates, off_budget=wanted.off_budget, most=wanted.most))
            for each in overlay.layers
        ]

    asked = (x, y, tuple(sorted(sheet.keys.items())), wanted)
    # Fronts of other studies change without these results.
    parts = results.kept(("parts", asked), drawn_parts) if overlay.plain else drawn_parts()
    shown, hidden = [c for _, some, _ in parts for c in some], Counter[str]()
    for _, _, reasons in parts:
        hidden.update(reasons)
    if not shown:
        st.info(
            "No candidate is trained and measured yet. The chart fills while `crossbreed search` runs; see the page "
            "Candidates for what happened so far.",
            icon=":material/hourglass:",
        )
        _caption(sheet, shown, hidden)
        return
    # How many a logarithmic axis could not show, by axis.
    below = {name: sum(c.means[name] <= 0 for c in shown) for name in (x, y)}
    drawn: dict[str, Any] = {
        "log_x": wanted.log_x and not below[x],
        "log_y": wanted.log_y and not below[y],
        "line": set(results.objectives.names) == {x, y},
        "selected": choice.trial_number(),
        "together": together,
    }
    if overlay.plain:
        figure = results.kept(
            ("front", asked, tuple(below.values()), drawn["selected"], tuple(together)),
            lambda: _front_figure(results, shown, x, y, wanted, drawn),
        )
    else:
        layers = [replace(each, candidates=tuple(some)) for each, some, _ in parts]
        figure = layers_figure(layers, x, y, marks=Marks(wanted.size_by), **drawn)
    st.plotly_chart(
        figure,
        key=CHART,
        on_select=_selected,
        config=MODE_BAR,
        alt=f"{UNITS.get(y, y)} against {UNITS.get(x, x)} for {len(shown)} candidates",
    )
    for name, log in ((x, wanted.log_x), (y, wanted.log_y)):
        if log and below[name]:
            st.caption(
                f"The axis is linear: {below[name]} candidates have a {UNITS.get(name, name)} of zero or below, which a logarithmic "
                "one cannot show."
            )
    if wanted.surely and not overlay.plain:
        st.caption("Certainty is that of one study's own front; it is not shown for several fronts at once.")
    _caption(sheet, shown, hidden)


def _front_figure(
    results: Results, shown: Sequence[Candidate], x: str, y: str, wanted: Looks, drawn: Mapping[str, Any]
) -> go.Figure:
    sure = front_probabilities(results.candidates, results.objectives) if wanted.surely else None
    families = [c.row.family for c in results.candidates]
    return front_figure(shown, families, x, y, marks=Marks(wanted.size_by, sure), **drawn)


@dataclass(frozen=True)
class Looks:
    """How the chart is drawn; ``most``: dominated candidates."""

    size_by: str | None
    most: int
    log_x: bool
    log_y: bool
    off_budget: bool
    surely: bool


def _looks(x: str, y: str) -> Looks:
    with st.expander("How it is drawn"):
        left, right = st.columns(2)
        with left:
            size_by = choice.one_of("Size of markers", "size", ["equal", *QUANTITIES], words=UNITS.get)
        with right:
            show = choice.one_of("Candidates shown", "show", list(SHOWN))
        log_x = choice.switch("Log axis across", "log", True, f"A logarithmic axis for {UNITS.get(x, x)}.")
        log_y = choice.switch("Log axis up", "logy", False, f"A logarithmic axis for {UNITS.get(y, y)}.")
        off = choice.switch(
            "Show off budget",
            "off",
            False,
            "Candidates whose realised cost left the budget, as crosses. They are never on the front.",
        )
        sure = choice.switch(
            "Opacity by certainty",
            "sure",
            False,
            "Opacity is the probability of standing on the front, for candidates of three fresh seeds or more.",
        )
    return Looks(None if size_by == "equal" else size_by, SHOWN[show], log_x, log_y, off, sure)


def _selected() -> None:
    """Take the candidate of the marker that was clicked, or those in a box or lasso together; what is drawn of other studies
    has no number, and a click beside all markers changes nothing."""
    selection: Any = st.session_state[CHART]["selection"]
    data = [p["customdata"] for p in selection["points"] if p.get("customdata")]
    numbers = [d[0] if isinstance(d, list | tuple) else d["0"] for d in data]
    numbers = list(dict.fromkeys(int(n) for n in numbers if n is not None))
    if not numbers:
        return
    if selection["box"] or selection["lasso"]:
        choice.choose_trials(sorted(numbers))
    else:
        choice.choose_trial(numbers[-1])


def _together(results: Results) -> None:
    """The candidates chosen together, as a table, and the way to the page that compares them."""
    st.markdown("##### Chosen together")
    chosen = several_candidates(
        results, "together-chooser", placeholder="choose here, or draw a box or lasso in the chart"
    )
    if not chosen:
        return
    table = candidate_rows(chosen, results.objectives)
    st.dataframe(
        table.drop(columns=["cause", "origin", "hash"]),
        hide_index=True,
        column_config=candidate_formats(table),
        placeholder=MISSING,
        alt="Candidates chosen together",
    )
    if FEWEST <= len(chosen) <= MOST:
        numbers = ",".join(str(c.row.number) for c in chosen)
        st.page_link(
            "views/compare.py",
            label="Compare these",
            icon=":material/compare_arrows:",
            query_params={"study": choice.study_name() or "", "with": numbers},
        )
    else:
        st.caption(f"{FEWEST} to {MOST} candidates can be compared; {len(chosen)} are chosen.")


def _caption(sheet: Sheet, shown: Sequence[Candidate], hidden: Mapping[str, int]) -> None:
    objectives = sheet.results.objectives
    words = [f"{len(shown)} candidates shown" + (f"; not shown: {counts(hidden)}." if hidden else ".")]
    words.append(
        "Means over fresh seeds; bars are 95% Student t intervals, from 3 seeds on. Faint markers are dominated; open stars "
        "are provisional, from the one run that chose the candidate."
    )
    if len(objectives.names) > 2:
        others = ", ".join(UNITS.get(n, n) for n in objectives.names)
        words.append(f"The front is over {others}, so no line is drawn through two of them.")
    on_axes = {n: k for n, k in sheet.keys.items() if n in (sheet.x, sheet.y)}
    for name, key in {**objectives.keys, **on_axes}.items():
        # A device's name comes from a worker, so it is shown as code.
        words.append(f"{UNITS.get(name, name)}, measured under one key: {code(key_in_words(key))}.")
    timed = crowded(shown, objectives)
    if timed:
        first = timed[0]
        words.append(
            f"{len(timed)} of the speeds were not timed alone; candidate {first.number}, seed {first.seed}: "
            f"{code(first.neighbours)}."
        )
    st.caption("  \n".join(words))


def _details(candidate: Candidate | None, objectives: Objectives) -> None:
    if candidate is None:
        number = choice.trial_number()
        if number is not None:
            st.warning(f"Candidate {number} is not in this study; choose another.")
        else:
            st.info("Click a marker, or choose above, to see a candidate.", icon=":material/ads_click:")
        return
    row = candidate.row
    with st.container(border=True, key="details"):
        st.markdown(f"#### Candidate {row.number}" + (" :material/star:" if candidate.on_front else ""))
        st.markdown(code(row.family))
        for name in objectives.names:
            objective(candidate, name)
        st.table(_facts(candidate), hide_header=True, border="horizontal")
        if row.cause:
            st.caption(code(row.cause))
        st.page_link(
            "views/candidate.py",
            label=f"Open candidate {row.number}",
            icon=":material/account_tree:",
            query_params={"study": choice.study_name() or "", "trial": str(row.number)},
        )


def _facts(candidate: Candidate) -> dict[str, str]:
    ledger = candidate.row.ledger or {}
    facts = {
        "state": candidate.row.state.replace("_", " "),
        "parameters": si(ledger.get("parameters"), 4),
        "training FLOPs/token": si(ledger.get("training_flops_per_token"), 4),
        "memory": size(ledger.get("memory_bytes")),
    }
    if candidate.row.certificate is not None:
        for r in Certificate.model_validate(candidate.row.certificate).quantities:
            facts[f"Δ {short_name(r.quantity)}"] = percent(r.residual)
    return facts


if __name__ == "__main__":
    follow(body, lambda: queries.shown(choice.study_name() or ""))
