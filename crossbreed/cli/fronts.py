"""Candidates of a study as a table and as JSON: objectives with intervals, cost, and certificate residuals."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from crossbreed.cli.certificates import SHORT
from crossbreed.cli.conventions import MATCHED
from crossbreed.cli.output import percent, si, size, table
from crossbreed.core.budget.certificate import Certificate
from crossbreed.core.ledger import QUANTITIES
from crossbreed.core.search.candidates import OWN, Candidate, Objectives, crowded
from crossbreed.core.search.divergence import Divergence, by_family, of_seeds
from crossbreed.core.search.membership import front_probabilities
from crossbreed.core.search.tuning import own_point, tuning
from crossbreed.storage.rows import SeedRow

COST: list[str | tuple[str, str]] = [
    ("parameters", "right"),
    ("train\nFLOPs/token", "right"),
    ("memory", "right"),
]
COUNTED = (
    f"Parameters: {QUANTITIES['parameters']}. Train FLOPs/token: {QUANTITIES['training_flops_per_token']}; a multiply-add is 2. "
    f"Memory: {QUANTITIES['memory_bytes']}. At nominal rates; a cost that is an objective is at those that trained routers chose."
)
OFF_BY = (
    "Off by: distance from the budget's reference at nominal rates; in brackets at the rates that trained routers chose, "
    "where they differ."
)
SURELY = "On front in: of draws of all means from their t distributions; unknown below 3 seeds. Others stand at their means."
HEADINGS = {
    "decode_tokens_per_s": "decode tokens/s",
    "prefill_tokens_per_s": "prefill tokens/s",
}


MOST_CROWDED = 3
"""Speeds with neighbours that a table's caption names."""

HASH_DIGITS = 8
"""Of a hash in a table: enough to name a candidate by."""

MEASURED = 1000
"""Columns a table may take while it is asked how many it would like."""

NARROW = 120
"""Columns below which objectives and costs are two tables: cells of one would break inside their numbers."""


def print_candidates(
    console: Console,
    candidates: Iterable[Candidate],
    objectives: Objectives,
    title: str,
    *,
    mark_front: bool = False,
    surely: Mapping[tuple[int, str], float] | None = None,
) -> None:
    """Objectives, cost and certificate residuals of candidates, in as many tables as the console's width needs.

    ``surely``: probabilities of standing on the front, by number and operating point.
    """
    found = list(candidates)
    wide = console.width >= NARROW
    options: dict[str, Any] = {"mark_front": mark_front, "cost": wide, "surely": surely}
    made = candidate_table(found, objectives, title, hashes=True, **options)
    if console.measure(made, options=console.options.update(max_width=MEASURED)).maximum > console.width:
        made = candidate_table(found, objectives, title, **options)
    console.print(made)
    if not wide:
        console.print(cost_table(found, objectives))


def cost_table(candidates: Iterable[Candidate], objectives: Objectives) -> Table:
    """The ledger's numbers and the certificate's residuals, one line a candidate in the order of ``candidate_table``."""
    found = by_score(candidates, objectives)
    quantities = budgeted(found)
    pointed = any(c.point != OWN for c in found)
    heads: list[str | tuple[str, str]] = [("#", "right"), *(["point"] if pointed else [])]
    made = table("", [*heads, *COST, *_residual_columns(quantities)], caption=OFF_BY)
    for candidate in found:
        point = [escape(candidate.point)] if pointed else []
        made.add_row(str(candidate.row.number), *point, *_cost_words(candidate, quantities))
    return made


def candidate_table(
    candidates: Iterable[Candidate],
    objectives: Objectives,
    title: str,
    *,
    mark_front: bool = False,
    cost: bool = True,
    surely: Mapping[tuple[int, str], float] | None = None,
    hashes: bool = False,
) -> Table:
    """One line a candidate, best first. ``mark_front`` stars members of the front and adds states; without ``cost`` the
    ledger's numbers and residuals are left out (candidates need none then). A question mark says that a candidate's numbers
    are provisional; the learning rate has a column where several were tried. ``surely``: see ``print_candidates``; ``hashes`` adds
    the beginning of each, by which commands name a candidate."""
    found = by_score(candidates, objectives)
    pointed = any(c.point != OWN for c in found)
    tuned = len({s.lr for c in found for s in tuning(c.row.seeds)}) > 1
    quantities = budgeted(found) if cost else []
    made = table(
        title,
        [
            ("#", "right"),
            "family",
            *(["point"] if pointed else []),
            *((HEADINGS.get(name, name).replace(" ", "\n"), "right") for name in objectives.names),
            ("seeds", "right"),
            *([("on front\nin", "right")] if surely is not None else []),
            *([("lr", "right")] if tuned else []),
            *(COST if cost else []),
            *_residual_columns(quantities),
            *(["state"] if mark_front else []),
            *(["hash"] if hashes else []),
        ],
        caption=caption(
            objectives, cost=cost, surely=surely is not None, provisional=any(map(unconfirmed, found))
        )
        + crowded_words(found, objectives),
    )
    for candidate in found:
        row = candidate.row
        star = "*" if mark_front and candidate.on_front else ""
        made.add_row(
            f"{star}{row.number}{'?' if unconfirmed(candidate) else ''}",
            escape(row.family),
            *([escape(candidate.point)] if pointed else []),
            *(objective_words(candidate, name) for name in objectives.names),
            str(len(candidate.done)),
            *([share(surely.get(candidate.key))] if surely is not None else []),
            *(["-" if candidate.lr is None else f"{candidate.lr:g}"] if tuned else []),
            *(_cost_words(candidate, quantities) if cost else []),
            *([escape(row.state)] if mark_front else []),
            *([row.hash[:HASH_DIGITS]] if hashes else []),
        )
    return made


def _residual_columns(quantities: list[str]) -> list[tuple[str, str]]:
    return [(SHORT.get(q, q).replace(" ", "\n") + "\noff by", "right") for q in quantities]


def _cost_words(candidate: Candidate, quantities: list[str]) -> list[str]:
    ledger = candidate.row.ledger or {}
    residuals = residual_words(candidate)
    return [
        si(ledger.get("parameters"), 4),
        si(ledger.get("training_flops_per_token"), 4),
        size(ledger.get("memory_bytes")),
        *(residuals.get(quantity, "-") for quantity in quantities),
    ]


def budgeted(candidates: Iterable[Candidate]) -> list[str]:
    """The budget's quantities in its own order."""
    certificates = (c.row.certificate for c in candidates)
    return list(dict.fromkeys(q["quantity"] for c in certificates if c for q in c["quantities"]))


def by_score(candidates: Iterable[Candidate], objectives: Objectives) -> list[Candidate]:
    """Best first objective first; candidates without a value last."""
    first = objectives.names[0]
    sign = -1.0 if objectives.directions[first] == "max" else 1.0

    def place(candidate: Candidate) -> tuple[bool, float, int]:
        mean = candidate.means[first]
        return math.isnan(mean), sign * mean if math.isfinite(mean) else 0.0, candidate.row.number

    return sorted(candidates, key=place)


def objective_words(candidate: Candidate, name: str) -> str:
    """A mean with its interval: ``0.962 (0.951 - 0.973)``; without one the mean alone."""
    mean, interval = candidate.means[name], candidate.intervals[name]
    if math.isnan(mean):
        return "-"
    if interval is None:
        return number(mean)
    return f"{number(mean)} ({number(interval.low)} to {number(interval.high)})"


def number(value: float, *, signed: bool = False) -> str:
    """A value of an objective in three digits, large ones with a prefix: 0.9123 -> ``0.912``, 12345 -> ``12.3k``."""
    shown = si(value) if abs(value) >= 1000 else f"{value:.3g}"
    return f"+{shown}" if signed and value >= 0 else shown


def residual_words(candidate: Candidate) -> dict[str, str]:
    """Quantity -> nominal residual, followed by the realised one in brackets where routing changed it."""
    nominal = certificate_of(candidate.row.certificate)
    if nominal is None:
        return {}
    realised = realised_residuals(candidate)
    words = {}
    for entry in nominal.quantities:
        before = percent(entry.residual)
        after = percent(realised.get(entry.quantity, entry.residual))
        words[entry.quantity] = before if after == before else f"{before} ({after})"
    return words


def realised_residuals(candidate: Candidate) -> dict[str, float]:
    """Quantity -> mean over seeds of the residual at the rates the trained routers chose."""
    found: dict[str, list[float]] = {}
    for seed in candidate.seeds:
        point = seed.points.get(candidate.point)
        certificate = certificate_of(point.certificate if point is not None else None)
        for entry in certificate.quantities if certificate is not None else ():
            found.setdefault(entry.quantity, []).append(entry.residual)
    return {quantity: math.fsum(values) / len(values) for quantity, values in found.items()}


def certificate_of(data: dict[str, Any] | None) -> Certificate | None:
    """A stored certificate, or None where there is none."""
    return None if data is None else Certificate.model_validate(data)


def share(value: float | None) -> str:
    """A probability or rate in whole percent, never rounded to certainty: ``97%``, ``<1%``, ``>99%``."""
    if value is None:
        return "-"
    if 0 < value < 0.01:
        return "<1%"
    return ">99%" if 0.99 < value < 1 else f"{value:.0%}"


def divergence_words(rate: Divergence) -> str:
    """``2 of 10 runs diverged (20%, 95% interval 6% to 51%)``."""
    words = f"{rate.diverged} of {rate.runs} runs diverged"
    if rate.rate is None:
        return words
    return (
        f"{words} ({share(rate.rate.mean)}, 95% interval {share(rate.rate.low)} to {share(rate.rate.high)})"
    )


def divergence_data(rate: Divergence) -> dict[str, Any]:
    """A divergence rate as plain data."""
    interval = rate.rate
    return {
        "diverged": rate.diverged,
        "runs": rate.runs,
        "rate": None if interval is None else interval.mean,
        "low": None if interval is None else interval.low,
        "high": None if interval is None else interval.high,
    }


def unconfirmed(candidate: Candidate) -> bool:
    """Whether a candidate's numbers are those of the run that chose it, not of fresh ones."""
    return bool(candidate.done) and not candidate.confirmed


def caption(
    objectives: Objectives, *, cost: bool = True, surely: bool = False, provisional: bool = False
) -> str:
    """What the numbers mean: the interval, the key under which each speed was measured, and residuals."""
    lines = [
        "Means over seeds with 95% Student t intervals; no interval below 3 seeds. The front compares means: members whose "
        "intervals overlap may change places with more seeds."
    ]
    if surely:
        lines.append(SURELY)
    if provisional:
        lines.append(
            "?: provisional, from the one run that chose the candidate; the front's members are run again with fresh seeds."
        )
    for name, (phase, batch, tokens, dtype, device, policy, compiled) in objectives.keys.items():
        how = f"{policy} backends, {'compiled' if compiled else 'not compiled'}"
        lines.append(
            f"{HEADINGS.get(name, name)}: {phase}, batch {batch}, {tokens} tokens, {dtype}, {device}, {how}."
        )
    if cost:
        lines += [COUNTED, OFF_BY]
    return escape("\n".join(lines))


def crowded_words(candidates: Iterable[Candidate], objectives: Objectives) -> str:
    """What kept speeds of these candidates from being measured alone, a line each; the first few of many."""
    found = crowded(candidates, objectives)
    lines = [
        f"Not timed alone: candidate {item.number}, seed {item.seed}, {HEADINGS.get(item.metric, item.metric)}: {item.neighbours}."
        for item in found[:MOST_CROWDED]
    ]
    if len(found) > MOST_CROWDED:
        lines.append(f"Nor were {len(found) - MOST_CROWDED} more speeds; --json names them all.")
    return escape("".join(f"\n{line}" for line in lines))


def as_data(
    candidates: Iterable[Candidate], objectives: Objectives, surely: Mapping[tuple[int, str], float]
) -> list[dict[str, Any]]:
    """Candidates as plain data for ``--json``, best first; unknown numbers are null."""
    candidates = list(candidates)
    neighbours = [item._asdict() for item in crowded(candidates, objectives)]
    return [
        {
            "number": c.row.number,
            "point": c.point,
            "hash": c.row.hash,
            "family": c.row.family,
            "origin": c.row.origin,
            "state": c.row.state,
            "cause": c.row.cause,
            "on_front": c.on_front,
            "front_probability": surely.get(c.key),
            "divergence": divergence_data(of_seeds(c.seeds)),
            "confirmed": c.confirmed,
            "lr": c.lr,
            "settings": [_setting(s) for s in tuning(c.row.seeds)],
            "seeds": [s.seed for s in c.done],
            "objectives": {
                name: {
                    "mean": c.means[name],
                    "low": getattr(c.intervals[name], "low", None),
                    "high": getattr(c.intervals[name], "high", None),
                    "values": list(c.values[name]),
                }
                for name in objectives.names
            },
            "ledger": {quantity: (c.row.ledger or {}).get(quantity) for quantity in QUANTITIES},
            "certificate": c.row.certificate,
            "realised_residuals": realised_residuals(c),
            "neighbours": [
                {name: n[name] for name in ("seed", "metric", "neighbours")}
                for n in neighbours
                if n["number"] == c.row.number
            ],
        }
        for c in by_score(candidates, objectives)
    ]


def _setting(run: SeedRow) -> dict[str, Any]:
    """A tuning run as plain data: its score is null unless it was trained to the end."""
    own = own_point(run)
    score = None if own is None else own.evaluations[-1].score
    return {"seed": run.seed, "lr": run.lr, "state": run.state, "cause": run.cause, "score": score}


def front_data(
    study: str,
    candidates: Iterable[Candidate],
    objectives: Objectives,
    surely: Mapping[tuple[int, str], float],
    rates: Mapping[str, Divergence],
) -> dict[str, Any]:
    """Candidates with what their numbers mean, as they stand in ``--json`` objects. ``surely``: see ``print_candidates``;
    ``rates``: how often each family diverged."""
    return {
        "study": study,
        "objectives": dict(objectives.directions),
        "speed_keys": {name: dict(zip(KEY, key, strict=True)) for name, key in objectives.keys.items()},
        "conventions": [MATCHED, COUNTED, OFF_BY],
        "candidates": as_data(candidates, objectives, surely),
        "divergence": {family: divergence_data(rate) for family, rate in rates.items()},
    }


def whole_data(study: str, everything: Sequence[Candidate], objectives: Objectives) -> dict[str, Any]:
    """``front_data`` of all candidates there are."""
    surely = front_probabilities(everything, objectives)
    return front_data(
        study, everything, objectives, surely, by_family(c.row for c in everything if c.point == OWN)
    )


KEY = ("phase", "batch", "tokens", "dtype", "device", "policy", "compiled")
