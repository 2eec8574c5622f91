"""The section on several devices of one host, from the record of ``benchmarks/bench_devices.py``."""

from __future__ import annotations

import statistics
from typing import Any

UNITS = {"training": "tokens/s", "trials": "trials an hour"}


def section(record: dict[str, Any]) -> list[str]:
    """One table for trials that are trained on several devices, one for trials that are spread over them."""
    lines = [
        "## Several devices of one host",
        "",
        "`python -m benchmarks.bench_devices`: the lab's own loop on one device and on several that share a batch "
        "(`search.devices_per_trial`), and trials of a hybrid of 2M parameters on a Ray pool of one device and of several. *Times one*: "
        "within each repeat. *Loss off by*: the largest difference of a turn's last loss from that on one device with the same batches.",
        "",
    ]
    for part, unit in UNITS.items():
        rows = [row for row in record["rows"] if row["part"] == part]
        if not rows:
            continue
        lines += [
            f"### {record['device']}: {'one trial' if part == 'training' else 'trials at once'}",
            "",
            f"| subject | arm | rows x tokens a step | workers | {unit} | from, to | times one | loss off by | recorded steps |",
            "|---|---|---|---:|---:|---:|---:|---:|---|",
            *map(_line, rows),
            "",
        ]
    return lines[:-1]


def _line(row: dict[str, Any]) -> str:
    off = "" if row["loss_off"] is None or row["devices"] == 1 else f"{row['loss_off']:.1e}"
    times = f"{statistics.median(row['times_one']):.2f}" if row["times_one"] else ""
    return (
        f"| `{row['subject']}` | {row['arm']} | {row['batch']} x {row['tokens']:,} | {row['workers'] or ''} | {row['rate']:,.0f} | "
        f"{min(row['all']):,.0f}, {max(row['all']):,.0f} | {times} | {off} | {'yes' if row['replayed'] else 'no'} |"
    )
