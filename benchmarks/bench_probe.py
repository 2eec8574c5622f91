"""The entropy probe: its kernel against the plain product with the output head, and against the probe in pieces.

    python -m benchmarks.bench_probe [--widths 1024 2048] [--classes 32000 50257 128256] [--decode 1 8] [--prefill 2048 8192 16384]
                                     [--repeats 7] [--seconds 60] [--device cuda] [--out record.json]

Arms: ``product``, F.linear that writes its bfloat16 logits; ``pieces``, the definition on logits made in pieces by PyTorch;
``kernel``, ``normalised_entropy``, one pass over logits that are never stored. All bfloat16, arms interleaved.

Decode: few rows, CALLS calls after one another over as many copies of the head as no cache holds, since in a model the rest of the
weights comes between; launched by the host and replayed as one CUDA graph. Prefill: many rows, one call. Error: the greatest
difference of the kernel's entropies from those of float64 on the first rows. Records add up: a size keeps its row until it is measured anew.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.attempts import attempts, deadline
from benchmarks.interleaved import Run, interleaved, ratio, recorded, spread
from benchmarks.record import Record, arguments, made_by, name_of
from crossbreed.core.ops.entropy import measured_output, normalised_entropy

CALLS = 20
COLD_BYTES = 300 << 20
"""Heads of a decode arm are this large together: six times the second cache of an H100 or H200."""
CHECKED = 8
"""Rows whose entropies are compared with float64."""
Arm = Callable[[Tensor, Tensor], Tensor]


def definition(logits_nV: Tensor) -> Tensor:
    p_nV = logits_nV.softmax(-1)
    return -(p_nV * (p_nV + 1e-10).log_()).sum(-1)


ARMS: dict[str, Arm] = {
    "product": F.linear,
    "pieces": lambda h, head: measured_output(h, head, definition),
    "kernel": normalised_entropy,
}


def decode_arms(h: Tensor, heads: list[Tensor], device: torch.device) -> dict[str, Run]:
    def calls(arm: Arm) -> Run:
        turn = [heads[i % len(heads)] for i in range(CALLS)]
        return lambda: [arm(h, head) for head in turn]

    runs = {name: calls(arm) for name, arm in ARMS.items()}
    if device.type != "cuda":
        return runs
    return {f"{name}, launched": run for name, run in runs.items()} | {
        name: recorded(run, device) for name, run in runs.items()
    }


def measured(width: int, classes: int, rows: int, options: argparse.Namespace) -> dict[str, Any]:
    device, decode = torch.device(options.device), rows in options.decode
    torch.manual_seed(0)
    h = torch.randn(1, rows, width, device=device).bfloat16()
    copies = -(-COLD_BYTES // (2 * width * classes)) if decode and device.type == "cuda" else 1
    heads = [(2 * torch.randn(classes, width, device=device) / width**0.5).bfloat16() for _ in range(copies)]
    some = h[:, :CHECKED]
    wanted = normalised_entropy(some.double(), heads[0].double())
    error = float((normalised_entropy(h, heads[0])[:, :CHECKED].double() - wanted).abs().max())
    if decode:
        arms, calls = decode_arms(h, heads, device), CALLS
    else:
        arms, calls = {name: lambda arm=arm: arm(h, heads[0]) for name, arm in ARMS.items()}, 1
    ms = interleaved(arms, options.repeats, device, calls)
    return {
        "phase": "decode" if decode else "prefill",
        "width": width,
        "classes": classes,
        "rows": rows,
        "error": error,
        "ms": ms,
        "kernel_to_product": ratio(ms["kernel"], ms["product"]),
        "pieces_to_kernel": ratio(ms["pieces"], ms["kernel"]),
    }


@torch.inference_mode()
def main() -> None:
    parser = arguments(__doc__, repeats=7, seconds=60.0)
    parser.add_argument("--widths", type=int, nargs="*", default=[1024, 2048])
    parser.add_argument("--classes", type=int, nargs="*", default=[32000, 50257, 128256])
    parser.add_argument("--decode", type=int, nargs="*", default=[1, 8], help="rows")
    parser.add_argument("--prefill", type=int, nargs="*", default=[2048, 8192, 16384], help="rows")
    options = parser.parse_args()
    record = Record(options.out, device=name_of(torch.device(options.device)), dtype="bfloat16")
    sizes = itertools.product(options.decode + options.prefill, options.widths, options.classes)
    pieces = {
        f"{rows} rows, width {width}, {classes} classes": partial(measured, width, classes, rows, options)
        for rows, width, classes in sizes
    }
    for row in attempts(pieces, deadline(options.seconds)):
        print(
            f"{row['phase']:8} {row['rows']:6} rows, width {row['width']}, {row['classes']:6} classes: "
            f"kernel / product {row['kernel_to_product']:.3f}, pieces / kernel {row['pieces_to_kernel']:.2f}, "
            f"error {row['error']:.1e}; ms "
            + ", ".join(f"{arm} {spread(ms)}" for arm, ms in row["ms"].items()),
            flush=True,
        )
        record.keep(row | made_by(options), ("rows", "width", "classes"))


if __name__ == "__main__":
    main()
