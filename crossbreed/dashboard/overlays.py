"""Which fronts stand in one chart, and under which key each speed was measured: choosers whose choice is in the address."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pandas as pd
import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from crossbreed.core.search.candidates import Objectives, SpeedKey
from crossbreed.core.search.layers import (
    Layer,
    differences,
    family_of,
    grouped,
    layer,
    obstacles,
    routers_of,
)
from crossbreed.core.search.study_file import StudyFile
from crossbreed.dashboard import choice, queries
from crossbreed.dashboard.queries import Results
from crossbreed.figures.words import UNITS, code, key_in_words
from crossbreed.storage.rows import StudyRow

GROUPS = {"the study": None, "families": family_of, "routers": routers_of}


@dataclass(frozen=True)
class Overlay:
    """Fronts of one chart. ``plain``: one study's front alone. reference: from where hypervolumes are taken."""

    layers: tuple[Layer, ...]
    plain: bool
    reference: Mapping[str, float] | None
    objectives: Objectives


def choose_keys(
    objectives: Objectives, stored: Mapping[str, Sequence[SpeedKey]], axes: Sequence[str]
) -> dict[str, SpeedKey]:
    """The key of every speed that is an objective or on an axis; a chooser where several are stored, the usual one first."""
    keys = {}
    for name in dict.fromkeys((*objectives.speeds, *axes)):
        found = {key_in_words(key): key for key in stored.get(name, ())}
        usual = objectives.keys.get(name)
        if usual is not None:
            found = {key_in_words(usual): usual, **found}
        if len(found) > 1:
            under = choice.one_of(
                f"{UNITS.get(name, name)}: measured under",
                f"{name.removesuffix('_tokens_per_s')}-key",
                list(found),
                "Speeds of different phases, lengths, batches, devices or policies never stand in one chart.",
            )
            keys[name] = found[under]
        elif found:
            keys[name] = next(iter(found.values()))
    return keys


def choose_overlay(cells: Sequence[DeltaGenerator], study: StudyRow, results: Results) -> Overlay:
    """What is drawn as fronts of their own: the study, its families or its routers, and other studies; says why one cannot be.

    ``cells``: where the two choosers stand.
    """
    others = {s.name: s for s in queries.studies() if s.name != study.name}
    with cells[0]:
        by = choice.one_of(
            "Fronts of", "fronts", list(GROUPS), "Each front with its hypervolume, from one fixed point."
        )
    with cells[1]:
        over = choice.several_of(
            "And of other studies",
            "over",
            list(others)[::-1],
            "Studies with the same task, objectives and measuring key.",
            "none" if others else "no other study here",
        )
    group, reference, objectives = GROUPS[by], study.reference_point, results.objectives
    if group is None:
        own = layer(study.name, results.candidates, objectives, reference)
        layers = [own]
    else:
        layers = results.kept(
            ("layers", by, str(reference)),
            lambda: grouped(results.candidates, group, objectives, reference),
        )
    for name in over:
        other = _other(study, others[name], results, reference)
        if other is not None:
            layers = [*layers, other]
    plain = group is None and len(layers) == 1
    return Overlay(tuple(layers), plain, reference, objectives)


def _other(
    study: StudyRow, other: StudyRow, results: Results, reference: Mapping[str, float] | None
) -> Layer | None:
    """Another study's front under this study's keys, or the reason why there is none."""
    at = queries.stamp(other)
    mine, theirs = (StudyFile.read(s.spec, f"study {s.name!r}") for s in (study, other))
    items = [queries.evaluation_items(s) for s in (study, other)]
    why = obstacles(
        mine,
        results.objectives,
        theirs,
        queries.speed_keys(other, at),
        same_items=None in items or items[0] == items[1],
    )
    if why:
        st.warning(f"{code(other.name)} cannot stand in this chart: {code('; '.join(why))}.")
        return None
    found = queries.measured_under(other, at, results.objectives.keys)
    apart = differences(mine, theirs)
    if apart:
        st.caption(f"{code(other.name)} has another {', '.join(apart)}.")
    return layer(other.name, found.candidates, results.objectives, reference, study=other.name)


def layer_table(overlay: Overlay) -> None:
    """Fronts that stand in one chart with their hypervolumes."""
    if overlay.plain:
        return
    st.markdown("##### Fronts in this chart")
    rows = [
        {
            "front of": each.name,
            "on it": len(each.front),
            "candidates": len({c.row.number for c in each.candidates}),
            "hypervolume": each.volume,
        }
        for each in overlay.layers
    ]
    st.dataframe(
        pd.DataFrame(rows),
        hide_index=True,
        column_config={"hypervolume": st.column_config.NumberColumn(format="%.5g")},
        placeholder="not known",
        alt="Fronts and their hypervolumes",
    )
    if overlay.reference is None:
        st.caption("Hypervolumes are known once the search has fixed their reference point.")
        return
    point = ", ".join(f"{UNITS.get(n, n)} {overlay.reference[n]:.4g}" for n in overlay.objectives.names)
    st.caption(
        f"Hypervolumes are in the objectives' own units from one fixed point, the shown study's: {point}. Each front is taken "
        "among its own candidates; markers of other studies tell theirs under the pointer and are chosen on their own page."
    )
