"""Predicted against measured training peaks: the page, from records of ``benchmarks/bench_training_peak.py``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

PAGE = "training-peak.md"
RECORDS = Path(__file__).resolve().parent.parent / "_records"
GIB = 1 << 30


def text() -> str:
    """The page that the committed records give."""
    records = [
        json.loads(file.read_text(encoding="utf-8")) for file in sorted(RECORDS.glob("training_peak_*.json"))
    ]
    lines = [
        "<!-- Written from docs/_records/training_peak_*.json by `make generated`: change the records, not this page. -->",
        "",
        "# Training peak, predicted and measured",
        "",
        "The most memory that one training step holds, by the model of [the ledger](ledger.md), and as CUDA's allocator "
        "counted it (`benchmarks/bench_training_peak.py`; reference path and the kernel of the loss, AdamW on float32 weights, no recomputation).",
        "",
    ]
    for record in records:
        lines += section(record)
    return "\n".join(lines)


def section(record: dict[str, Any]) -> list[str]:
    """One device, shape and dtype."""
    shape, rows = record["shape"], record["rows"]
    worst = max(abs(row["relative_error"]) for row in rows)
    lines = [
        f"## {record['device']}, {shape['batch']} x {shape['tokens']} tokens, {shape['dtype']}",
        "",
        "| preset | parameters | predicted GiB | measured GiB | error | reserved GiB |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for row in rows:
        predicted, measured, reserved = (
            row[f"{k}_bytes"] / GIB for k in ("predicted", "measured", "reserved")
        )
        lines.append(
            f"| `{row['preset']}` | {row['parameters'] / 1e6:,.0f}M | {predicted:.2f} | {measured:.2f} | "
            f"{row['relative_error']:+.1%} | {reserved:.2f} |"
        )
    return [*lines, "", f"Largest error: {worst:.1%} (torch {record['torch']}).", ""]
