"""Compare: two to six candidates side by side - what differs, what it is worth, how they learned - and which gene matters."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import streamlit as st

from crossbreed.core.ledger import QUANTITIES
from crossbreed.core.search.candidates import Candidate
from crossbreed.core.search.pairs import compare
from crossbreed.dashboard import choice, queries, tables
from crossbreed.dashboard.choosers import FEWEST, MOST, several_candidates
from crossbreed.dashboard.live import current_study, follow
from crossbreed.dashboard.queries import Detail, Results
from crossbreed.figures.compare import (
    EFFECTS_SHOWN,
    bars_figure,
    effects_figure,
    overlaid_figure,
    pairs_figure,
)
from crossbreed.figures.words import UNITS, code
from crossbreed.storage.rows import Stamp, StudyRow

FIRST_SHOWN = 3
"""Members of the front that are compared where nobody chose."""
COSTS = ("parameters", "training_flops_per_token", "memory_bytes")
PLAIN = {"displaylogo": False}


def body() -> None:
    study = current_study()
    if study is None:
        return
    at = queries.stamp(study)
    results = queries.results(study, at)
    if len(results.own) < FEWEST:
        st.info(f"A comparison needs {FEWEST} candidates; they appear here while `crossbreed search` runs.")
        return
    chosen = _choose(results)
    if len(chosen) < FEWEST:
        st.info(f"Choose {FEWEST} to {MOST} candidates above.", icon=":material/compare_arrows:")
    else:
        details = [queries.detail(study, c.row.number, at) for c in chosen]
        left, right = st.columns(2, gap="medium")
        with left:
            _differing(details)
        with right:
            _curves(details)
        _bars(chosen, results)
        _pairs(chosen, results)
    _genes(study, at, results)


def _choose(results: Results) -> list[Candidate]:
    if choice.trial_numbers() is None:
        ranked = [c.row.number for c in (*results.front, *results.own)]
        choice.choose_trials(list(dict.fromkeys(ranked))[:FIRST_SHOWN])
    return several_candidates(results, "trials-chooser", placeholder=f"choose {FEWEST} to {MOST}", most=MOST)


def _differing(details: Sequence[Detail]) -> None:
    st.markdown("##### What differs")
    table, alike = tables.differing_fields({d.trial.trial.number: d.trial.trial.genome for d in details})
    if table.empty:
        st.caption("Nothing: these are one architecture.")
    else:
        st.dataframe(
            table, hide_index=True, height=380, placeholder="", alt="Fields of the genomes that differ"
        )
    st.caption(
        f"{alike} fields of the canonical genomes are alike. Places are stage.block.sublayer; a dash: the field belongs to a part that is not there."
    )


def _curves(details: Sequence[Detail]) -> None:
    st.markdown("##### Learning curves")
    curves = {run: points for d in details for run, points in d.curves.items()}
    if not any(curves.values()):
        st.caption("No run has reported a loss yet.")
        return
    runs = {d.trial.trial.number: d.trial.runs for d in details}
    silent = [n for n, found in runs.items() if not any(curves.get(r.run.id) for r in found)]
    st.plotly_chart(
        overlaid_figure(runs, curves),
        key="overlaid",
        config=PLAIN,
        alt="Learning curves, a colour a candidate",
    )
    if silent:
        st.caption(f"No run has reported a loss: candidate {', '.join(f'#{n}' for n in silent)}.")


def _bars(chosen: Sequence[Candidate], results: Results) -> None:
    st.markdown("##### On common scales")
    names = list(dict.fromkeys([*results.objectives.names, *COSTS]))
    numbers = tuple(c.row.number for c in chosen)
    # A chart each, so that they stand below each other on a phone.
    for column, name in zip(st.columns(len(names)), names, strict=True):
        with column:
            st.plotly_chart(
                results.kept(("bars", name, numbers), partial(bars_figure, chosen, name)),
                key=f"bars-{name}",
                config=PLAIN,
                alt=f"{UNITS.get(name, name)}, a bar a candidate",
            )
    st.caption(
        "Means over seeds with 95% Student t intervals from 3 seeds on. Costs are of the ledger at nominal rates; one that is an "
        "objective is at the rates that trained routers chose."
    )


def _pairs(chosen: Sequence[Candidate], results: Results) -> None:
    st.markdown("##### Paired differences on shared seeds")
    compared = compare(chosen, results.objectives)
    names = list(dict.fromkeys(c.objective for c in compared if c.paired is not None))
    for column, name in zip(st.columns(max(1, len(names))), names, strict=False):
        found = [c for c in compared if c.objective == name]
        with column:
            st.plotly_chart(
                pairs_figure(found),
                key=f"pairs-{name}",
                config=PLAIN,
                alt=f"Paired differences in {UNITS.get(name, name)}",
            )
    if not names:
        st.caption(
            "These candidates share no seed with a value. `crossbreed compare` trains the seeds that are missing."
        )
        return
    st.caption(
        "First minus second over the seeds that both have, with 95% intervals; green: the first is better, red: the second, "
        "grey: not told apart (p of all pairs together after Holm's correction, 5%). A hollow dot has too few seeds."
    )
    # Of two candidates without a shared seed the same is said for every objective.
    for sentence in dict.fromkeys(c.sentence for c in compared if c.paired is None):
        st.caption(sentence)


def _genes(study: StudyRow, at: Stamp, results: Results) -> None:
    st.markdown("##### Which gene matters, over the whole study")
    found = queries.effects(study, at)
    measured = [n for n in results.objectives.names if n not in QUANTITIES]
    shown = {n: [e for e in found.effects if e.objective == n] for n in measured}
    if not found.effects:
        st.caption("No gene has three pairs of candidates that differ in it alone yet.")
    for name, effects in shown.items():
        if effects:
            st.plotly_chart(
                effects_figure(effects[:EFFECTS_SHOWN]),
                key=f"genes-{name}",
                config=PLAIN,
                alt=f"Effects of genes on {UNITS.get(name, name)}",
            )
            if len(effects) > EFFECTS_SHOWN:
                st.caption(
                    f"{len(effects) - EFFECTS_SHOWN} less sure effects are not shown; see `crossbreed study genes`."
                )
    if found.untested:
        st.caption(f"Varied, but never in three such pairs: {code(', '.join(found.untested))}.")


if __name__ == "__main__":
    follow(body, lambda: queries.shown(choice.study_name() or "", choice.trial_numbers() or ()))
