"""Following the database: a page is shown again when what it shows has moved, and says what is wrong when it cannot."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable
from typing import Literal

import streamlit as st

from crossbreed.core.errors import CrossbreedError, StorageError
from crossbreed.core.search.candidates import Candidate
from crossbreed.dashboard import choice, queries
from crossbreed.figures.words import UNITS, amount, code, interval, seeds
from crossbreed.storage.rows import StudyRow

SECONDS = 2.0
REST = 10
"""A page that changes all the time stands still for at least this many times what showing it took, so that a few tabs beside a
search leave the server time to answer."""
NUMBER = 168
"""Pixels of a large number among others: two stand side by side on a phone."""


def follow(body: Callable[[], None], pulse: Callable[[], Hashable]) -> None:
    """Show ``body``, and show it again, without a reload, whenever ``pulse()`` moves.

    ``pulse`` is asked every SECONDS; nothing else is read or sent while it stands still. A page that takes long to show is shown
    less often.
    """
    began, before = time.monotonic(), _beat(pulse)
    try:
        body()
    except StorageError as error:
        unavailable(error)
    except CrossbreedError as error:
        st.error(code(str(error)), icon=":material/error:")
    ended = time.monotonic()
    # The first call of the watch comes right behind the body.
    due = max(began + SECONDS / 2, ended + REST * (ended - began))

    @st.fragment(run_every=SECONDS)
    def watch() -> None:
        if time.monotonic() > due and _beat(pulse) != before:
            st.rerun()

    watch()


def _beat(pulse: Callable[[], Hashable]) -> Hashable:
    try:
        return pulse()
    except StorageError as error:
        return str(error)


def unavailable(error: StorageError) -> None:
    """What to show while the database cannot be read."""
    st.error(
        f"The database cannot be read: {code(str(error))}  \nThis page looks again every {SECONDS:.0f} seconds.",
        icon=":material/database_off:",
    )


def current_study() -> StudyRow | None:
    """The chosen study, read afresh; says what to do and returns None when there is none."""
    found = queries.studies()
    if not found:
        st.info(
            "This database holds no study yet. Start one: `crossbreed init`, then `crossbreed search study.yaml`.",
            icon=":material/science:",
        )
        return None
    name = choice.study_name()
    study = next((s for s in found if s.name == name), None)
    if study is None:
        st.warning(f"There is no study {code(str(name))} in this database; choose one above.")
    return study


def objective(candidate: Candidate, name: str, width: int | Literal["stretch"] = "stretch") -> None:
    """An objective's mean in large, its interval under it."""
    count = len(candidate.values[name])
    known = candidate.intervals[name] is not None
    note = f"{interval(candidate, name)} (95%, {seeds(count)})" if known else f"{seeds(count)}, no interval"
    mean = amount(name, candidate.means[name])
    st.metric(
        UNITS.get(name, name),
        mean,
        note if count else None,
        delta_color="off",
        delta_arrow="off",
        width=width,
    )
