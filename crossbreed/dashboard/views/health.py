"""Health: who drives and works, what went wrong and how often, and under which software runs were made."""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, datetime

import pandas as pd
import streamlit as st

from crossbreed.dashboard import choice, queries
from crossbreed.dashboard.live import current_study, follow
from crossbreed.figures.words import code, counts, raced
from crossbreed.storage import Driver
from crossbreed.storage.rows import Stamp, StudyRow

TALL = 360
VERSIONS = ("crossbreed", "python", "torch", "cuda", "mps", "device", "platform", "threads")


def body() -> None:
    study = current_study()
    if study is None:
        return
    at = queries.stamp(study)
    health = queries.health(study, at)
    state = queries.progress(study, at)
    st.markdown(f"**Runs**: {counts(state.runs) or 'none yet'}")
    _workers(study, at)
    _failures(study, at)
    left, right = st.columns(2, gap="medium")
    with left:
        _software(study, at)
    with right:
        st.markdown("##### What happened last")
        rows = [
            {
                "at (UTC)": f"{e.at:%Y-%m-%d %H:%M:%S}",
                "event": e.kind.replace("_", " "),
                "about": json.dumps(e.payload),
            }
            for e in reversed(health.events)
        ]
        if rows:
            st.dataframe(
                pd.DataFrame(rows), hide_index=True, height=TALL, placeholder="", alt="Latest events"
            )
        else:
            st.caption("Nothing yet.")


def _workers(study: StudyRow, at: Stamp) -> None:
    st.markdown("##### At work")
    health = queries.health(study, at)
    driver = queries.progress(study, at).driver
    st.caption("Nobody drives this study now." if driver is None else f"Driven by {code(driver)}.")
    if not health.at_work:
        return
    now = datetime.now(UTC)
    rows = []
    for run in health.at_work:
        signed = Driver.read(run.worker)
        left = None if run.lease_expires_at is None else (run.lease_expires_at - now).total_seconds()
        rows.append(
            {
                "run": run.key,
                "state": run.state,
                "held by": run.worker
                if signed is None
                else f"{signed[0]}, process {signed[1].pid} on {signed[1].host}",
                "lease ends in, s": None if left is None else round(left),
                "attempt": run.attempts + 1,
                "rungs done": run.rungs_done,
                "since (UTC)": None if run.started_at is None else f"{run.started_at:%Y-%m-%d %H:%M:%S}",
            }
        )
    st.dataframe(pd.DataFrame(rows), hide_index=True, placeholder="", alt="Runs that are held now")
    st.caption(
        "A lease that ends without being renewed is taken back: the run is queued again and loses its rung at most."
    )


def _failures(study: StudyRow, at: Stamp) -> None:
    st.markdown("##### What went wrong")
    failures = queries.health(study, at).failures
    if not failures:
        st.caption("Nothing.")
        return
    rows = [
        {"runs": f.count, "state": f.state.replace("_", " "), "cause": f.cause or "–", "latest": f.latest.key}
        for f in failures
    ]
    st.dataframe(
        pd.DataFrame(rows),
        hide_index=True,
        column_config={
            "cause": st.column_config.TextColumn(width="large"),
            "runs": st.column_config.NumberColumn(width=60),
        },
        placeholder="",
        alt="Failures by cause",
    )
    for failure in failures:
        if failure.latest.traceback:
            with st.expander(f"Traceback of {code(failure.latest.key)}"):
                st.code(failure.latest.traceback, language=None, wrap_lines=True)


def _software(study: StudyRow, at: Stamp) -> None:
    st.markdown("##### Software of the latest runs")
    runs = queries.health(study, at).latest
    if not runs:
        st.caption("No run has started yet.")
        return
    rows = []
    for name in VERSIONS:
        found = Counter(
            str(r.environment[name]) for r in runs if r.environment and r.environment.get(name) is not None
        )
        if found:
            rows.append(
                {
                    "what": name,
                    "version": ", ".join(
                        f"{v} ({n} runs)" if len(found) > 1 else v for v, n in found.items()
                    ),
                }
            )
    plugins = {plugin for r in runs for plugin in r.identities.items()}
    libraries = {one for r in runs for one in ((r.environment or {}).get("libraries") or {}).items()}
    rows += [{"what": name, "version": version} for name, version in sorted(libraries) + sorted(plugins)]
    speeds = {one for r in runs for one in raced(r.environment or {}).items()}
    rows += [{"what": what, "version": words} for what, words in sorted(speeds)]
    used = sorted({name for r in runs for name in ((r.environment or {}).get("backends") or {}).values()})
    st.dataframe(
        pd.DataFrame(rows),
        hide_index=True,
        height=TALL if len(rows) > 9 else "auto",
        placeholder="",
        alt="Versions of software and plugins",
    )
    if used:
        st.caption(f"Backends: {code(', '.join(used))}")
    for plugin in queries.health(study, at).plugins:
        st.caption(f"Plugin file {code(plugin.path)}, sha256 {code(plugin.sha256[:12])}")


if __name__ == "__main__":
    follow(body, lambda: queries.pulse(choice.study_name() or ""))
