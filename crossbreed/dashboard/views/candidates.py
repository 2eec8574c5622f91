"""Candidates: all of a study's candidates as a table, with state and cause; choosing a row chooses the candidate."""

from __future__ import annotations

import pandas as pd
import streamlit as st

from crossbreed.dashboard import choice, queries
from crossbreed.dashboard.choosers import one_candidate
from crossbreed.dashboard.formats import DASH, MISSING, candidate_formats
from crossbreed.dashboard.live import current_study, follow
from crossbreed.dashboard.queries import Results
from crossbreed.dashboard.tables import candidate_rows, in_order
from crossbreed.figures.words import CONVENTIONS, UNITS, code, counts, key_in_words

TABLE = "candidates-table"
ROWS_SHOWN = 16
PAGE = 1_000
"""Rows that are sent to the browser at once."""


def body() -> None:
    study = current_study()
    if study is None:
        return
    at = queries.stamp(study)
    results, state = queries.results(study, at), queries.progress(study, at)
    if not results.candidates:
        st.info("No candidate is drawn yet; they appear here while `crossbreed search` runs.")
        return
    st.markdown(f"**{len(results.own)} candidates**: {counts(state.trials)}")
    one_candidate(results, "candidates-chooser")
    table = _page(results)
    st.session_state["candidates-order"] = table["#"].tolist()
    st.dataframe(
        table,
        hide_index=True,
        height=min(len(table) + 1, ROWS_SHOWN + 1) * 35 + 3,
        column_config=candidate_formats(table),
        key=TABLE,
        on_select=_chosen,
        selection_mode="single-row",
        placeholder=MISSING,
        alt="Candidates of the study",
    )
    for name, key in results.objectives.keys.items():
        st.caption(f"{UNITS.get(name, name)}, measured under one key: {code(key_in_words(key))}.")
    st.caption(f"{DASH} {CONVENTIONS}")
    _link()


def _page(results: Results) -> pd.DataFrame:
    """The rows to show; of thousands, those asked for."""
    ordered = results.kept("order", lambda: in_order(results.candidates))
    first = 0
    if len(ordered) > PAGE:
        starts = range(0, len(ordered), PAGE)
        pages = {f"{i + 1} to {min(i + PAGE, len(ordered))}": i for i in starts}
        first = pages[
            choice.one_of("Rows", "rows", list(pages), "The front comes first, then all by number.")
        ]
    shown = ordered[first : first + PAGE]
    return results.kept(("rows", first), lambda: candidate_rows(shown, results.objectives))


def _chosen() -> None:
    rows = st.session_state[TABLE]["selection"]["rows"]
    order = st.session_state["candidates-order"]
    if rows and rows[0] < len(order):
        choice.choose_trial(order[rows[0]])


def _link() -> None:
    number = choice.trial_number()
    if number is None:
        st.caption("Tick a row, or choose above, to open a candidate.")
        return
    st.page_link(
        "views/candidate.py",
        label=f"Open candidate {number}",
        icon=":material/account_tree:",
        query_params={"study": choice.study_name() or "", "trial": str(number)},
    )


if __name__ == "__main__":
    follow(body, lambda: queries.shown(choice.study_name() or ""))
