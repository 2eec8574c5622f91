"""What is chosen - study, candidate, switches - kept in the page's address, so that a link restores the view.

Streamlit drops the address's parameters when another page is opened from the menu; the session remembers them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import streamlit as st

STUDY, TRIAL, SEVERAL = "study", "trial", "with"


def study_name() -> str | None:
    return _get(STUDY)


def choose_study(name: str) -> None:
    """Choose a study; candidates of another one are let go."""
    if study_name() not in (None, name):
        _drop(TRIAL)
        _drop(SEVERAL)
    _set(STUDY, name)


def trial_number() -> int | None:
    """The chosen candidate's number, None when none is chosen or the address holds no number."""
    text = _get(TRIAL)
    return int(text) if text is not None and text.isascii() and text.isdigit() else None


def choose_trial(number: int) -> None:
    _set(TRIAL, str(number))


def trial_numbers() -> list[int] | None:
    """The candidates chosen together, in order; None when none were chosen. What is no number is left out."""
    text = _get(SEVERAL)
    if text is None:
        return None
    return list(dict.fromkeys(int(t) for t in text.split(",") if t.isascii() and t.isdigit()))


def choose_trials(numbers: Sequence[int]) -> None:
    _set(SEVERAL, ",".join(map(str, numbers)))


def one_of(
    label: str,
    name: str,
    options: Sequence[str],
    hint: str | None = None,
    words: Callable[[str, str], str] | None = None,
) -> str:
    """A chooser whose choice is part of the address; the first option where none, or none of these, is asked for. ``words``:
    option and itself again -> how it is shown."""
    key = f"one-{name}"
    wanted = st.session_state.get(key) or _get(name)
    st.session_state[key] = wanted if wanted in options else options[0]
    shown = (lambda option: words(option, option)) if words is not None else str
    chosen = str(st.selectbox(label, options, key=key, help=hint, format_func=shown))
    _set(name, chosen)
    return chosen


def several_of(label: str, name: str, options: Sequence[str], hint: str, placeholder: str) -> list[str]:
    """A chooser of any number of options, whose choice is part of the address; what is asked for and none of them is left
    out."""
    key = f"several-{name}"
    asked = st.query_params.get_all(name) or st.session_state.get(f"chosen-{name}", [])
    st.session_state[key] = [o for o in st.session_state.get(key, asked) if o in options]
    chosen = list(st.multiselect(label, options, key=key, help=hint, placeholder=placeholder))
    st.session_state[f"chosen-{name}"] = chosen
    if st.query_params.get_all(name) != chosen:
        st.query_params[name] = chosen
    return chosen


def switch(label: str, name: str, default: bool, hint: str) -> bool:
    """A toggle whose position is part of the address."""
    key = f"switch-{name}"
    if key not in st.session_state:
        st.session_state[key] = (_get(name) or str(int(default))) == "1"
    chosen = bool(st.toggle(label, key=key, help=hint))
    _set(name, str(int(chosen)))
    return chosen


def _get(name: str) -> str | None:
    found: str | None = st.query_params.get(name, st.session_state.get(f"chosen-{name}"))
    if found is not None:
        _set(name, found)
    return found


def _set(name: str, value: str) -> None:
    st.session_state[f"chosen-{name}"] = value
    if st.query_params.get(name) != value:
        st.query_params[name] = value


def _drop(name: str) -> None:
    st.session_state.pop(f"chosen-{name}", None)
    st.query_params.pop(name, None)
