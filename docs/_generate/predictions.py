"""Predicted against measured seconds: the page, from records of ``benchmarks/bench_predictions.py`` and today's cost models."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from crossbreed.core.errors import ConfigError
from crossbreed.core.genome import Architecture, parse
from crossbreed.core.host import Host, Registry
from crossbreed.core.ledger import Shape

PAGE = "predictions.md"
RECORDS = Path(__file__).resolve().parent.parent / "_records"
KEY = ("phase", "batch", "tokens")


@dataclass(frozen=True)
class Compared:
    """One time of one architecture: measured, by the roofline, and by the fit (None where it refuses to answer)."""

    name: str
    held_out: bool
    key: tuple[str, int, int]
    measured: float
    roofline: float
    fitted: float | None
    own_error: float | None
    refusal: str


def compared(record: dict[str, Any], registry: Registry) -> list[Compared]:
    """Every time of a record beside what today's cost models say. The fit sees no architecture that is held out."""
    shared = {
        "dtype": record["dtype"],
        "device": record["device"],
        "policy": record["policy"],
        "compiled": False,
    }
    profiles = [
        {**shared, **{name: time[name] for name in KEY}, "seconds_per_token": time["seconds_per_token"]}
        | {"architecture": entry["genome"], "rates": None}
        for entry in record["architectures"]
        if not entry["held_out"]
        for time in entry["times"]
    ]
    device = {**record["ceilings"], "profiles": profiles}
    roofline, measured = (
        registry.factory("cost", name)(registry.config("cost", name, params), registry)
        for name, params in (("roofline", {}), ("measured", {"policy": record["policy"]}))
    )
    found = []
    for entry in record["architectures"]:
        genome = registry.canonical(parse(Architecture, entry["genome"], entry["family"]))
        for time in entry["times"]:
            key = tuple(time[name] for name in KEY)
            phase, batch, tokens = key
            shape = Shape(batch, tokens, record["dtype"])
            bound = roofline.estimate(genome, shape, device).prediction.seconds_per_token[phase]
            # Each phase by itself: a refusal in one is none in another.
            of_phase = {**device, "profiles": [p for p in profiles if p["phase"] == phase]}
            fitted = own = None
            refusal = ""
            try:
                prediction = measured.estimate(genome, shape, of_phase).prediction
                fitted, own = prediction.seconds_per_token[phase], prediction.relative_error[phase]
            except ConfigError as error:
                refusal = str(error)
            name = f"{entry['family']}, {entry['layers']} x {entry['d_model']}"
            found.append(
                Compared(name, entry["held_out"], key, time["seconds_per_token"], bound, fitted, own, refusal)
            )
    return found


def text() -> str:
    """The page that the committed records and the cost models give."""
    registry = Host.load(third_party=False)
    lines = [
        "<!-- Written from docs/_records/predictions_*.json by `make generated`: change the records or the cost models. -->",
        "",
        "# Seconds, predicted and measured",
        "",
        "What the cost models `roofline` and `measured` ([the ledger](ledger.md)) say of architectures whose times were taken on a "
        "real device (`benchmarks/bench_predictions.py`): six families at four sizes, one size of each held out of the fit, chosen "
        "by its place in the grid before anything was measured. The reference path runs in eager PyTorch; training is one AdamW step "
        "of 4 sequences, prefill and decode are of one.",
        "",
    ]
    lines += [
        "How to read it. `roofline` is a bound: a device that only multiplied, copied and launched at its ceilings would be no "
        "faster, so a ratio of 0.2 says that four fifths of the time went elsewhere, in eager PyTorch mostly into what Python does "
        "between launches. It is for telling apart what is bound by arithmetic, by memory and by launches, and for order. "
        "`measured` learns the elsewhere from profiles, as far as FLOPs, bytes and runs of parts explain it; a family whose parts "
        "launch many more operations a run than the others' is where it is furthest off, and the error it states of itself is the "
        "median, not the worst. Budgets use neither.",
        "",
    ]
    for file in sorted(RECORDS.glob("predictions_*.json")):
        lines += section(json.loads(file.read_text(encoding="utf-8")), registry)
    return "\n".join(lines)


def section(record: dict[str, Any], registry: Registry) -> list[str]:
    """One device and dtype."""
    rows, ceilings = compared(record, registry), record["ceilings"]
    rates = ", ".join(
        f"{rate / 1e12:.3g} TFLOP/s in {d}" for d, rate in ceilings["matrix_flops_per_s"].items()
    )
    crowded = sum(bool(t["neighbours"]) for e in record["architectures"] for t in e["times"])
    unsettled = sum(not t["stable"] for e in record["architectures"] for t in e["times"])
    return [
        f"## {record['device']}, {record['dtype']}, policy {record['policy']}",
        "",
        f"Ceilings: {rates}; copies {ceilings['copy_bytes_per_s'] / 1e12:.3g} TB/s; {ceilings['launch_s'] * 1e6:.2g} us a launch "
        f"(torch {record['torch']}). {len(rows)} times of {len(record['architectures'])} architectures, {crowded} of them not "
        f"measured alone, {unsettled} whose warm-up did not settle.",
        "",
        "| phase | tokens | roofline / measured, median (range) | rank agreement | `measured`, held out: median error (worst) | it says of itself |",
        "|---|---:|---:|---:|---:|---:|",
        *(_summary(key, [r for r in rows if r.key == key]) for key in dict.fromkeys(r.key for r in rows)),
        "",
        "Rank agreement is Spearman's coefficient between roofline and time over all architectures: whether the cheaper of two is "
        "the faster. Held out, in microseconds a token:",
        "",
        "| architecture | phase | tokens | measured | `roofline` | `measured` | error |",
        "|---|---|---:|---:|---:|---:|---:|",
        *(_row(r) for r in rows if r.held_out),
        "",
    ]


def _summary(key: tuple[str, int, int], rows: list[Compared]) -> str:
    phase, _, tokens = key
    ratios = sorted(r.roofline / r.measured for r in rows)
    errors = [abs(r.fitted / r.measured - 1) for r in rows if r.held_out and r.fitted is not None]
    refused = sum(r.held_out and r.fitted is None for r in rows)
    own = next((r.own_error for r in rows if r.own_error is not None), None)
    held = "-" if not errors else f"{statistics.median(errors):.0%} ({max(errors):.0%})"
    held += f", {refused} refused" if refused else ""
    return (
        f"| {phase} | {tokens:,} | {statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f}) | "
        f"{_spearman([r.roofline for r in rows], [r.measured for r in rows]):.2f} | {held} | {'-' if own is None else f'{own:.0%}'} |"
    )


def _row(r: Compared) -> str:
    fitted = "refused" if r.fitted is None else _us(r.fitted)
    error = "-" if r.fitted is None else f"{r.fitted / r.measured - 1:+.0%}"
    return f"| {r.name} | {r.key[0]} | {r.key[2]:,} | {_us(r.measured)} | {_us(r.roofline)} | {fitted} | {error} |"


def _us(seconds: float) -> str:
    return f"{1e6 * seconds:,.3g}"


def _spearman(a: list[float], b: list[float]) -> float:
    return statistics.correlation(list(_ranks(a)), list(_ranks(b)))


def _ranks(values: list[float]) -> Iterator[float]:
    order = sorted(values)
    return (float(order.index(value)) for value in values)
