"""Every claim of a paper against a record: its verdict, part by part, with effect, interval, seeds, tokens and time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from crossbreed.claims.claim import Claim, Exact, Measure, Paper, Part, Speed, Test
from crossbreed.claims.judge import Judged, Verdict, decide, exactly, judge, together
from crossbreed.claims.measures import measured
from crossbreed.claims.plan import chosen_lr, setting_of
from crossbreed.claims.record import REPORT, TUNE, Record
from crossbreed.core.contracts.parts import Parts
from crossbreed.core.search.statistics import Interval


@dataclass(frozen=True)
class Found:
    """One part with its verdict. ``why``: what it lacks, where it is undecided for want of runs or a record.

    means: arm -> mean of its own number over its seeds, of parts that need runs. asked: whether this scale asks it at all; a part
    that it leaves out has no say in the claim's verdict.
    """

    part: Part
    judged: Judged
    why: str = ""
    means: Mapping[str, float] | None = None
    asked: bool = True


@dataclass(frozen=True)
class Answer:
    """A claim's verdict. ``tokens`` and ``seconds``: of all runs of its experiments, tuning included.

    late: how many of its runs were recorded before it was declared; None where nothing was recorded under it.
    """

    claim: Claim
    verdict: Verdict
    parts: tuple[Found, ...]
    seeds: int
    tokens: int
    seconds: float
    diverged: int
    late: int | None = None

    @property
    def needs(self) -> int | None:
        """Seeds that would decide every undecided part, about; None where one cannot be told."""
        undecided = [f.judged.needs for f in self.parts if f.asked and f.judged.verdict == "undecided"]
        return None if any(n is None for n in undecided) else max((n for n in undecided if n), default=None)


def answers(paper: Paper, record: Record, parts: Parts) -> list[Answer]:
    """All claims in the paper's order."""
    return [answer(paper, claim, record, parts) for claim in paper.claims]


def answer(paper: Paper, claim: Claim, record: Record, parts: Parts) -> Answer:
    """One claim against what a record holds."""
    found = tuple(_part(paper, part, record, parts) for part in claim.parts)
    used = {
        (name, setting_of(e))
        for name in claim.experiments()
        if (e := paper.experiment(record.scale, name)) is not None
    }
    runs = [r for r in record.runs if (r["experiment"], r["setting"]) in used]
    declared = record.declared.get(claim.id)
    return Answer(
        claim,
        together([f.judged.verdict for f in found if f.asked]),
        found,
        min((f.judged.seeds for f in found if f.asked and isinstance(f.part, Test)), default=0),
        sum(r["tokens"] for r in runs),
        sum(r["seconds"] for r in runs),
        sum(r["state"] != "done" for r in runs if r["role"] == REPORT),
        None if declared is None else declared["runs"],
    )


def _part(paper: Paper, part: Part, record: Record, parts: Parts) -> Found:
    if isinstance(part, Exact):
        return Found(part, exactly(part.value(parts) - part.target, part.direction, part.margin))
    if isinstance(part, Speed):
        return _speed(part, record)
    by_seed = [(c, _by_seed(paper, m, record)) for c, m in part.terms]
    lacking = [m for (_, m), (_, seeds) in zip(part.terms, by_seed, strict=True) if seeds is None]
    if lacking:
        name = f"{lacking[0].experiment}/{lacking[0].arm}"
        why = f"{name} is left out at scale {record.scale}"
        return Found(part, Judged("undecided", 0), why, asked=False)
    shared = set.intersection(*(set(seeds or {}) for _, seeds in by_seed))
    values = [sum(c * (seeds or {})[s] for c, seeds in by_seed) - part.target for s in sorted(shared)]
    means = {
        f"{m.experiment}/{m.arm} {m.quantity}": sum(seeds.values()) / len(seeds)
        for (_, m), (_, seeds) in zip(part.terms, by_seed, strict=True)
        if seeds
    }
    judged = judge(values, part.direction, part.margin)
    why = "" if values else f"no run of it is in the record of scale {record.scale}"
    return Found(part, judged, why, means)


def _by_seed(paper: Paper, measure: Measure, record: Record) -> dict[int, float] | None:
    """Seed -> number, of the chosen learning rate's report runs; None where the scale has no such experiment or arm."""
    experiment = paper.experiment(record.scale, measure.experiment)
    if experiment is None or all(arm.name != measure.arm for arm in experiment.arms):
        return None
    setting = setting_of(experiment)
    lr = chosen_lr(record, experiment, measure.arm, setting)
    found = {}
    for run in record.of(experiment.name, setting, measure.arm, REPORT):
        value = measured(run, measure.quantity) if run["lr"] == lr else None
        if value is not None:
            found[run["seed"]] = value
    return found


def _speed(part: Speed, record: Record) -> Found:
    times = [record.timings.get(name) for name in (part.over, part.under)]
    if any(t is None for t in times):
        return Found(part, Judged("undecided", 0), "no GPU record of these times")
    over, under = (t for t in times if t is not None)
    failed = over.get("failed") or under.get("failed")
    if failed:
        return Found(part, Judged("undecided", 0), f"not timed: {failed}")
    if over["device"] != under["device"]:
        return Found(part, Judged("undecided", 0), "its two times are of different devices")
    # Quartiles that overlap tell nothing apart.
    low, high = over["q1"] / under["q3"] - part.target, over["q3"] / under["q1"] - part.target
    effect = over["median"] / under["median"] - part.target
    interval = Interval(effect, low, high)
    judged = Judged(decide(interval, part.direction, part.margin), 0, effect, interval)
    means = {name: t["median"] for name, t in ((part.over, over), (part.under, under))}
    return Found(part, judged, means=means)


def tuned(paper: Paper, record: Record) -> dict[str, Any]:
    """``experiment/arm`` -> the learning rate it runs at, of all that were tried for it."""
    found = {}
    for experiment in paper.experiments[record.scale]:
        setting = setting_of(experiment)
        for arm in experiment.arms:
            lr = chosen_lr(record, experiment, arm.name, setting)
            if lr is not None and record.of(experiment.name, setting, arm.name, TUNE):
                found[f"{experiment.name}/{arm.name}"] = lr
    return found
