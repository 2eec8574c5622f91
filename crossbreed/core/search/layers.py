"""Fronts laid over one another: groups of a study's candidates, and other studies that were judged and timed alike."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from crossbreed.core.search.candidates import (
    Candidate,
    Objectives,
    SpeedKey,
    front_volume,
    marked,
    place,
    speed,
)
from crossbreed.core.search.statistics import t_interval
from crossbreed.core.search.study_file import StudyFile

KEY_FIELDS = ("phase", "batch", "length", "dtype", "device", "execution policy", "compiled")
"""The fields of a speed's key in words, in its order."""
ROUTER_SITES = ("mode", "gate", "halt")
UNROUTED = "no router"


@dataclass(frozen=True)
class Layer:
    """One of several fronts in a chart.

    candidates: all of the group, those marked that stand on the group's own front.
    volume:     hypervolume of that front in the objectives' own units, from a reference point common to all layers; None
                before the study has fixed one.
    study:      whose candidates these are, where they are not of the study that is shown.
    """

    name: str
    candidates: tuple[Candidate, ...]
    volume: float | None
    study: str | None = None

    @property
    def front(self) -> tuple[Candidate, ...]:
        return tuple(c for c in self.candidates if c.on_front)


def layer(
    name: str,
    candidates: Sequence[Candidate],
    objectives: Objectives,
    reference: Mapping[str, float] | None,
    study: str | None = None,
) -> Layer:
    """The front that is marked among these candidates. ``reference``: objective -> value."""
    volume = front_volume(candidates, objectives, reference) if reference else None
    return Layer(name, tuple(candidates), volume, study)


def grouped(
    candidates: Iterable[Candidate],
    group: Callable[[Candidate], str],
    objectives: Objectives,
    reference: Mapping[str, float] | None,
) -> list[Layer]:
    """A layer for each group, in order of appearance: the front among its members alone."""
    groups: dict[str, list[Candidate]] = {}
    for candidate in candidates:
        groups.setdefault(group(candidate), []).append(candidate)
    return [
        layer(
            name, marked(members, [place(c, objectives) for c in members], objectives), objectives, reference
        )
        for name, members in groups.items()
    ]


def family_of(candidate: Candidate) -> str:
    return candidate.row.family


def routers_of(candidate: Candidate) -> str:
    """The routers of a candidate by their kind of site: ``gate:learned halt:learned``; from the lines of its ledger."""
    found = dict.fromkeys(
        f"{kind}:{part['name']}"
        for part in (candidate.row.ledger or {}).get("parts", ())
        if (kind := part["site"].rsplit(".", 1)[-1]) in ROUTER_SITES
    )
    return " ".join(found) or UNROUTED


def obstacles(
    mine: StudyFile,
    objectives: Objectives,
    theirs: StudyFile,
    stored: Mapping[str, Iterable[SpeedKey]],
    *,
    same_items: bool = True,
) -> list[str]:
    """Why another study's front may not stand in one chart with a study's, each a clause about the other; none if it may.

    ``objectives``: of the study shown, with the keys that count. ``stored``: speed -> keys under which the other has measured.
    ``same_items``: whether their tasks have the same evaluation items, as far as that is known.
    """
    if dict(theirs.objectives) != dict(mine.objectives):
        words = ", ".join(f"{name} {way}" for name, way in theirs.objectives.items())
        return [f"its objectives are {words}"]
    found = []
    if theirs.task.name != mine.task.name:
        found.append(f"its task is {theirs.task.name}, not {mine.task.name}")
    elif theirs.task.params != mine.task.params:
        names = sorted({*theirs.task.params, *mine.task.params})
        other = [n for n in names if theirs.task.params.get(n) != mine.task.params.get(n)]
        found.append(f"its task has another {', '.join(other)}")
    elif not same_items:
        found.append("its task has other evaluation items")
    for name in objectives.speeds:
        key, keys = objectives.keys.get(name), list(stored.get(name, ()))
        if key is not None and key not in keys:
            found.append(_otherwise_measured(name, key, keys))
    return found


def _otherwise_measured(name: str, key: SpeedKey, stored: Sequence[SpeedKey]) -> str:
    """How the nearest of the stored keys of a speed differs from the one that counts."""
    if not stored:
        return f"it has not measured {name}"
    nearest = min(stored, key=lambda other: sum(a != b for a, b in zip(other, key, strict=True)))
    differing = [
        f"{field} {theirs} instead of {ours}"
        for field, theirs, ours in zip(KEY_FIELDS, nearest, key, strict=True)
        if theirs != ours
    ]
    return f"it has measured {name} under {', '.join(differing)}"


def differences(mine: StudyFile, theirs: StudyFile) -> list[str]:
    """What else differs between two studies whose fronts may be drawn together, in words."""
    sections = {"budget": "budget", "train": "recipe of training", "space": "search space"}
    return [words for name, words in sections.items() if getattr(mine, name) != getattr(theirs, name)]


def with_speed(candidates: Iterable[Candidate], name: str, key: SpeedKey) -> list[Candidate]:
    """The same candidates, a measured speed that is no objective of theirs beside their objectives, under one key."""
    found = []
    for candidate in candidates:
        by_seed = {
            seed.seed: measured.median
            for seed in candidate.counted
            if (point := seed.points.get(candidate.point)) and (measured := speed(point, name, key))
        }
        values = tuple(by_seed.values())
        found.append(
            replace(
                candidate,
                by_seed={**candidate.by_seed, name: by_seed},
                means={**candidate.means, name: math.fsum(values) / len(values) if values else math.nan},
                intervals={**candidate.intervals, name: t_interval(values)},
            )
        )
    return found
