"""Candidates with their objectives: stored results read as means and intervals over seeds, and the front among them.

Selection and report are separate: where a candidate has report runs, its numbers are theirs alone. Before, they are those
of its best tuning run, which chose it and is too good on average (the winner's curse), so they are provisional.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from crossbreed.core.ledger import QUANTITIES
from crossbreed.core.search.front import Direction, hypervolume, non_dominated
from crossbreed.core.search.statistics import Interval, t_interval
from crossbreed.core.search.tuning import OWN as OWN
from crossbreed.core.search.tuning import chosen
from crossbreed.storage.rows import CandidateRow, MeasurementRow, PointRow, SeedRow
from crossbreed.storage.states import ENDED

if TYPE_CHECKING:
    from crossbreed.core.search.study_file import StudyFile

SCORE = "score"
COUNTED = ("done", "off_budget")
"""States of runs whose numbers stand."""
SpeedKey = tuple[str, int, int, str, str, str, bool]
"""Phase, batch, tokens, dtype, device, policy, compiled: what must be equal before two speeds are compared."""


KeyCounts = Counter[tuple[str, SpeedKey]]
"""How often each speed was measured under each key."""


@dataclass(frozen=True)
class Objectives:
    """What a study trades off: names with directions, for each measured speed the one key that counts, and the operating
    points that compete, own decisions first.

    A name is ``score``, a measured speed, or a quantity of the ledger.
    """

    directions: Mapping[str, Direction]
    keys: Mapping[str, SpeedKey] = field(default_factory=dict)
    points: tuple[str, ...] = (OWN,)

    @staticmethod
    def of(file: StudyFile) -> Objectives:
        """What a study file asks for."""
        return Objectives(dict(file.objectives), points=(OWN, *file.search.points))

    @property
    def names(self) -> list[str]:
        return list(self.directions)

    @property
    def ways(self) -> list[Direction]:
        return list(self.directions.values())

    @property
    def speeds(self) -> list[str]:
        """The objectives that are measured on a device."""
        return [n for n in self.directions if n != SCORE and n not in QUANTITIES]

    @property
    def score_way(self) -> Direction:
        """Which scores are better; a study that is not about its score takes larger ones."""
        return self.directions.get(SCORE, "max")

    @property
    def need_ledger(self) -> bool:
        return any(n in QUANTITIES for n in self.directions)

    def over(self, rows: Iterable[CandidateRow], batch: int = 1) -> Objectives:
        """The same objectives with the key that most runs were measured under, the study's own, where none is set."""
        if all(name in self.keys for name in self.speeds):
            return self
        counts: KeyCounts = Counter()
        for row in rows:
            counts.update(self.keys_of(row, batch))
        return self.under(counts)

    def keys_of(self, row: CandidateRow, batch: int = 1) -> Iterator[tuple[str, SpeedKey]]:
        """Speed and key of every measurement of a candidate's runs at their own decisions."""
        speeds = self.speeds
        for seed in row.seeds:
            own = seed.points.get(OWN)
            for measured in own.measurements if own is not None else ():
                if measured.metric in speeds and measured.batch == batch:
                    yield measured.metric, measured.key()

    def under(self, counts: KeyCounts) -> Objectives:
        """``with_keys`` of measurements counted by speed and key."""
        by_name: dict[str, Counter[SpeedKey]] = {name: Counter() for name in self.speeds}
        for (name, key), count in counts.items():
            if count > 0:
                by_name[name][key] = count
        return self.with_keys(by_name)

    def with_keys(self, counts: Mapping[str, Counter[SpeedKey]]) -> Objectives:
        """The same objectives with the most frequent key of each speed, where none is set; of equals the last by name."""
        keys = {name: max(c, key=lambda k: (c[k], str(k))) for name, c in counts.items() if c}
        return replace(self, keys={**keys, **self.keys})


@dataclass(frozen=True)
class Candidate:
    """A stored candidate at one of its operating points, with its objectives there over the seeds that count.

    seeds:     runs of one version of its plugins: seeds pool only within equal identities.
    by_seed:   objective -> seed -> value, of the runs that count.
    means:     objective -> mean, NaN where nothing is known.
    intervals: objective -> 95% Student t interval, None below 3 seeds.
    on_front:  not dominated among eligible candidates of the study.
    counted:   the runs whose numbers these are: report runs, or before there are any, the best setting's tuning run.
    chosen:    that tuning run, whose learning rate is the candidate's; None while a setting is still at work.
    point:     under whose decisions; the same runs count at every point.
    """

    row: CandidateRow
    seeds: tuple[SeedRow, ...]
    by_seed: Mapping[str, Mapping[int, float]]
    means: Mapping[str, float]
    intervals: Mapping[str, Interval | None]
    on_front: bool = False
    counted: tuple[SeedRow, ...] = ()
    chosen: SeedRow | None = None
    point: str = OWN

    @property
    def key(self) -> tuple[int, str]:
        """The candidate's number and its operating point."""
        return self.row.number, self.point

    @property
    def values(self) -> dict[str, tuple[float, ...]]:
        """Objective -> one value per seed that counts, in order of seed."""
        return {name: tuple(found.values()) for name, found in self.by_seed.items()}

    @property
    def done(self) -> tuple[SeedRow, ...]:
        """The done runs whose numbers these are."""
        return tuple(s for s in self.counted if s.state == "done")

    @property
    def reports(self) -> tuple[SeedRow, ...]:
        """The fresh runs of its setting, however they ended."""
        return tuple(s for s in self.seeds if s.role == "report")

    @property
    def confirmed(self) -> bool:
        """Whether its numbers are of fresh runs; otherwise they are of the run that chose it, and provisional."""
        return any(s.role == "report" for s in self.done)

    @property
    def provisional(self) -> bool:
        """Whether it stands on the front by numbers that fresh runs have still to confirm."""
        return self.on_front and not self.confirmed

    @property
    def lr(self) -> float | None:
        """The learning rate of its best setting; None while that is not known."""
        return None if self.chosen is None else self.chosen.lr

    @cached_property
    def eligible(self) -> bool:
        """Whether it may stand on the front: trained and measured, never off its budget, and able to be confirmed."""
        if not self.done or any(s.state == "off_budget" for s in self.counted):
            return False
        if any(_outside(s.points.get(self.point)) for s in self.counted):
            return False
        lost = self.reports and all(s.state in ENDED for s in self.reports)
        return self.confirmed or not lost


def read(rows: Sequence[CandidateRow], objectives: Objectives) -> list[Candidate]:
    """All candidates with their objectives, in order of number and then of points, those on the front marked.

    A candidate is there once for each of the points that compete at which any of its runs has results, and at its own
    decisions in any case. The key of a speed is chosen once for all rows, so that numbers of different keys are never compared.
    """
    objectives = objectives if objectives.keys else objectives.over(rows)
    found = [c for row in rows for c in candidates_of(row, objectives)]
    return marked(found, [place(c, objectives) for c in found], objectives)


def place(candidate: Candidate, objectives: Objectives) -> list[float]:
    """Where a candidate stands among others: its means, or nowhere (NaN) while it may not be on the front."""
    means = candidate.means if candidate.eligible else dict.fromkeys(objectives.names, math.nan)
    return [means[name] for name in objectives.names]


def marked(
    found: Sequence[Candidate], places: Sequence[Sequence[float]], objectives: Objectives
) -> list[Candidate]:
    """The same candidates, whose ``places`` are these, those on their common front marked."""
    on_front = non_dominated(places, objectives.ways)
    return [
        c if c.on_front == front else replace(c, on_front=bool(front))
        for c, front in zip(found, on_front, strict=True)
    ]


def front_volume(
    candidates: Iterable[Candidate], objectives: Objectives, reference: Mapping[str, float]
) -> float:
    """Hypervolume of the front from a stored reference point (objective -> value)."""
    points = [[c.means[n] for n in objectives.names] for c in candidates if c.on_front]
    return hypervolume(points, objectives.ways, [reference[n] for n in objectives.names])


def pooled(seeds: Sequence[SeedRow]) -> tuple[SeedRow, ...]:
    """The seeds of one version of the plugins: the version with most done runs, the later one of equals."""
    if all(seed.identities == seeds[0].identities for seed in seeds):
        return tuple(seeds)
    groups: dict[str, list[SeedRow]] = {}
    for seed in seeds:
        groups.setdefault(json.dumps(seed.identities, sort_keys=True), []).append(seed)
    best = max(groups.values(), key=lambda g: (sum(s.state == "done" for s in g), max(s.run_id for s in g)))
    return tuple(best)


def candidates_of(row: CandidateRow, objectives: Objectives) -> list[Candidate]:
    """A row at each of its points, not yet compared with others; ``objectives`` have the keys that count."""
    seeds = pooled(row.seeds)
    best = chosen(row.seeds, objectives.score_way)
    counted = tuple(s for s in seeds if s.role == "report" and s.state in COUNTED)
    if not counted and best is not None and best.state in COUNTED:
        counted = (best,)
    whole = Candidate(row, seeds, {}, {}, {}, counted=counted, chosen=best)
    stored = {OWN, *(name for s in counted for name, point in s.points.items() if point.evaluations)}
    return [_at(whole, name, objectives) for name in objectives.points if name in stored]


def _at(whole: Candidate, point: str, objectives: Objectives) -> Candidate:
    """A candidate with the objectives of one of its points."""
    row, counted = whole.row, whole.counted
    by_seed = {
        name: {s.seed: v for s in counted if (v := value(name, row, s, objectives, point)) is not None}
        for name in objectives.names
    }
    values = {name: tuple(found.values()) for name, found in by_seed.items()}
    means = {name: math.fsum(v) / len(v) if v else math.nan for name, v in values.items()}
    intervals = {name: None if exact(name, v) else t_interval(v) for name, v in values.items()}
    return replace(whole, by_seed=by_seed, means=means, intervals=intervals, point=point)


def _outside(point: PointRow | None) -> bool:
    """Whether a run spends more at an operating point than its budget allows.

    That it may not spend less either is asked of its own decisions alone, by which it was matched and trained.
    """
    certificate = (None if point is None else point.certificate) or {}
    return any(q["residual"] > q["tolerance"] for q in certificate.get("quantities", ()))


def exact(name: str, values: Sequence[float]) -> bool:
    """Whether an objective has no spread: a quantity of the ledger that no trained router has moved."""
    return name in QUANTITIES and len(set(values)) <= 1


def value(
    name: str, row: CandidateRow, seed: SeedRow, objectives: Objectives, point: str = OWN
) -> float | None:
    """What one run says of an objective at an operating point; None where it says nothing.

    A quantity of the ledger is taken at the rates that the trained routers chose; at nominal ones until they have.
    """
    found = seed.points.get(point)
    if name in QUANTITIES:
        ledger = (found.ledger if found is not None else None) or row.ledger or {}
        return float(ledger[name]) if name in ledger else None
    if found is None:
        return None
    if name == SCORE:
        return found.evaluations[-1].score if found.evaluations else None
    measured = speed(found, name, objectives.keys.get(name))
    return None if measured is None else measured.median


def speed(point: PointRow, metric: str, key: SpeedKey | None) -> MeasurementRow | None:
    """The measurement of ``metric`` under exactly ``key``."""
    return next((m for m in point.measurements if m.metric == metric and m.key() == key), None)


class Crowded(NamedTuple):
    """A speed that was timed while other processes were at work on its device; ``neighbours`` says which."""

    number: int
    seed: int
    metric: str
    neighbours: str


def crowded(candidates: Iterable[Candidate], objectives: Objectives) -> list[Crowded]:
    """The speeds of some candidates, among the objectives, that were not measured alone."""
    return [
        Crowded(candidate.row.number, seed.seed, metric, found.neighbours)
        for candidate in candidates
        for seed in candidate.done
        for metric, key in objectives.keys.items()
        if (point := seed.points.get(candidate.point))
        and (found := speed(point, metric, key))
        and found.neighbours
    ]
