"""Studies: every study with its state, progress and best results, newest first, while they run."""

from __future__ import annotations

import math
from typing import Any

import streamlit as st
import yaml

from crossbreed.core.search.candidates import SCORE
from crossbreed.dashboard import queries
from crossbreed.dashboard.live import follow
from crossbreed.dashboard.queries import Progress, Results
from crossbreed.figures.front import axes, drawable
from crossbreed.figures.palette import STANDINGS
from crossbreed.figures.studies import thumbnail_figure, trend_figure
from crossbreed.figures.words import UNITS, amount, code, counts
from crossbreed.storage.rows import Stamp, StudyRow

MOST_SHOWN = 20
NUMBER = 140
"""Pixels of a large number: two stand side by side in a card on a phone."""
STILL = {"displayModeBar": False}
HELP = {
    "running": "A search drives it now.",
    "complete": "All candidates it asks for are drawn and every run has ended.",
    "idle": "Nobody drives it; the search command goes on where it stopped.",
}


def body() -> None:
    found = queries.studies()
    if not found:
        st.info(
            "This database holds no study yet. Start one: `crossbreed init`, then `crossbreed search study.yaml`.",
            icon=":material/science:",
        )
    for study in found[::-1][:MOST_SHOWN]:
        _card(study)
    if len(found) > MOST_SHOWN:
        st.caption(f"{len(found) - MOST_SHOWN} older studies are not shown here; choose them above.")


def _card(study: StudyRow) -> None:
    at = queries.stamp(study)
    state, results = queries.progress(study, at), queries.results(study, at)
    with st.container(border=True, key=f"study-{study.id}"):
        title, badge, link = st.columns([6, 1, 1], vertical_alignment="center")
        title.markdown(f"#### {code(study.name)}")
        badge.badge(state.standing, color=STANDINGS[state.standing], help=HELP[state.standing])
        link.page_link(
            "views/front.py",
            label="Its front",
            icon=":material/scatter_plot:",
            query_params={"study": study.name},
        )
        _numbers(state, results)
        _pictures(study, at, results)
        st.progress(
            min(1.0, state.proposed / state.limit) if state.limit else 1.0,
            text=f"{state.proposed} of {state.limit} candidates drawn; runs: {counts(state.runs) or 'none yet'}",
        )
        st.caption(_about(study.spec))
        started = f"started {study.created_at:%Y-%m-%d %H:%M:%S} UTC"
        changed = (
            "" if state.changed_at is None else f", last change {state.changed_at:%Y-%m-%d %H:%M:%S} UTC"
        )
        st.caption(started + changed + _driver(state.driver))
        with st.expander("Study file"):
            text = yaml.safe_dump(study.spec, sort_keys=False, allow_unicode=True)
            st.code(text, language="yaml")
            st.download_button(
                "Save as study.yaml",
                text,
                "study.yaml",
                "text/yaml",
                key=f"save-{study.id}",
                on_click="ignore",
            )


def _driver(driver: str | None) -> str:
    return "" if driver is None else f"; driven by {code(driver)}"


def _numbers(state: Progress, results: Results) -> None:
    """Counts and the best value of each objective."""
    directions = results.objectives.directions
    shown: list[tuple[str, str | int]] = [
        ("candidates", sum(state.trials.values())),
        ("on the front", len(results.front)),
    ]
    for name, direction in directions.items():
        values = [c.means[name] for c in results.candidates if c.eligible and math.isfinite(c.means[name])]
        best = (max if direction == "max" else min)(values, default=None)
        label = "best score" if name == SCORE else f"best {UNITS.get(name, name)}"
        shown.append((label, amount(name, best)))
    infeasible = state.trials.get("infeasible", 0)
    broken = sum(state.trials.get(s, 0) for s in ("failed", "diverged", "out_of_memory", "lost"))
    shown.append(("infeasible / failed", f"{infeasible} / {broken}"))
    with st.container(horizontal=True):
        for label, value in shown:
            st.metric(label, value, width=NUMBER)


def _pictures(study: StudyRow, at: Stamp, results: Results) -> None:
    """The front as a thumbnail, and the trend of its hypervolume."""
    x, y = axes(results.objectives)
    shown, _ = drawable(results.candidates, results.objectives, x, y, off_budget=False)
    volumes = queries.volumes(study, at)
    if not shown:
        return
    front, trend = st.columns(2, gap="medium")
    with front:
        st.plotly_chart(
            thumbnail_figure(shown, x, y),
            key=f"thumbnail-{study.id}",
            config=STILL,
            alt=f"The front of {study.name}",
        )
    if volumes:
        with trend:
            st.plotly_chart(
                trend_figure(volumes),
                key=f"trend-{study.id}",
                config=STILL,
                alt=f"Hypervolume of {study.name}",
            )


def _about(spec: dict[str, Any]) -> str:
    """Task, space and budget in a line."""
    task, budget = spec.get("task", {}), spec.get("budget", {})
    settings = ", ".join(f"{k} {v}" for k, v in (task.get("params") or {}).items())
    rules = [
        f"{kind} {quantity.replace('_', ' ')} {'±' if kind == 'match' else '+'}{_tolerance(tolerance)}"
        for kind in ("match", "cap")
        for quantity, tolerance in (budget.get(kind) or {}).items()
    ]
    about = f"task {task.get('name', '?')}" + (f" ({settings})" if settings else "")
    return f"{code(about)} {code('budget: ' + '; '.join(rules))}"


def _tolerance(value: object) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    follow(body, queries.pulse)
