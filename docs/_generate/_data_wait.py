"""The section on waiting for data, from the record of ``benchmarks/bench_data_wait.py``."""

from __future__ import annotations

import statistics
from typing import Any


def section(record: dict[str, Any]) -> list[str]:
    lines = [
        "## Waiting for data",
        "",
        "`python -m benchmarks.bench_data_wait`: recorded steps of the lab's loop, whose batches a thread makes ahead, against the "
        "same loop on batches that were made beforehand and lie in pinned memory. *Wait*: what the former take longer, as a share "
        "of their step; below zero is noise. *Without a thread*: the same for batches made between steps.",
        "",
        f"### {record['device']}",
        "",
        "| preset | task | rows x tokens | ms a step | making a batch, ms | wait | from, to | without a thread |",
        "|---|---|---:|---:|---:|---:|---:|---:|",
    ]
    for row in record["rows"]:
        made, between = row["wait"]["made"], row["wait"]["between"]
        lines.append(
            f"| `{row['preset']}` | {row['task']} | {row['batch']} x {row['tokens']:,} | {statistics.median(row['ms']['made']):.2f} | "
            f"{statistics.median(row['make_ms']):.2f} | {statistics.median(made):.1%} | {min(made):.1%}, {max(made):.1%} | "
            f"{statistics.median(between):.1%} |"
        )
    return lines
