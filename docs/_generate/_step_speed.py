"""Sections on what makes up a training step, from the records of ``benchmarks/bench_oryx_step.py``, ``bench_experts.py`` and
``bench_depth.py``.
"""

from __future__ import annotations

from typing import Any

Record = dict[str, Any]


def oryx(record: Record) -> list[str]:
    """Steps by the share of segments that attention reads."""
    shape = record["shape"]
    lines = [
        "## Steps of Oryx by who reads",
        "",
        "`python -m benchmarks.bench_oryx_step`: steps of the lab's loop with modes drawn anew for each repeat. *skipping*: attention "
        "computes the queries of segments that read by it, as it does in training; *masked*: all, then masked; *one reader*: a model "
        "that holds that reader alone. Prediction: the ledger's cost of a step is linear in the share p that reads by attention, "
        "since recurrences are written for every token, so its time is p x all attention + (1 - p) x none; of all attention the "
        "quicker of *skipping* and *masked*. The last comparison has the models of one reader at its ends instead.",
        "",
        f"### {record['device']}, {shape['batch']} x {shape['tokens']} tokens, {shape['dtype']}",
        "",
        "| preset | backend | arm | ms | from, to | predicted ms | time / prediction | time / one reader's | steps |",
        "|---|---|---|---:|---:|---:|---:|---:|---|",
    ]
    for row in record["rows"]:
        harder = f"{row['over_one_reader']:.2f}" if "over_one_reader" in row else ""
        predicted = (
            f"{row['predicted_ms']:.1f} | {row['over_prediction']:.2f}" if "predicted_ms" in row else " | "
        )
        lines.append(
            f"| `{row['preset']}` | {row['backend']} | {row['arm']} | {row['ms']:.1f} | {_span(row, 1)} | {predicted} | {harder} | "
            f"{row['steps']} |"
        )
    return lines


def experts(record: Record) -> list[str]:
    """Experts beside one dense product."""
    shape = record["shape"]
    lines = [
        "## Experts",
        "",
        "`python -m benchmarks.bench_experts`: rates by the FLOPs of the experts' three products. *dense*: one product of as many "
        "FLOPs; *grouped*: the three products alone, over sorted rows; *mixer*: all of `experts`, its weights in bfloat16; *mixer, "
        "cast*: float32 weights under autocast, as the lab trains.",
        "",
        f"### {record['device']}, {shape['batch'] * shape['tokens']:,} tokens of width {shape['d_model']}, {shape['top_k']} of "
        f"{shape['experts']} experts, {shape['dtype']}",
        "",
        "| width of an expert | pass | arm | ms | from, to | TFLOP/s | of dense |",
        "|---:|---|---|---:|---:|---:|---:|",
    ]
    for row in record["rows"]:
        share = f"{row['share_of_dense']:.0%}" if "share_of_dense" in row else ""
        lines.append(
            f"| {row['hidden']:,} | {row['way']} | {row['arm']} | {row['ms']:.3f} | {_span(row, 3)} | {row['tflop_per_s']:.0f} | "
            f"{share} |"
        )
    return lines


def depth(record: Record) -> list[str]:
    """What attention over depth takes of a step."""
    lines = [
        "## Attention over depth",
        "",
        "`python -m benchmarks.bench_depth`: steps of the lab's loop with the sublayer of depth attention and without it. Steps are "
        "recorded once as one CUDA graph of all depths and replayed, never compiled: no depth has a graph of its own. *kernels*: of "
        "one step's time in kernels, the share of those that attend over depth, projections and sums of gradients left out.",
        "",
        f"### {record['device']}, {record['dtype']}",
        "",
        "| preset | tokens | arm | ms | from, to | share of the step | kernels | steps |",
        "|---|---:|---|---:|---:|---:|---:|---|",
    ]
    for row in record["rows"]:
        share = f"{row['share']:.1%}" if "share" in row else ""
        found = row.get("kernel_ms")
        kernels = f"{found['depth'] / found['all']:.1%}" if found else ""
        lines.append(
            f"| `{row['preset']}` | {row['batch']} x {row['tokens']} | {row['arm']} | {row['ms']:.2f} | {_span(row, 2)} | {share} | "
            f"{kernels} | {row['steps']} |"
        )
    return lines


def _span(row: Record, digits: int) -> str:
    return f"{min(row['all_ms']):,.{digits}f}, {max(row['all_ms']):,.{digits}f}"
