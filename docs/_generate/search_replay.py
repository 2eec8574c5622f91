"""Tokens that searches need on recorded learning curves: the page, from the record of ``benchmarks/bench_search.py``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

PAGE = "search-replay.md"
RECORD = Path(__file__).resolve().parent.parent / "_records" / "search_replay.json"


def text() -> str:
    """The page that the committed record gives."""
    record = json.loads(RECORD.read_text(encoding="utf-8"))
    lines = [
        "<!-- Written from docs/_records/search_replay.json by `make generated`: change the record, not this page. -->",
        "",
        "# Tokens to a front",
        "",
        INTRODUCTION.format(share=record["share"], repeats=record["repeats"]),
    ]
    for name, table in record["tables"].items():
        lines += section(name, table, record["repeats"])
    return "\n".join([*lines, *record.get("notes", []), ""])


def section(name: str, table: dict[str, Any], repeats: int) -> list[str]:
    """One table of curves: every strategy, the fewest tokens first."""
    strategies = sorted(table["strategies"].items(), key=lambda pair: pair[1]["mean"])
    random = table["strategies"].get("random", {}).get("mean")
    lines = [
        f"## `{name}`",
        "",
        f"{table['configurations']} configurations of {table['tokens']:,} tokens each, {table['front']} on the front; "
        f"{table['role']}.",
        "",
        "| strategy | whole runs' tokens | 95% interval | share of random | begun | finished | reached |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for strategy, one in strategies:
        low, high = one["interval"] or (float("nan"), float("nan"))
        part = "" if not random else f"{one['mean'] / random:.2f}"
        lines.append(
            f"| {strategy} | {one['mean']:.1f} | {low:.1f} to {high:.1f} | {part} | {one['begun']:.0f} | "
            f"{one['finished']:.0f} | {one['reached']} of {repeats} |"
        )
    return [*lines, ""]


INTRODUCTION = """\
What a search wastes, measured without training: real learning curves of a full factorial grid of small hybrids were recorded once
(`benchmarks/replay/record.py`, one CPU core and thread a run, evaluated at eight checkpoints) and are replayed
(`python -m benchmarks.bench_search`). Counted are the training tokens, in whole runs, until fully trained configurations hold
{share:.0%} of the table's hypervolume in score and decode FLOPs per token; means over {repeats} seeds of the strategy with
Student's t intervals. The reference point is the driver's: chance, and twice the cost of a plain Transformer of the grid.

Everybody trains one configuration at a time and repeats one for free, so no figure comes from duplicates. `random`, `nsga2`
(population 20) and `tpe` are Optuna's, by themselves, trained to the end; with our rungs they are the same samplers under
`train.rungs: [1/9, 1/3, 1]`, learning from whole runs. `ray tune asha` is Ray Tune's own scheduler class over random draws, on the
sum of score and cost scaled by the table's ranges. `crossbreed` is our proposals (starting points, then TPE that learns from rungs
until ten runs are whole, every second candidate screened by its costs) and promotions through the functions that the driver calls, without its database and workers. Two
things are simplified: what cannot beat a finished configuration at the task's bound is passed over, and after ten repeated
proposals an even draw of what is left stands in for the driver's next seed.
"""
