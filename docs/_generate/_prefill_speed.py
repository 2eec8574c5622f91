"""The section on prefill, from the record of ``benchmarks/bench_prefill.py``."""

from __future__ import annotations

import statistics
from typing import Any

MEANING = {
    "oryx": "Oryx reads the prompt by its linear reader and then decodes by attention over the keys that it wrote",
    "amor": "AMOR's gates let a forced share of the tokens through, given behind the name",
}


def section(record: dict[str, Any]) -> list[str]:
    """One table a group, lengths in order."""
    lines = [
        "## Prefill",
        "",
        "`python -m benchmarks.bench_prefill`: one prompt into an empty state, the logits of its last token, "
        f"{record['dtype']}; the time to the first token. The last column compares with the rival, the group's last row.",
        "",
    ]
    for group in sorted({row["group"] for row in record["rows"]}, reverse=True):
        rows = sorted((row for row in record["rows"] if row["group"] == group), key=lambda row: row["tokens"])
        lines += [f"### {record['device']}: {MEANING[group]}", ""]
        lines += [
            "| tokens | preset | backend | first token, ms | from, to | tokens/s | one more token, ms | times the rival |",
            "|---:|---|---|---:|---:|---:|---:|---:|",
        ]
        for row in rows:
            lines += [_line(row, arm, ms) for arm, ms in row["ms"].items()]
        lines.append("")
    return lines[:-1]


def _line(row: dict[str, Any], arm: str, ms: list[float]) -> str:
    name, _, rate = arm.partition(" ")
    median = statistics.median(ms)
    after = row.get("decode_ms", {}).get(name)
    more = f"{statistics.median(after):.2f}" if after else ""
    times = row["times_rival"].get(arm)
    return (
        f"| {row['tokens']:,} | `{name}`{f' {rate}' if rate else ''} | {row['backends'][name]} | {median:,.1f} | "
        f"{min(ms):,.1f}, {max(ms):,.1f} | {1e3 * row['tokens'] / median:,.0f} | {more} | {'' if times is None else f'{times:.2f}'} |"
    )
