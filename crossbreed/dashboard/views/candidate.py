"""Candidate: one architecture in full - drawing, certificate, curves, operating points, ledger, runs, commands."""

from __future__ import annotations

import shlex

import streamlit as st

from crossbreed.core.budget.certificate import Certificate
from crossbreed.core.contracts.capabilities import Axis
from crossbreed.core.errors import ConfigError
from crossbreed.core.genome import Architecture, parse, to_yaml
from crossbreed.core.search.candidates import Candidate, Objectives
from crossbreed.dashboard import choice, lengths, losses, queries, tables
from crossbreed.dashboard.choosers import one_candidate
from crossbreed.dashboard.formats import MISSING
from crossbreed.dashboard.live import NUMBER, current_study, follow, objective
from crossbreed.dashboard.queries import Detail
from crossbreed.figures.drawing import architecture_figure
from crossbreed.figures.front import curves_figure
from crossbreed.figures.palette import INK
from crossbreed.figures.words import CONVENTIONS, amount, code, short_name
from crossbreed.storage.rows import StudyRow

POINTS_SHOWN = 9


def body() -> None:
    study = current_study()
    if study is None:
        return
    at = queries.stamp(study)
    results = queries.results(study, at)
    numbers = [c.row.number for c in results.own]
    if not numbers:
        st.info("No candidate is drawn yet; they appear here while `crossbreed search` runs.")
        return
    if choice.trial_number() is None:
        choice.choose_trial(([c.row.number for c in results.front] or numbers)[0])
    candidate = one_candidate(results, "trial-chooser")
    if candidate is None:
        st.warning(f"Candidate {choice.trial_number()} is not in this study; choose another.")
        return
    detail = queries.detail(study, candidate.row.number, at)
    _summary(candidate, results.objectives)
    drawing, budget = st.columns(2, gap="medium")
    with drawing:
        _architecture(detail)
    with budget:
        _certificate(detail)
        _commands(study, detail)
    curves, points = st.columns([2, 3], gap="medium")
    with curves:
        _curves(detail)
    with points:
        _points(detail)
    lengths.panels(study, candidate, detail)
    losses.panels(candidate, detail)
    _ledger(detail)
    _runs(detail)


def _summary(candidate: Candidate, objectives: Objectives) -> None:
    row = candidate.row
    place = "on the front" if candidate.on_front else row.state.replace("_", " ")
    place += " provisionally" if candidate.provisional else ""
    words = f"{code(row.family)}, {place}, from {code(row.origin)}, {code('hash ' + row.hash[:12])}"
    st.markdown(f"### Candidate {row.number}\n{words}")
    if row.cause:
        st.warning(code(row.cause))
    ledger = row.ledger or {}
    with st.container(horizontal=True):
        for name in objectives.names:
            objective(candidate, name, width=NUMBER)
        for name in ("parameters", "training_flops_per_token", "memory_bytes"):
            st.metric(short_name(name), amount(name, ledger.get(name)), width=NUMBER)


def _architecture(detail: Detail) -> None:
    st.markdown("##### Architecture")
    trial = detail.trial.trial
    try:
        architecture = parse(Architecture, trial.genome, f"the genome of candidate {trial.number}")
    except ConfigError as error:
        st.warning(code(str(error)))
        return
    figure = architecture_figure(architecture, _axis, INK.get(st.context.theme.type or ""))
    st.plotly_chart(figure, key="drawing", config={"displayModeBar": False}, alt="The blocks along depth")
    st.caption(
        "Blue mixes along the sequence, green along features, purple along depth; orange routers choose. "
        "Hover for all settings."
    )
    with st.expander("Genome as YAML"):
        st.code(to_yaml(architecture), language="yaml")


def _axis(mixer: str) -> Axis | str:
    registry = queries.registry()
    if mixer not in registry.names("mixer"):
        return "unknown"
    axis: Axis = registry.descriptor("mixer", mixer).capabilities.axis
    return axis


def _certificate(detail: Detail) -> None:
    st.markdown("##### Budget certificate")
    data = detail.trial.trial.certificate
    if data is None:
        st.caption("None was issued: the candidate could not be matched.")
        return
    certificate = Certificate.model_validate(data)
    realised = tables.realised_residuals(detail.trial.runs)
    st.table(tables.certificate_rows(certificate, realised), hide_index=True, border="horizontal")
    verdict = "Feasible" if certificate.feasible else "Infeasible"
    dimensions = ", ".join(f"{k} {v}" for k, v in certificate.dimensions.items())
    st.caption(
        f"{verdict} at nominal rates, found by {certificate.path.replace('_', ' ')}"
        + (f" with {code(dimensions)}" if dimensions else "")
        + ". Residuals are signed and relative; realised ones are at the rates that trained routers chose, mean over seeds."
    )
    if certificate.reason:
        st.caption(code(certificate.reason))


def _commands(study: StudyRow, detail: Detail) -> None:
    st.markdown("##### Reproduce")
    st.caption("With the study file (page Studies) saved as study.yaml:")
    db = ["--db", queries.database_shown()]
    plugins = [word for path in dict.fromkeys(p.path for p in detail.plugins) for word in ("--plugin", path)]
    genome = detail.trial.trial.hash[:12]
    lines = [
        ["crossbreed", "show", genome, *db, *plugins],
        ["crossbreed", "compare", genome, "--budget", "study.yaml", "--seeds", "3", *db, *plugins],
    ]
    st.code("\n".join(map(shlex.join, lines)), language="shell", wrap_lines=True)


def _curves(detail: Detail) -> None:
    st.markdown("##### Learning curves")
    runs = [r for r in detail.trial.runs if detail.curves[r.run.id]]
    if not runs:
        st.caption("No run has reported a loss yet.")
        return
    st.plotly_chart(
        curves_figure(runs, detail.curves), key="curves", config={"displaylogo": False}, alt="Learning curves"
    )


def _points(detail: Detail) -> None:
    st.markdown("##### Operating points")
    table = tables.point_rows(detail.trial.runs)
    if table.empty:
        st.caption("Nothing is measured yet.")
        return
    st.dataframe(
        table,
        hide_index=True,
        height=min(len(table) + 1, POINTS_SHOWN + 1) * 35 + 3,
        column_config={
            "value": st.column_config.NumberColumn(format="%.5g"),
            "repeats": st.column_config.NumberColumn(width="small"),
            "measured under": st.column_config.TextColumn(width="large"),
        },
        placeholder=MISSING,
        alt="Scores and speeds by seed and operating point",
    )
    st.caption(
        "`own` is the model at its own decisions; points that the study file names stand on charts beside it; `forced:r` runs a "
        "share r; `length:n` reads texts n times as long; `fitted:...` decides by routers fitted after training, judged on every second evaluation row."
    )


def _ledger(detail: Detail) -> None:
    st.markdown("##### Ledger")
    ledger = detail.trial.trial.ledger
    if ledger is None:
        st.caption("No cost is stored: the candidate could not be built.")
        return
    flops, amounts = st.columns(2, gap="medium")
    flops.table(tables.ledger_totals(ledger), hide_index=True, border="horizontal")
    flops.caption(
        f"At {ledger['batch']} x {ledger['tokens']} tokens in {code(str(ledger['dtype']))}, nominal rates. {CONVENTIONS}"
    )
    amounts.table(tables.ledger_amounts(ledger), hide_index=True, border="horizontal")
    parts = tables.ledger_parts(ledger)
    compact = st.column_config.NumberColumn(format="compact")
    st.dataframe(
        parts,
        hide_index=True,
        column_config={c: compact for c in parts.columns if "FLOPs" in c}
        | {"parameters": st.column_config.NumberColumn(format="localized")},
        alt="The ledger by part",
    )


def _runs(detail: Detail) -> None:
    st.markdown("##### Runs")
    if not detail.trial.runs:
        st.caption("It has no runs.")
        return
    runs = tables.run_rows(detail.trial.runs)
    tokens = {"training tokens": st.column_config.NumberColumn(format="localized")}
    st.dataframe(
        runs, hide_index=True, column_config=tokens, placeholder=MISSING, alt="Runs of this candidate"
    )
    for run in detail.trial.runs:
        if run.run.traceback:
            with st.expander(f"Traceback of seed {run.run.seed}"):
                st.code(run.run.traceback, language=None, wrap_lines=True)


def _numbers() -> tuple[int, ...]:
    number = choice.trial_number()
    return () if number is None else (number,)


if __name__ == "__main__":
    follow(body, lambda: queries.shown(choice.study_name() or "", _numbers()))
