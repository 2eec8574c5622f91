"""The entropy probe's section of the page of speeds, from the record of ``benchmarks/bench_probe.py``."""

from __future__ import annotations

import statistics
from typing import Any


def section(record: dict[str, Any]) -> list[str]:
    """One table of the device, sizes in order."""
    lines = [
        "## The entropy probe",
        "",
        "`python -m benchmarks.bench_probe`: entropies of an output head's softmax. *product*: the plain product with the head, "
        "logits written; *pieces*: the entropy by PyTorch on logits made in pieces; *kernel*: the entropy in one pass over logits "
        "that are never stored. Decode: few rows, replayed as a CUDA graph over heads that no cache holds. Error: the kernel's "
        "greatest difference from float64, of an entropy between 0 and 1.",
        "",
        f"### {record['device']}, {record['dtype']}",
        "",
        "| phase | rows | width | classes | product ms | pieces ms | kernel ms | from, to | kernel / product | error |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for row in sorted(record["rows"], key=lambda row: (row["rows"], row["width"], row["classes"])):
        ms = row["ms"]
        product, pieces, kernel = (statistics.median(ms[arm]) for arm in ("product", "pieces", "kernel"))
        lines.append(
            f"| {row['phase']} | {row['rows']:,} | {row['width']:,} | {row['classes']:,} | {product:.3f} | {pieces:.3f} | "
            f"{kernel:.3f} | {min(ms['kernel']):.3f}, {max(ms['kernel']):.3f} | {row['kernel_to_product']:.2f} | {row['error']:.0e} |"
        )
    return lines
