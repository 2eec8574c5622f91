"""The panels of a candidate on other lengths: throughput against context, and scores beyond the training length."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from crossbreed.core.errors import ConfigError
from crossbreed.core.genome import Architecture, parse
from crossbreed.core.lab.operating_points import Limit, longest
from crossbreed.core.search.candidates import SCORE, Candidate, SpeedKey
from crossbreed.core.search.lengths import judged, metrics, timed
from crossbreed.core.search.study_file import StudyFile
from crossbreed.dashboard import choice, queries
from crossbreed.dashboard.queries import Detail
from crossbreed.figures.lengths import contexts_figure, lengths_figure
from crossbreed.figures.words import UNITS, code, key_in_words
from crossbreed.storage.rows import RunDetail, StudyRow
from crossbreed.storage.states import ENDED

PLAIN = {"displaylogo": False}
MORE = (
    "`evaluation: {lengths: [1, 2, 4, 8, 16]}` in the study file judges and times trained runs on texts so many times as long; a "
    "finished study takes it up when `crossbreed search` runs again."
)


def panels(study: StudyRow, candidate: Candidate, detail: Detail) -> None:
    """Both panels, of the runs whose numbers count."""
    counted = {seed.run_id for seed in candidate.counted}
    runs = [run for run in detail.trial.runs if run.run.id in counted]
    asked = StudyFile.read(study.spec, f"study {study.name!r}").evaluation.lengths
    left, right = st.columns(2, gap="medium")
    with left:
        st.markdown("##### Throughput by context length")
        _contexts(study, runs)
    with right:
        st.markdown("##### Longer texts than in training")
        _lengths(runs)
    st.caption("  \n".join(_missing(detail, runs, asked)))


def _contexts(study: StudyRow, runs: Sequence[RunDetail]) -> None:
    keys = _keys(study)
    found = {name: values for name, key in keys.items() if (values := timed(runs, name, key))}
    if not found:
        st.caption("No run whose numbers count has a measured speed.")
        return
    st.plotly_chart(
        contexts_figure(found, _tokens(next(iter(keys.values())))),
        key="contexts",
        config=PLAIN,
        alt="Throughput against context length, a line a phase",
    )
    how = key_in_words(next(iter(keys.values()))).partition(", ")[2]
    st.caption(f"Measured under {code(how)}, and under the same at other lengths.")


def _keys(study: StudyRow) -> dict[str, SpeedKey]:
    """Each speed with the key under which the study has most measurements: one for all speeds, phases apart."""
    stored = queries.speed_keys(study, queries.stamp(study))
    usual = next((keys[0][1:] for keys in stored.values()), ())
    return {name: key for name, keys in stored.items() for key in keys if key[1:] == usual}


def _tokens(key: SpeedKey) -> int:
    """The training length, at which speeds are measured unless a point says otherwise."""
    return key[2]


def _lengths(runs: Sequence[RunDetail]) -> None:
    names = metrics(runs)
    by = choice.one_of("Judged by", "by", names, words=lambda n, _: UNITS.get(n, n.replace("_", " ")))
    found = judged(runs, by)
    if not found:
        st.caption("No run is judged.")
        return
    label = "score" if by == SCORE else by.replace("_", " ")
    st.plotly_chart(
        lengths_figure(found, label), key="lengths", config=PLAIN, alt=f"{label} against the length of texts"
    )


def _missing(detail: Detail, runs: Sequence[RunDetail], asked: Sequence[int]) -> list[str]:
    """What is not in the charts, and why; how to measure more."""
    if len(asked) == 1:
        return [f"Only the training length is measured. {MORE}"]
    have = {each.times for each in judged(runs, SCORE)}
    words, limit = [], _limit(detail)
    length = _training_length(runs)
    for times in (n for n in asked if n not in have):
        if limit is not None and length is not None and times * length > limit.tokens:
            words.append(
                f"{times}×: not applicable; mixer {code(limit.mixer)} reads texts of {limit.tokens} tokens at most."
            )
        elif detail.trial.trial.state in ENDED and not runs:
            words.append(f"{times}×: not applicable; no run of this candidate came so far.")
        else:
            words.append(f"{times}×: not judged yet.")
    return [*words, "Means over the runs that count; bars are 95% Student t intervals, from 3 seeds on."]


def _training_length(runs: Sequence[RunDetail]) -> int | None:
    return next((m.tokens for run in runs if (p := run.points.get("own")) for m in p.speeds), None)


def _limit(detail: Detail) -> Limit | None:
    """The longest text that the candidate reads; None where none is too long, or where its mixers are not known here."""
    registry = queries.registry()
    try:
        architecture = parse(Architecture, detail.trial.trial.genome, "the genome")
        return longest(architecture, registry)
    except ConfigError:
        return None
