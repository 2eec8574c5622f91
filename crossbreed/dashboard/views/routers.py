"""Routers: what the routers of a trained run decide, where, over which words, and what it has to do with the loss."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd
import plotly.graph_objects as go
import streamlit as st

from crossbreed.dashboard import choice, queries
from crossbreed.dashboard.live import current_study, follow
from crossbreed.figures import routing as charts
from crossbreed.figures.palette import INK
from crossbreed.figures.words import code, percent
from crossbreed.storage.rows import Analysed, AnalyticsRow, Stamp, StudyRow

Kinds = Mapping[str, AnalyticsRow]


def body() -> None:
    study = current_study()
    if study is None:
        return
    at = queries.stamp(study)
    found = queries.analysed(study, at)
    if not found:
        st.info(
            "Nobody has looked at routers in this study yet. A search looks at every routed run when it has timed it; for one "
            f"that is trained already: {code(f'crossbreed routers {study.name}/NUMBER/SEED')}.",
            icon=":material/alt_route:",
        )
        return
    chosen = _choose(found)
    kinds = queries.analytics(study, chosen, at)
    _rates(study, chosen, kinds, at)
    for show in (_text, _where, _entropy, _modes, _depth, _experts, _agreement):
        show(kinds)
    st.caption("Every number is defined in the documentation, page Router analytics.")


def _choose(found: list[Analysed]) -> Analysed:
    """The run and operating point to show, kept in the address."""
    numbers = list(dict.fromkeys(f.number for f in found))
    wanted = choice.trial_number()
    left, middle, right = st.columns(3)
    with left:
        if wanted not in numbers:
            if wanted is not None:
                st.caption(f"Nobody has looked at the routers of candidate {wanted}.")
            wanted = numbers[0]
        st.session_state["routers-trial"] = wanted
        st.selectbox("Candidate", numbers, key="routers-trial", on_change=_trial_chosen)
    mine = [f for f in found if f.number == wanted]
    with middle:
        seed = choice.one_of("Seed", "seed", list(dict.fromkeys(str(f.seed) for f in mine)))
    mine = [f for f in mine if str(f.seed) == seed]
    with right:
        point = choice.one_of("Operating point", "point", [f.point for f in mine])
    return next(f for f in mine if f.point == point)


def _trial_chosen() -> None:
    choice.choose_trial(st.session_state["routers-trial"])


def _payload(kinds: Kinds, kind: str) -> Mapping[str, Any] | None:
    row = kinds.get(kind)
    return None if row is None else row.payload


def _plot(figure: go.Figure, key: str, alt: str) -> None:
    st.plotly_chart(figure, key=key, config={"displaylogo": False}, alt=alt)


def _rates(study: StudyRow, chosen: Analysed, kinds: Kinds, at: Stamp) -> None:
    any_row = next(iter(kinds.values()))
    candidate = queries.results(study, at).find(chosen.number)
    family = "" if candidate is None else f"{code(candidate.row.family)}, "
    st.markdown(
        f"{family}{any_row.rows} evaluation rows, after {any_row.tokens:,} training tokens, at {code(chosen.point)}"
    )
    decisions = _payload(kinds, "decisions")
    if decisions is None:
        st.caption("Nothing is routed here; experts and attention over depths are below.")
        return
    for cell, site in zip(st.columns(min(6, len(decisions["sites"]))), decisions["sites"], strict=False):
        cell.metric(
            f"{site['site']} · {site['router']}", percent(1 - site["shares"][0]).lstrip("+"), charts.rates_in_words(site),
            delta_color="off", delta_arrow="off",
        )  # fmt: skip


def _text(kinds: Kinds) -> None:
    found = _payload(kinds, "text")
    if found is None:
        return
    st.markdown("##### Decisions over the text")
    names = [site["site"] for site in found["sites"]]
    left, right = st.columns([2, 3], vertical_alignment="bottom")
    with left:
        name = choice.one_of("Site", "site", names)
    site = found["sites"][names.index(name)]
    with right:
        by_entropy = site["entropy"] is not None and choice.switch(
            "Colour by entropy",
            "entropy",
            False,
            "Colour words by what the router read instead of what it chose.",
        )
    _plot(
        charts.text_figure(found, site, by_entropy=by_entropy, ink=INK.get(st.context.theme.type or "")),
        "text",
        "The text, coloured by decision",
    )
    what = "the entropy that was read" if by_entropy else f"{code(' < '.join(site['choices']))} by colour"
    st.caption(
        f"A cell a word, {what}; hover for class, entropy and loss. Words without colour were not asked."
    )


def _where(kinds: Kinds) -> None:
    decisions = _payload(kinds, "decisions")
    if decisions is None:
        return
    left, right = st.columns([3, 2], gap="medium")
    with left:
        st.markdown("##### Where they fire")
        _plot(charts.positions_figure(decisions["sites"]), "positions", "Rate by site and position")
    with right:
        st.markdown("##### On what they fire")
        _plot(charts.classes_figure(decisions["sites"]), "classes", "Rate by site and class of token")
    st.caption("The share of asked tokens with a choice above the cheapest. Sites are stage.block.depth.")


def _entropy(kinds: Kinds) -> None:
    decisions = _payload(kinds, "decisions")
    sites = [s for s in decisions["sites"] if s["entropy"] is not None] if decisions is not None else []
    if not sites:
        return
    st.markdown("##### Entropy, rate and loss")
    name = choice.one_of("Site that reads entropy", "reads", [s["site"] for s in sites])
    site = next(s for s in sites if s["site"] == name)
    left, right = st.columns(2, gap="medium")
    with left:
        _plot(
            charts.entropy_figure(site["entropy"]),
            "entropy",
            "Rate and loss by entropy",
        )
        related = site["entropy"]["with_loss"]
        st.caption(f"Entropy and loss: r {_number(related['pearson'])}, rank {_number(related['rank'])}.")
    with right:
        _plot(charts.threshold_figure(site["entropy"]), "threshold", "Rate against threshold")
        st.caption("What any threshold would give on these tokens, at the edges of tenths.")


def _modes(kinds: Kinds) -> None:
    decisions, switches = _payload(kinds, "decisions"), _payload(kinds, "switches")
    modes = [s for s in decisions["sites"] if s["kind"] == "mode"] if decisions is not None else []
    if not modes:
        return
    left, right = st.columns(2, gap="medium")
    with left:
        st.markdown("##### Modes along the text")
        _plot(charts.timeline_figure(modes[0]), "timeline", "Share of each mode along the text")
    if switches is not None:
        with right:
            st.markdown("##### Loss around a switch")
            _plot(charts.switches_figure(switches), "switches", "Loss around a switch of modes")


def _depth(kinds: Kinds) -> None:
    found = _payload(kinds, "depth_attention")
    if found is None:
        return
    st.markdown("##### Attention over depths")
    left, right = st.columns(2)
    with left:
        name = choice.one_of("Mixer", "mixer", [m["mixer"] for m in found["mixers"]])
    mixer = next(m for m in found["mixers"] if m["mixer"] == name)
    with right:
        head = choice.one_of("Head", "head", ["mean", *map(str, range(len(mixer["weights"])))])
    _plot(
        charts.depth_figure(mixer, None if head == "mean" else int(head)),
        "depths",
        "Weights on earlier depths",
    )


def _experts(kinds: Kinds) -> None:
    found = _payload(kinds, "experts")
    if found is None:
        return
    st.markdown("##### Experts")
    left, right = st.columns(2, gap="medium")
    with left:
        names = [f"{pool['sites'][0]} {pool['part']}".strip() for pool in found["pools"]]
        name = choice.one_of("Pool", "pool", names)
        pool = found["pools"][names.index(name)]
        _plot(charts.experts_figure(pool), "experts", "Load of the experts by depth")
        st.caption(
            f"{percent(pool['share_used_at_04']).lstrip('+')} of the experts are used at 0.4 of the depths or more, "
            f"{percent(pool['share_used_at_7']).lstrip('+')} at 7 or more."
        )
    with right:
        _plot(charts.diversity_figure(found["pools"]), "diversity", "Diversity of experts by depth")


def _agreement(kinds: Kinds) -> None:
    found = _payload(kinds, "agreement")
    if found is None:
        return
    st.markdown("##### Full forward against one-token decode")
    rows = [
        {
            "site": site["site"],
            "decisions": site["decisions"],
            "flips": site["flips"],
            "agreement": None if site["agreement"] is None else percent(site["agreement"]).lstrip("+"),
        }
        for site in found["sites"]
    ]
    st.dataframe(pd.DataFrame(rows), hide_index=True, placeholder="", alt="Agreement with decode by site")
    st.caption(
        f"{found['rows']} rows of {found['tokens']} tokens, both deciding freely; logits differ by at most "
        f"{found['max_logit_difference']:.2g} where the largest is {found['max_logit']:.3g}."
    )


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


if __name__ == "__main__":
    follow(body, lambda: queries.pulse(choice.study_name() or ""))
