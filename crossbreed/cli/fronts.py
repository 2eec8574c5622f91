"""Candidates of a study as a table and as JSON: objectives with intervals, cost, and certificate residuals."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from crossbreed.cli.certificates import SHORT
from crossbreed.cli.output import percent, si, size, table
from crossbreed.core.budget.certificate import Certificate
from crossbreed.core.ledger import QUANTITIES
from crossbreed.core.search.candidates import OWN, Candidate, Objectives

COST: list[str | tuple[str, str]] = [
    ("parameters", "right"),
    ("train\nFLOPs/token", "right"),
    ("memory", "right"),
]
COUNTED = (
    f"Parameters: {QUANTITIES['parameters']}. Train FLOPs/token: {QUANTITIES['training_flops_per_token']}; a multiply-add is 2. "
    f"Memory: {QUANTITIES['memory_bytes']}."
)
OFF_BY = (
    "Off by: distance from the budget's reference at nominal rates; in brackets at the rates that trained routers chose, "
    "where they differ."
)
HEADINGS = {
    "decode_tokens_per_s": "decode tokens/s",
    "prefill_tokens_per_s": "prefill tokens/s",
}


NARROW = 120
"""Columns below which objectives and costs are two tables: cells of one would break inside their numbers."""


def print_candidates(
    console: Console,
    candidates: Iterable[Candidate],
    objectives: Objectives,
    title: str,
    *,
    mark_front: bool = False,
) -> None:
    """Objectives, cost and certificate residuals of candidates, in as many tables as the console's width needs."""
    found = list(candidates)
    if console.width >= NARROW:
        console.print(candidate_table(found, objectives, title, mark_front=mark_front))
        return
    console.print(candidate_table(found, objectives, title, mark_front=mark_front, cost=False))
    console.print(cost_table(found, objectives))


def cost_table(candidates: Iterable[Candidate], objectives: Objectives) -> Table:
    """The ledger's numbers and the certificate's residuals, one line a candidate in the order of ``candidate_table``."""
    found = by_score(candidates, objectives)
    quantities = budgeted(found)
    made = table("", [("#", "right"), *COST, *_residual_columns(quantities)], caption=OFF_BY)
    for candidate in found:
        made.add_row(str(candidate.row.number), *_cost_words(candidate, quantities))
    return made


def candidate_table(
    candidates: Iterable[Candidate],
    objectives: Objectives,
    title: str,
    *,
    mark_front: bool = False,
    cost: bool = True,
) -> Table:
    """One line a candidate, best first. ``mark_front`` stars members of the front and adds states; without ``cost`` the
    ledger's numbers and residuals are left out (candidates need none then)."""
    found = by_score(candidates, objectives)
    quantities = budgeted(found) if cost else []
    made = table(
        title,
        [
            ("#", "right"),
            "family",
            *((HEADINGS.get(name, name).replace(" ", "\n"), "right") for name in objectives.names),
            ("seeds", "right"),
            *(COST if cost else []),
            *_residual_columns(quantities),
            *(["state"] if mark_front else []),
        ],
        caption=caption(objectives, cost=cost),
    )
    for candidate in found:
        row = candidate.row
        star = "*" if mark_front and candidate.on_front else ""
        made.add_row(
            f"{star}{row.number}",
            escape(row.family),
            *(objective_words(candidate, name) for name in objectives.names),
            str(len(candidate.done)),
            *(_cost_words(candidate, quantities) if cost else []),
            *([escape(row.state)] if mark_front else []),
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
    show = si if abs(mean) >= 1000 else "{:.3g}".format
    if interval is None:
        return show(mean)
    return f"{show(mean)} ({show(interval.low)} to {show(interval.high)})"


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
        point = seed.points.get(OWN)
        certificate = certificate_of(point.certificate if point is not None else None)
        for entry in certificate.quantities if certificate is not None else ():
            found.setdefault(entry.quantity, []).append(entry.residual)
    return {quantity: math.fsum(values) / len(values) for quantity, values in found.items()}


def certificate_of(data: dict[str, Any] | None) -> Certificate | None:
    """A stored certificate, or None where there is none."""
    return None if data is None else Certificate.model_validate(data)


def caption(objectives: Objectives, *, cost: bool = True) -> str:
    """What the numbers mean: the interval, the key under which each speed was measured, and residuals."""
    lines = [
        "Means over seeds with 95% Student t intervals; no interval below 3 seeds. The front compares means: members whose "
        "intervals overlap may change places with more seeds."
    ]
    for name, (phase, batch, tokens, dtype, device, policy, compiled) in objectives.keys.items():
        how = f"{policy} backends, {'compiled' if compiled else 'not compiled'}"
        lines.append(
            f"{HEADINGS.get(name, name)}: {phase}, batch {batch}, {tokens} tokens, {dtype}, {device}, {how}."
        )
    if cost:
        lines += [COUNTED, OFF_BY]
    return escape("\n".join(lines))


def as_data(candidates: Iterable[Candidate], objectives: Objectives) -> list[dict[str, Any]]:
    """Candidates as plain data for ``--json``, best first; unknown numbers are null."""
    return [
        {
            "number": c.row.number,
            "hash": c.row.hash,
            "family": c.row.family,
            "origin": c.row.origin,
            "state": c.row.state,
            "cause": c.row.cause,
            "on_front": c.on_front,
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
        }
        for c in by_score(candidates, objectives)
    ]


def front_data(study: str, candidates: Iterable[Candidate], objectives: Objectives) -> dict[str, Any]:
    """Candidates with what their numbers mean, as they stand in ``--json`` objects."""
    return {
        "study": study,
        "objectives": dict(objectives.directions),
        "speed_keys": {name: dict(zip(KEY, key, strict=True)) for name, key in objectives.keys.items()},
        "candidates": as_data(candidates, objectives),
    }


KEY = ("phase", "batch", "tokens", "dtype", "device", "policy", "compiled")
