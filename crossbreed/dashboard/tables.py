"""Stored results as tables; headings carry the units, cells stay numbers where people sort by them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from itertools import dropwhile, takewhile
from typing import Any

import pandas as pd

from crossbreed.core.budget.certificate import Certificate
from crossbreed.core.ledger import QUANTITIES
from crossbreed.core.search.candidates import OWN, SCORE, Candidate, Objectives
from crossbreed.figures.words import (
    UNITS,
    amount,
    interval,
    key_in_words,
    number,
    percent,
    short_name,
    si,
    size,
)
from crossbreed.storage.rows import RunDetail

KIB = 1024
PART_NAMES = ("mixer", "name", "kind")
"""Fields of a genome that say what a part is."""


def candidate_rows(candidates: Sequence[Candidate], objectives: Objectives) -> pd.DataFrame:
    """Every candidate with its state and cause, objectives with intervals, cost, and nominal residuals in percent.

    In order. Cells nobody measured are empty; an open star is a member that no fresh run has confirmed yet.
    """
    return pd.DataFrame([_candidate_row(c, objectives) for c in in_order(candidates)])


def in_order(candidates: Sequence[Candidate]) -> list[Candidate]:
    """The front first, then by number."""
    return sorted(candidates, key=lambda c: (not c.on_front, c.row.number, c.point != OWN))


def _candidate_row(candidate: Candidate, objectives: Objectives) -> dict[str, Any]:
    row, ledger = candidate.row, candidate.row.ledger or {}
    cells: dict[str, Any] = {
        "#": row.number,
        "front": ("☆" if candidate.provisional else "★") if candidate.on_front else "",
        "family": row.family,
        **({"point": candidate.point} if len(objectives.points) > 1 else {}),
        "state": row.state.replace("_", " "),
        "seeds": len(candidate.done),
        "lr": candidate.lr,
    }
    for name in objectives.names:
        mean = candidate.means[name]
        heading = UNITS.get(name, name)
        cells[heading] = mean if math.isfinite(mean) else None
        if name not in QUANTITIES:
            found = candidate.intervals[name]
            cells[f"{heading}: 95% interval"] = None if found is None else interval(candidate, name)
    cells |= {
        "parameters": ledger.get("parameters"),
        "training FLOPs/token": ledger.get("training_flops_per_token"),
        "memory, KiB": ledger["memory_bytes"] / KIB if "memory_bytes" in ledger else None,
    }
    for residual in (row.certificate or {}).get("quantities", ()):
        cells[f"Δ {short_name(residual['quantity'])}, %"] = 100 * residual["residual"]
    return cells | {"cause": row.cause, "origin": row.origin, "hash": row.hash[:12]}


def certificate_rows(nominal: Certificate, realised: dict[str, float]) -> pd.DataFrame:
    """One line a budgeted quantity: its rule, target, value and signed residuals before and after training."""
    return pd.DataFrame(
        [
            {
                "quantity": short_name(r.quantity),
                "rule": f"±{100 * r.tolerance:.3g}%" if r.kind == "match" else f"≤{100 * r.tolerance:.3g}%",
                "reference": amount(r.quantity, r.target),
                "value": amount(r.quantity, r.value),
                "nominal residual": f"{percent(r.residual)} {'✓' if r.ok else '✗'}",
                "realised residual": percent(realised.get(r.quantity)),
            }
            for r in nominal.quantities
        ]
    )


def realised_residuals(runs: Sequence[RunDetail]) -> dict[str, float]:
    """Quantity -> mean over runs of the signed residual at the rates that trained routers chose."""
    found: dict[str, list[float]] = {}
    for run in runs:
        point = run.points.get(OWN)
        for entry in ((point.certificate if point is not None else None) or {}).get("quantities", ()):
            found.setdefault(entry["quantity"], []).append(entry["residual"])
    return {quantity: math.fsum(values) / len(values) for quantity, values in found.items()}


def ledger_totals(ledger: dict[str, Any]) -> pd.DataFrame:
    """FLOPs per token by phase, algorithmic and executed."""
    names = {"training": "training (forward + backward)", "prefill": "prefill", "decode": "decode"}
    return pd.DataFrame(
        [
            {
                "phase": words,
                "algorithmic, FLOPs/token": si(ledger.get(f"{phase}_flops_per_token"), 4),
                "executed, FLOPs/token": si(ledger.get(f"executed_{phase}_flops_per_token"), 4),
            }
            for phase, words in names.items()
        ]
    )


def ledger_amounts(ledger: dict[str, Any]) -> pd.DataFrame:
    """Parameters, memory and traffic."""
    counted = {
        "parameters": "parameters, tied ones once",
        "active_parameters": "parameters one token uses",
        "non_embedding_parameters": "parameters without embeddings",
        "weight_bytes": "weights",
        "state_bytes": f"decode state of one sequence of {ledger.get('tokens')} tokens",
        "memory_bytes": "memory: weights + decode state",
        "decode_traffic_bytes_per_token": "bytes moved per decoded token",
    }
    rows = []
    for name, words in counted.items():
        value = ledger.get(name)
        text = size(value) if "bytes" in name else "–" if value is None else f"{value:,}"
        rows.append({"quantity": words, "amount": text})
    return pd.DataFrame(rows)


def ledger_parts(ledger: dict[str, Any]) -> pd.DataFrame:
    """The ledger by part of the model."""
    return pd.DataFrame(
        [
            {
                "site": part["site"],
                "part": part["name"],
                "rates": " ".join(f"{rate:.3g}" for rate in part["rates"]),
                "parameters": part["parameters"],
                "training FLOPs/token": part["training_flops_per_token"],
                "decode FLOPs/token": part["decode_flops_per_token"],
                "state, bytes": part["state_bytes"],
            }
            for part in ledger.get("parts", ())
        ]
    )


def point_rows(runs: Sequence[RunDetail]) -> pd.DataFrame:
    """Every stored number of every operating point: scores, then speeds with the key they were measured under."""
    rows: list[dict[str, Any]] = []
    for run in runs:
        for point in run.points.values():
            place = {"seed": run.run.seed, "operating point": point.name}
            for e in point.evaluations:
                rest = ", ".join(f"{k} {si(v)}" for k, v in e.metrics.items())
                under = f"{e.tokens} tokens, {e.rows} rows: {rest}"
                under += (
                    "" if e.tolerance is None else f"; the same within {e.tolerance:g} in batches of any size"
                )
                rows.append(place | {"quantity": SCORE, "value": e.score, "measured under": under})
            for m in point.measurements:
                settled = "" if m.stable else "; the warm-up did not settle"
                settled += f"; meanwhile {m.neighbours}" if m.neighbours else ""
                rows.append(
                    place
                    | {"quantity": UNITS.get(m.metric, m.metric), "value": m.median}
                    | {"quartiles": f"{number(m.q1)} – {number(m.q3)}", "repeats": m.repeats}
                    | {"measured under": key_in_words(m.key()) + settled}
                )
    columns = ["seed", "operating point", "quantity", "value", "quartiles", "repeats", "measured under"]
    return pd.DataFrame(rows, columns=columns)


def run_rows(runs: Sequence[RunDetail]) -> pd.DataFrame:
    """One line a run with its state and cause."""
    return pd.DataFrame(
        [
            {
                "run": r.run.key,
                "role": r.run.role,
                "lr": r.run.recipe.get("lr"),
                "state": r.run.state.replace("_", " "),
                "cause": r.run.cause,
                "rungs done": r.run.rungs_done,
                "training tokens": r.rungs[-1].tokens if r.rungs else None,
                "worker": r.run.worker,
                "started (UTC)": _time(r.run.started_at),
                "finished (UTC)": _time(r.run.finished_at),
                "plugins": ", ".join(f"{k} {v}" for k, v in r.run.identities.items()),
            }
            for r in runs
        ]
    )


def differing_fields(genomes: Mapping[int, Mapping[str, Any]]) -> tuple[pd.DataFrame, int]:
    """The fields in which genomes (by number of their candidates) differ, a column each, and how many are alike.

    Names of parts come first, since what else differs mostly follows from them.
    """
    fields = {n: dict(_flattened(genome)) for n, genome in genomes.items()}
    paths = sorted(
        {p for f in fields.values() for p in f}, key=lambda p: (p.rsplit(".", 1)[-1] not in PART_NAMES, p)
    )
    rows = []
    for path in paths:
        values = [f.get(path, "–") for f in fields.values()]
        if len(set(values)) > 1:
            rows.append({"field": _field(path)} | {f"#{n}": v for n, v in zip(fields, values, strict=True)})
    return pd.DataFrame(rows, columns=["field", *(f"#{n}" for n in fields)]), len(paths) - len(rows)


def _field(path: str) -> str:
    """A field by its place: ``stages.0.blocks.1.sublayers.0.params.heads`` is ``0.1.0 heads``."""
    words = [w for w in path.split(".") if w not in ("stages", "blocks", "sublayers", "params")]
    place = ".".join(takewhile(str.isdigit, words))
    name = ".".join(dropwhile(str.isdigit, words))
    return f"{place} {name}".strip()


def _flattened(node: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """(path, value as text) of every field that is not a mapping or a list of them."""
    if isinstance(node, Mapping) and node:
        for name, value in node.items():
            yield from _flattened(value, f"{path}.{name}".lstrip("."))
    elif isinstance(node, list) and node:
        for i, value in enumerate(node):
            yield from _flattened(value, f"{path}.{i}")
    else:
        yield path, "none" if node is None else str(node)


def _time(at: datetime | None) -> str | None:
    return None if at is None else f"{at:%Y-%m-%d %H:%M:%S}"
