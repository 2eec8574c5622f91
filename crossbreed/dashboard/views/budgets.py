"""Budgets: how closely every candidate meets the study's budget, what cannot meet it and why, and whether costs come true."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import pandas as pd
import streamlit as st

from crossbreed.core.search.candidates import OWN, Candidate
from crossbreed.dashboard import choice, queries
from crossbreed.dashboard.live import current_study, follow
from crossbreed.dashboard.queries import Results
from crossbreed.figures.budgets import (
    WIDEST,
    Certified,
    agreement_figure,
    certified,
    furthest,
    residuals_figure,
)
from crossbreed.figures.words import CONVENTIONS, code, counts, percent, short_name

PLAIN = {"displaylogo": False}


def body() -> None:
    study = current_study()
    if study is None:
        return
    results = queries.results(study, queries.stamp(study))
    found = results.kept("certified", lambda: certified(results.own))
    if not found:
        st.info("No candidate has a certificate yet; they appear here while `crossbreed search` runs.")
        return
    st.markdown("##### Residuals")
    shown = furthest(found)
    st.plotly_chart(
        results.kept("residuals", lambda: residuals_figure(shown)),
        key="residuals",
        config=PLAIN,
        alt="Residuals by quantity, in tolerances",
    )
    hidden = f" {len(found) - len(shown)} more are not shown." if len(found) > len(shown) else ""
    st.caption(
        f"{len(shown)} candidates; the band is what the budget allows. Filled: nominal, before training; hollow: realised by "
        f"trained routers, where that differs. Beyond {WIDEST:g} tolerances markers stand at the edge.{hidden}"
    )
    _infeasible([c for c in found if c.standing != "feasible"])
    _predictions(results)
    st.caption(CONVENTIONS)


def _infeasible(found: Sequence[Certified]) -> None:
    st.markdown("##### Off the budget")
    if not found:
        st.caption("Every candidate that was proposed meets the budget.")
        return
    rows = []
    for candidate in found:
        worst = candidate.nominal.worst()
        rows.append(
            {
                "#": candidate.number,
                "family": candidate.family,
                "standing": candidate.standing,
                "furthest out": short_name(worst.quantity),
                "nominal": percent(worst.residual),
                "realised": percent(candidate.realised.get(worst.quantity)),
                "nearest point": ", ".join(f"{k} {v}" for k, v in candidate.nominal.dimensions.items())
                or "as written",
                "why": candidate.nominal.reason or "the rates that trained routers chose",
            }
        )
    st.dataframe(
        pd.DataFrame(rows),
        hide_index=True,
        column_config={
            "why": st.column_config.TextColumn(width="large"),
            "#": st.column_config.NumberColumn(width=48),
        },
        placeholder="",
        alt="Candidates off the budget with their nearest points",
    )
    reasons = {c.number: c.nominal.reason for c in found if c.nominal.reason}
    if reasons:
        with st.expander("Why, in full"):
            for number, reason in reasons.items():
                st.caption(f"**{number}** {code(reason)}")
    st.caption(
        f"{counts(_standings(found))}. Nothing is relaxed: what cannot meet the budget is not trained."
    )


def _standings(found: Sequence[Certified]) -> dict[str, int]:
    standings = [c.standing for c in found]
    return {s: standings.count(s) for s in dict.fromkeys(standings)}


def _predictions(results: Results) -> None:
    candidates = results.own
    st.markdown("##### Predicted against measured")
    shown = False
    for column, phase in zip(st.columns(2, gap="medium"), ("decode", "prefill"), strict=True):
        points = results.kept(("speeds", phase), partial(_speeds, candidates, phase))
        if points:
            shown = True
            with column:
                st.plotly_chart(
                    agreement_figure(points, f"{phase} speed", "tokens/s"),
                    key=f"predicted-{phase}",
                    config=PLAIN,
                    alt=f"Predicted against measured {phase} speed",
                )
    peaks = results.kept("peaks", lambda: _peaks(candidates))
    if peaks:
        shown = True
        st.plotly_chart(
            agreement_figure(peaks, "training peak", "bytes"),
            key="peaks",
            config=PLAIN,
            alt="Predicted against measured peak",
        )
    if not shown:
        name = code("cost: {name: roofline}")
        st.caption(
            f"This study's cost model predicts no times. {name} in the study file predicts them from a device's ceilings; "
            "training peaks are measured on CUDA."
        )


def _speeds(candidates: Sequence[Candidate], phase: str) -> list[tuple[int, float, float]]:
    """(number, predicted, measured) tokens/s of candidates whose ledger predicts the phase on the device it was timed on."""
    found = []
    for candidate in candidates:
        prediction = (candidate.row.ledger or {}).get("prediction") or {}
        seconds = (prediction.get("seconds_per_token") or {}).get(phase)
        measured = [
            m.median
            for seed in candidate.done
            if OWN in seed.points
            for m in seed.points[OWN].measured(f"{phase}_tokens_per_s")
            if m.batch == 1 and m.device == prediction.get("device")
        ]
        if seconds and measured:
            found.append((candidate.row.number, 1.0 / seconds, sum(measured) / len(measured)))
    return found


def _peaks(candidates: Sequence[Candidate]) -> list[tuple[int, float, float]]:
    """(number, predicted, measured) bytes of candidates whose training peak was measured."""
    found = []
    for candidate in candidates:
        predicted = (candidate.row.ledger or {}).get("training_peak_bytes")
        measured = [
            m.median
            for seed in candidate.done
            if OWN in seed.points
            for m in seed.points[OWN].measured("training_peak_allocated_bytes")
        ]
        if predicted and measured:
            found.append((candidate.row.number, float(predicted), sum(measured) / len(measured)))
    return found


if __name__ == "__main__":
    follow(body, lambda: queries.shown(choice.study_name() or ""))
