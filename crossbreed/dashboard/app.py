"""The dashboard's entry point, run by Streamlit: the frame around every page."""

from __future__ import annotations

from pathlib import Path

import streamlit as st

from crossbreed.core.errors import StorageError
from crossbreed.dashboard import choice, queries
from crossbreed.dashboard.live import SECONDS, unavailable
from crossbreed.figures.words import code

VIEWS = Path(__file__).parent / "views"
_ICON = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 16 16" fill="none" stroke-width="2" stroke-linecap="round">'
    '<path stroke="#0F85C9" d="M4 1c0 7 8 7 8 14"/><path stroke="#E69F00" d="M12 1c0 7-8 7-8 14"/></svg>'
)
"""Drawn here: browsers would fetch one of Streamlit's named icons from another host."""

_STYLE = """<style>
.stMainBlockContainer { padding-top: 4.5rem; padding-bottom: 3rem; }
[data-testid="stCaptionContainer"] { color: inherit; opacity: 0.85; }
[data-testid="stCaptionContainer"] code { color: inherit; }
[data-testid="stMetricDelta"] { font-size: 0.72rem; }
.st-key-drawing, .st-key-text { overflow-x: auto; }
.st-key-drawing > div { min-width: 520px; }
.st-key-text > div { min-width: 860px; }
</style>"""
"""Streamlit leaves a third of a small screen empty above a page, and captions too pale to read, code in them more so. Drawings
full of words keep the width that those need, and scroll where a screen is narrower."""


def main() -> None:
    st.set_page_config(page_title="crossbreed", page_icon=_ICON, layout="wide")
    st.html(_STYLE)
    page = st.navigation(
        [
            st.Page(VIEWS / "studies.py", title="Studies", icon=":material/science:", default=True),
            st.Page(VIEWS / "front.py", title="Front", icon=":material/scatter_plot:"),
            st.Page(VIEWS / "candidates.py", title="Candidates", icon=":material/table_rows:"),
            st.Page(VIEWS / "candidate.py", title="Candidate", icon=":material/account_tree:"),
            st.Page(VIEWS / "routers.py", title="Routers", icon=":material/alt_route:"),
            st.Page(VIEWS / "compare.py", title="Compare", icon=":material/compare_arrows:"),
            st.Page(VIEWS / "budgets.py", title="Budgets", icon=":material/balance:"),
            st.Page(VIEWS / "health.py", title="Health", icon=":material/monitor_heart:"),
        ],
        position="top",
    )
    try:
        names = [study.name for study in queries.studies()]
    except StorageError:
        _wait()
        return
    _header(names)
    page.run()


def _header(names: list[str]) -> None:
    """The chooser of the study, and which database this is."""
    left, right = st.columns([2, 3], vertical_alignment="bottom")
    right.caption(f"{code(queries.database_shown())}, read-only")
    if not names:
        return
    # The newest study where none is asked for; one that is asked for and not there stays asked for, and the page says so.
    wanted = choice.study_name()
    if wanted is None:
        choice.choose_study(names[-1])
        wanted = names[-1]
    st.session_state["study-chooser"] = wanted if wanted in names else None
    left.selectbox(
        "Study",
        names[::-1],
        index=0 if wanted in names else None,
        key="study-chooser",
        on_change=_chosen,
        placeholder="choose a study",
    )


def _chosen() -> None:
    name = st.session_state["study-chooser"]
    if name is not None:
        choice.choose_study(name)


@st.fragment(run_every=SECONDS)
def _wait() -> None:
    """Until the database is there, then the page as asked for."""
    try:
        queries.studies()
    except StorageError as error:
        unavailable(error)
        return
    st.rerun()


if __name__ == "__main__":
    main()
