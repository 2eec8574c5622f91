"""Choosers of candidates that need no mouse: what a click or a lasso does on a chart, they do from the keyboard.

Of thousands of candidates a browser takes seconds to list, so only some are listed and any other is chosen by its number.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import streamlit as st

from crossbreed.core.search.candidates import Candidate
from crossbreed.dashboard import choice
from crossbreed.dashboard.queries import Results

FEWEST, MOST = 2, 6
"""Candidates that are compared at once."""
LISTED = 200
"""Candidates that a chooser lists; of more, those chosen already, then the front, then the first."""


def one_candidate(results: Results, key: str) -> Candidate | None:
    """The chosen candidate; None when none is, or none of the study's own."""
    wanted, front = choice.trial_number(), _front(results)
    found = results.find(wanted)
    st.session_state[key] = None if found is None else wanted
    listed = _listed(results, [] if found is None else [found.row.number])

    def chosen() -> None:
        for number in _numbers([st.session_state[key]]):
            choice.choose_trial(number)

    st.selectbox(
        "Candidate",
        listed,
        index=None,
        key=key,
        on_change=chosen,
        format_func=lambda number: f"{number}{' (on the front)' if number in front else ''}",
        placeholder="choose a candidate",
        width=260,
        accept_new_options=len(listed) < len(results.own),
        help=_others(results, listed),
    )
    return found


def several_candidates(
    results: Results, key: str, *, placeholder: str, most: int | None = None
) -> list[Candidate]:
    """The candidates chosen together, ``most`` at most; says which of those asked for are not in the study."""
    front = _front(results)
    wanted = choice.trial_numbers() or []
    missing = [n for n in wanted if results.find(n) is None]
    if missing:
        st.warning(f"Not in this study: candidate {', '.join(map(str, missing))}.")
    found = [c for n in wanted if (c := results.find(n)) is not None][:most]
    st.session_state[key] = [c.row.number for c in found]
    listed = _listed(results, st.session_state[key])

    def words(number: int) -> str:
        candidate = results.find(number)
        family = "" if candidate is None else candidate.row.family
        return f"{number}{' ★' if number in front else ''} {family}"

    st.multiselect(
        "Candidates",
        listed,
        key=key,
        max_selections=most,
        on_change=lambda: choice.choose_trials(_numbers(st.session_state[key])),
        format_func=words,
        placeholder=placeholder,
        accept_new_options=len(listed) < len(results.own),
        help=_others(results, listed),
    )
    return found


def _front(results: Results) -> set[int]:
    return results.kept("numbers on the front", lambda: {c.row.number for c in results.front})


def _listed(results: Results, first: Iterable[int]) -> list[int]:
    """The numbers that a chooser lists: all, by number, or of thousands the likely ones."""
    if len(results.own) <= LISTED:
        return [c.row.number for c in results.own]
    likely = (*first, *(c.row.number for c in results.front), *(c.row.number for c in results.own[:LISTED]))
    return list(dict.fromkeys(likely))[:LISTED]


def _others(results: Results, listed: Sequence[int]) -> str | None:
    left = len(results.own) - len(listed)
    return f"{left} more candidates are not listed; type a number." if left else None


def _numbers(chosen: Iterable[int | str | None]) -> list[int]:
    """What was chosen, as numbers; what was typed and is none is left out."""
    texts = [str(c) for c in chosen if c is not None]
    return list(dict.fromkeys(int(t) for t in texts if t.isascii() and t.isdigit()))
