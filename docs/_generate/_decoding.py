"""Speeds of decoding: tables from records of ``benchmarks/bench_decode.py`` and ``benchmarks/bench_one_token.py``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

Record = dict[str, Any]
ORDER = ("backbone", "serial hybrid", "blocks always on", "AMOR, distilled router", "AMOR, entropy gate")


def section(record: Record) -> list[str]:
    """Everything that one record of ``bench_decode`` holds."""
    lines = [
        "## Decoding",
        "",
        "`python -m benchmarks.bench_decode`: one token of every row after another, its kernels recorded once and replayed. Caches "
        "hold random numbers at their full length and gates are forced at their rate, evenly spread; bfloat16.",
        "",
        f"### {record['device']}",
        "",
        f"Medians of {record['repeats']} repeats of {record['tokens']} tokens. Bounds are bytes by the ledger over "
        f"{record['copy_bytes_per_s'] / 1e12:.2f} TB/s, the device's own rate of copies, read and written.",
        "",
    ]
    rows = record.get("crossover", [])
    for batch in sorted({row["batch"] for row in rows}):
        lines += _by_context([row for row in rows if row["batch"] == batch], batch)
    lines += _launched(rows, record.get("launched", []))
    lines += _crossings(record.get("crossings", []))
    lines += _whole(record.get("whole", []))
    return lines[:-1]


def kernels(record: Record) -> list[str]:
    """Kernels beside their rivals."""
    lines = [
        "## Kernels of one decoded token",
        "",
        "`python -m benchmarks.bench_one_token`: attention of one query a row over a cache, and maps of one row; also with rows that "
        "are not read. Many calls recorded and replayed; bfloat16.",
        "",
        f"### {record['device']}",
        "",
    ]
    for part, about in (("attention", ("batch", "context")), ("linear", ("outputs", "inputs"))):
        rows = record.get(part, [])
        arms = list(dict.fromkeys(row["arm"] for row in rows))
        if not arms:
            continue
        lines += [f"| {' | '.join((*about, *arms))} |", f"|{'---:|' * (len(about) + len(arms))}"]
        found: dict[tuple[int, ...], dict[str, float]] = {}
        for row in rows:
            found.setdefault(tuple(row[key] for key in about), {})[row["arm"]] = row["seconds"]
        for key, seconds in found.items():
            cells = [f"{seconds[arm] * 1e6:,.1f} us" if arm in seconds else "" for arm in arms]
            lines.append(f"| {' | '.join((*(f'{n:,}' for n in key), *cells))} |")
        lines.append("")
    return lines[:-1]


def _by_context(rows: list[Record], batch: int) -> list[str]:
    contexts = sorted({row["context"] for row in rows})
    lines = [
        f"Tokens/s at batch {batch}, by context:",
        "",
        f"| arm | rate | {' | '.join(f'{context:,}' for context in contexts)} |",
        f"|---|---:|{'---:|' * len(contexts)}",
    ]
    for (arm, rate), speed in _speeds(rows):
        cells = [f"{speed[context]:,.0f}" if context in speed else "" for context in contexts]
        lines.append(f"| {arm} | {rate or ''} | {' | '.join(cells)} |")
    return [*lines, ""]


def _launched(recorded: list[Record], launched: list[Record]) -> list[str]:
    if not launched:
        return []
    lines = [
        "Recorded tokens beside tokens that are launched kernel by kernel, at batch 1: tokens/s, and how many times as fast:",
        "",
        "| arm | rate | context | launched | recorded | ratio |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    own = dict(_speeds([row for row in recorded if row["batch"] == 1]))
    for key, speed in _speeds(launched):
        for context, slow in sorted(speed.items()):
            fast = own.get(key, {}).get(context)
            if fast is not None:
                lines.append(
                    f"| {key[0]} | {key[1] or ''} | {context:,} | {slow:,.0f} | {fast:,.0f} | {fast / slow:.1f} |"
                )
    return [*lines, ""]


def _crossings(rows: list[Record]) -> list[str]:
    if not rows:
        return []
    lines = [
        "The context from which on a gated model is the faster one, beside what the formulas say of the entropy gate's probe, "
        "V/(2(1-p)) - D for FLOPs and V/(2B(1-p)) for bytes, against blocks that are always on:",
        "",
        "| arm | rate | rival | batch | kernels | measured | FLOPs say | bytes say |",
        "|---|---:|---|---:|---|---:|---:|---:|",
    ]
    for row in rows:
        measured = {"at": "", "below": "below ", "above": "never up to "}[row["from"]] + f"{row['tokens']:,}"
        native = row["arm"] == "AMOR, entropy gate" and row["rival"] == "blocks always on"
        says = [
            f"{row[key]:,.0f}" if native and row[key] is not None else ""
            for key in ("formula_flops", "formula_bytes")
        ]
        kernels = "recorded" if row["part"] == "crossover" else "launched"
        lines.append(
            f"| {row['arm']} | {row['rate']} | {row['rival']} | {row['batch']} | {kernels} | {measured} | {' | '.join(says)} |"
        )
    return [*lines, ""]


def _whole(rows: list[Record]) -> list[str]:
    if not rows:
        return []
    lines = [
        "Whole models at batch 1 beside the bytes that a token moves:",
        "",
        "| preset | context | tokens/s | from, to | bytes' bound | share |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for row in rows:
        lines.append(
            f"| `{row['arm']}` | {row['context']:,} | {row['tokens_per_s']:,.0f} | {min(row['all']):,.0f}, "
            f"{max(row['all']):,.0f} | {row['bound_tokens_per_s']:,.0f} | {row['tokens_per_s'] / row['bound_tokens_per_s']:.0%} |"
        )
    return [*lines, ""]


def _speeds(rows: list[Record]) -> Iterator[tuple[tuple[str, str | None], dict[int, float]]]:
    """(arm, rate) and its tokens/s by context, arms in order."""
    found: dict[tuple[str, str | None], dict[int, float]] = {}
    for row in rows:
        found.setdefault((row["arm"], row["rate"]), {})[row["context"]] = row["tokens_per_s"]
    return iter(sorted(found.items(), key=lambda item: (ORDER.index(item[0][0]), float(item[0][1] or 0))))
