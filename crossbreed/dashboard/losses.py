"""The panels of a candidate about where its loss comes from: by class of positions, and along documents."""

from __future__ import annotations

import streamlit as st

from crossbreed.core.search.candidates import Candidate
from crossbreed.core.search.losses import MEASURES, Measure, along, classes
from crossbreed.dashboard import choice
from crossbreed.dashboard.queries import Detail
from crossbreed.figures.losses import LABELS, classes_figure, positions_figure

PLAIN = {"displaylogo": False}


def panels(candidate: Candidate, detail: Detail) -> None:
    """Both panels, of the runs whose numbers count."""
    counted = {seed.seed for seed in candidate.counted}
    found = [row for row in detail.breakdowns if row.seed in counted]
    st.markdown("##### Where the loss comes from")
    if not found:
        st.caption("No run whose numbers count has an evaluation that was stored by class and position.")
        return
    left, right = st.columns([2, 3], gap="medium")
    with left:
        chosen = choice.one_of("Mean of", "of", MEASURES, words=lambda name, _: LABELS[name])
        of: Measure = "accuracy" if chosen == "accuracy" else "loss_nats"
        st.plotly_chart(
            classes_figure(classes(found, of), of),
            key="loss-classes",
            config=PLAIN,
            alt=f"{LABELS[of]} by class of positions",
        )
    with right:
        st.plotly_chart(
            positions_figure(along(found, of), of),
            key="loss-positions",
            config=PLAIN,
            alt=f"{LABELS[of]} by position",
        )
    st.caption(
        "Over all labelled positions, those too that the score does not count. Classes are the task's, at the training length; "
        "positions restart with each document."
    )
