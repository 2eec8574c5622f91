"""Front: a study's candidates as a scatter with intervals; clicking a marker chooses its candidate."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import streamlit as st

from crossbreed.core.budget.certificate import Certificate
from crossbreed.core.ledger import QUANTITIES
from crossbreed.core.search.candidates import Candidate, Objectives, crowded
from crossbreed.core.search.membership import front_probabilities
from crossbreed.core.search.study import Study
from crossbreed.dashboard import choice, queries
from crossbreed.dashboard.formats import candidate_formats
from crossbreed.dashboard.live import current_study, follow, objective
from crossbreed.dashboard.queries import Results
from crossbreed.dashboard.tables import candidate_rows
from crossbreed.figures import report
from crossbreed.figures.front import Marks, axes, drawable, front_figure, with_costs
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
    "modeBarButtonsToRemove": ["select2d", "lasso2d"],
    "toImageButtonOptions": {"format": "svg", "filename": "front"},
}
"""The camera saves a picture that scales; `crossbreed report --out front.png` makes a bitmap."""


def body() -> None:
    study = current_study()
    if study is None:
        return
    results = queries.results(study, queries.stamp(study))
    chart, details = st.columns([2, 1], gap="medium")
    with chart:
        _chart(results)
    with details:
        _details(results.find(choice.trial_number()), results.objectives)
    if results.front:
        st.markdown("##### The front")
        table = candidate_rows(results.front, results.objectives)
        st.dataframe(
            table.drop(columns=["cause"]),
            hide_index=True,
            column_config=candidate_formats(table),
            placeholder="",
            alt="Candidates on the front",
        )
    if results.candidates:
        _downloads(study)


def _downloads(study: StudyRow) -> None:
    """The study as files, made when they are asked for."""
    opened = Study(queries.repository(), study)
    files: list[tuple[str, str, str, Callable[[], str | bytes]]] = [
        ("Report", f"{study.name}.html", "text/html", lambda: report.report_html(opened)),
        ("CSV", f"{study.name}.csv", "text/csv", lambda: str(opened.candidates().to_csv(index=False))),
        (
            "Parquet",
            f"{study.name}.parquet",
            "application/octet-stream",
            lambda: report.report_parquet(opened),
        ),
        ("JSON", f"{study.name}.json", "application/json", lambda: report.report_json(opened)),
    ]
    with st.container(horizontal=True):
        for label, name, mime, make in files:
            st.download_button(
                label, make, name, mime, key=f"save-{label}", icon=":material/download:", on_click="ignore"
            )


def _axes(objectives: Objectives) -> tuple[str, str, str | None]:
    """What stands across, up, and in the size of markers: any objective or quantity of the ledger, kept in the address."""
    usual_x, usual_y = axes(objectives)
    names = list(dict.fromkeys([*objectives.names, *QUANTITIES]))
    across, up, size = st.columns(3)
    words = UNITS.get
    with across:
        x = choice.one_of("Across", "x", [usual_x, *(n for n in names if n != usual_x)], words=words)
    with up:
        y = choice.one_of("Up", "y", [usual_y, *(n for n in names if n != usual_y)], words=words)
    with size:
        size_by = choice.one_of("Size of markers", "size", ["equal", *QUANTITIES], words=words)
    return x, y, None if size_by == "equal" else size_by


def _chart(results: Results) -> None:
    x, y, size_by = _axes(results.objectives)
    log, off, sure = st.columns(3)
    with log:
        log_wanted = choice.switch("Log axis", "log", True, f"A logarithmic axis for {UNITS.get(x, x)}.")
    with off:
        off_wanted = choice.switch(
            "Show off budget",
            "off",
            False,
            "Candidates whose realised cost left the budget, as crosses. They are never on the front.",
        )
    with sure:
        sure_wanted = choice.switch(
            "Opacity by certainty",
            "sure",
            False,
            "Opacity is the probability of standing on the front, for candidates of three fresh seeds or more.",
        )
    found = with_costs(results.candidates, (x, y))
    shown, hidden = drawable(found, results.objectives, x, y, off_budget=off_wanted)
    if shown:
        figure = front_figure(
            shown,
            [c.row.family for c in results.candidates],
            x,
            y,
            log_x=log_wanted and all(c.means[x] > 0 for c in shown),
            line=set(results.objectives.names) == {x, y},
            selected=choice.trial_number(),
            marks=Marks(
                size_by, front_probabilities(results.candidates, results.objectives) if sure_wanted else None
            ),
        )
        st.plotly_chart(
            figure,
            key=CHART,
            on_select=_clicked,
            selection_mode="points",
            config=MODE_BAR,
            alt=f"{UNITS.get(y, y)} against {UNITS.get(x, x)} for {len(shown)} candidates",
        )
    else:
        st.info(
            "No candidate is trained and measured yet. The chart fills while `crossbreed search` runs; see the page "
            "Candidates for what happened so far.",
            icon=":material/hourglass:",
        )
    _caption(results.objectives, shown, hidden)


def _clicked() -> None:
    """Take the candidate of the marker that was clicked; a click beside them changes nothing."""
    event: Any = st.session_state[CHART]
    points = [p for p in event["selection"]["points"] if p.get("customdata")]
    if points:
        data = points[-1]["customdata"]
        choice.choose_trial(int(data[0] if isinstance(data, list | tuple) else data["0"]))


def _caption(objectives: Objectives, shown: Sequence[Candidate], hidden: dict[str, int]) -> None:
    words = [f"{len(shown)} candidates shown" + (f"; not shown: {counts(hidden)}." if hidden else ".")]
    words.append(
        "Means over fresh seeds; bars are 95% Student t intervals, from 3 seeds on. Faint markers are dominated; open stars "
        "are provisional, from the one run that chose the candidate."
    )
    if len(objectives.names) > 2:
        others = ", ".join(UNITS.get(n, n) for n in objectives.names)
        words.append(f"The front is over {others}, so no line is drawn through two of them.")
    for name, key in objectives.keys.items():
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
            st.warning(f"Candidate {number} is not in this study; click a marker to choose another.")
        else:
            st.info("Click a marker to see its candidate.", icon=":material/ads_click:")
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
    follow(body, lambda: queries.pulse(choice.study_name() or ""))
