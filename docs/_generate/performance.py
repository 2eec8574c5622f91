"""Speeds on GPUs: the page, from records of scripts in ``benchmarks/``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import _data_wait
import _decoding
import _devices
import _prefill_speed
import _probe_speed
import _step_speed

PAGE = "performance.md"
RECORDS = Path(__file__).resolve().parent.parent / "_records"
PEAK_FLOPS = 989e12
OURS = {
    "captured": "crossbreed, captured",
    "plain": "crossbreed, launched",
    "bare": "crossbreed's model, bare loop",
}


def text() -> str:
    """The page that the committed records give."""
    lines = [
        "<!-- Written from docs/_records/ by `make generated`: change the records, not this page. -->",
        "",
        "# Speed on a GPU",
        "",
        "Every table is one run of a script in `benchmarks/`, arms interleaved; medians, with the slowest and the fastest "
        "repeat. What was not measured is not here.",
        "",
        "## Training",
        "",
        "`python -m benchmarks.bench_training`: bfloat16 autocast over float32 weights, fused AdamW, clipping, the same batch. "
        "*captured*: the lab's own loop, which records a step's kernels once and replays them (`search.captured`, on by "
        "default); *launched*: the same loop launching kernel by kernel; *bare loop*: a hand-written loop around the same "
        "model. MFU: algorithmic training FLOPs of [the ledger](ledger.md) over 989 TFLOP/s. The last column compares "
        "*captured* with the arm.",
        "",
    ]
    for record in _read("training_*_h200.json", "training_h200.json"):
        lines += training(record)
    lines += ["## Backends of the mixers", "", *backends_intro()]
    for record in _read("backends_h200.json"):
        lines += backends(record)
    for record in _read("packing_h200.json"):
        lines += packing(record)
    for name, section in (
        ("devices_h200.json", _devices.section),
        ("data_wait_h200.json", _data_wait.section),
        ("prefill_h200.json", _prefill_speed.section),
        ("probe_h200.json", _probe_speed.section),
        ("oryx_step_h200.json", _step_speed.oryx),
        ("experts_h200.json", _step_speed.experts),
        ("depth_h200.json", _step_speed.depth),
    ):
        for record in _read(name):
            lines += [*section(record), "", _versions(record["rows"]), ""]
    for name, section in (
        ("decode_h200.json", _decoding.section),
        ("one_token_h200.json", _decoding.kernels),
    ):
        for record in _read(name):
            lines += [*section(record), "", _versions([record]), ""]
    return "\n".join(lines)


def training(record: dict[str, Any]) -> list[str]:
    """Arms of each preset at one shape on one device."""
    shape = record["shape"]
    lines = [
        f"### {record['device']}, {shape['batch']} x {shape['tokens']} tokens",
        "",
        "| preset | arm | tokens/s | from, to | MFU | captured / arm |",
        "|---|---|---:|---:|---:|---:|",
    ]
    for preset in record["presets"]:
        rate = {row["arm"]: row["tokens_per_s"] for row in preset["rows"]}
        for row in preset["rows"]:
            mfu = row["tokens_per_s"] * preset["training_flops_per_token"] / PEAK_FLOPS
            ratio = rate["captured"] / row["tokens_per_s"]
            lines.append(
                f"| `{preset['preset']}` | {OURS.get(row['arm'], row['arm'])} | {row['tokens_per_s']:,.0f} | "
                f"{min(row['all']):,.0f}, {max(row['all']):,.0f} | {mfu:.1%} | {ratio:.2f} |"
            )
    found = sorted(
        {(preset["preset"], preset["backend"]) for preset in record["presets"] if preset["backend"] != "auto"}
    )
    forced = [f"`{name}` with `search.backend: {backend}`" for name, backend in found]
    said = f"Measured {', '.join(forced)}. " if forced else ""
    return [*lines, "", f"{said}{_versions(record['presets'])}", ""]


def backends_intro() -> list[str]:
    return [
        "`python -m benchmarks.bench_backends`: a whole mixer with its projections. Errors are shares of the norm, against the "
        "reference in float64, on random inputs of 1000 tokens; the reference's own row says what bfloat16 alone does.",
        "",
    ]


def backends(record: dict[str, Any]) -> list[str]:
    """Error and time of each backend of each mixer."""
    shape = record["shape"]
    lines = [
        f"### {record['device']}, {shape['batch']} x {shape['tokens']} tokens, width {shape['d_model']}",
        "",
        "| mixer | backend | output error | gradient error | forward ms | with backward ms |",
        "|---|---|---:|---:|---:|---:|",
    ]
    lines += [
        f"| {row['mixer']} | {row['backend']} | {row['forward_error']:.1e} | {row['backward_error']:.1e} | "
        f"{row['forward_ms']:.2f} | {row['both_ms']:.2f} |"
        for row in record["rows"]
    ]
    return [*lines, "", _versions(record["rows"]), ""]


def packing(record: dict[str, Any]) -> list[str]:
    """Trials an hour by how many share the GPU, and whether their scores stay what they were."""
    shape, off = record["shape"], record["largest_difference"]
    once = next(arm["trials_per_hour"] for arm in record["arms"] if arm["arm"] == "alone")
    lines = [
        "## Trials that share a GPU",
        "",
        "`python -m benchmarks.bench_packing`: trials of a hybrid of 2M parameters as a search gives them to its Ray workers, built, "
        f"checked, trained on {record['tokens']:,} tokens ({shape['batch']} x {shape['tokens']} a step, recorded steps, bfloat16) and "
        "judged; not timed. What is done once a worker (imports, probes, compilation) is its start, and in no rate. Score: the largest "
        "difference of a seed from its first run alone.",
        "",
        f"### {record['device']}",
        "",
        "| trials at once | MPS | trials an hour | from, to | times alone | score off by | start, s |",
        "|---:|---|---:|---:|---:|---:|---:|",
    ]
    left_out = []
    for arm in record["arms"]:
        if not arm["all"]:
            left_out.append(f"*{arm['arm']}* did not run: {arm['fault']}. ")
            continue
        shared = {"True": "on", "False": "off"}
        lines.append(
            f"| {arm['workers']} | {', '.join(shared.get(word, 'unknown') for word in arm['mps'])} | {arm['trials_per_hour']:,.0f} | "
            f"{min(arm['all']):,.0f}, {max(arm['all']):,.0f} | {arm['trials_per_hour'] / once:.2f} | {off[arm['arm']]:.1e} | "
            f"{arm['start_s']:.0f} |"
        )
    return [*lines, "", f"{''.join(left_out)}{_versions([record])}", ""]


def _versions(rows: list[dict[str, Any]]) -> str:
    said = {
        ", ".join(f"{name} {version}" for name, version in row["versions"].items()) + f"; {row['date']}"
        for row in rows
    }
    return ". ".join(sorted(said)) + "."


def _read(*patterns: str) -> list[dict[str, Any]]:
    files = [file for pattern in patterns for file in sorted(RECORDS.glob(pattern))]
    return [json.loads(file.read_text(encoding="utf-8")) for file in files]
