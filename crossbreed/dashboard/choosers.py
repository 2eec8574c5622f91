"""Choosers of candidates that need no mouse: what a click or a lasso does on a chart, they do from the keyboard."""

from __future__ import annotations

import streamlit as st

from crossbreed.core.search.candidates import Candidate
from crossbreed.dashboard import choice
from crossbreed.dashboard.queries import Results

FEWEST, MOST = 2, 6
"""Candidates that are compared at once."""


def one_candidate(results: Results, key: str) -> Candidate | None:
    """The chosen candidate; None when none is, or none of the study's own."""
    numbers = [c.row.number for c in results.own]
    wanted, front = choice.trial_number(), {c.row.number for c in results.front}
    st.session_state[key] = wanted if wanted in numbers else None

    def chosen() -> None:
        if (number := st.session_state[key]) is not None:
            choice.choose_trial(number)

    st.selectbox(
        "Candidate",
        numbers,
        index=None,
        key=key,
        on_change=chosen,
        format_func=lambda number: f"{number}{' (on the front)' if number in front else ''}",
        placeholder="choose a candidate",
        width=260,
    )
    return results.find(wanted)


def several_candidates(
    results: Results, key: str, *, placeholder: str, most: int | None = None
) -> list[Candidate]:
    """The candidates chosen together, ``most`` at most; says which of those asked for are not in the study."""
    by_number = {c.row.number: c for c in results.own}
    front = {c.row.number for c in results.front}
    wanted = choice.trial_numbers() or []
    missing = [n for n in wanted if n not in by_number]
    if missing:
        st.warning(f"Not in this study: candidate {', '.join(map(str, missing))}.")
    st.session_state[key] = [n for n in wanted if n in by_number][:most]
    st.multiselect(
        "Candidates",
        list(by_number),
        key=key,
        max_selections=most,
        on_change=lambda: choice.choose_trials(st.session_state[key]),
        format_func=lambda n: f"{n}{' ★' if n in front else ''} {by_number[n].row.family}",
        placeholder=placeholder,
    )
    return [by_number[n] for n in st.session_state[key]]
