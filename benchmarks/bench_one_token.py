"""The kernels of one decoded token beside those of PyTorch and flash-attn.

    python -m benchmarks.bench_one_token [--part attention linear] [--heads 16] [--head-size 64] [--batch 1 8] [--out record.json]

*attention*: one query a row over a cache of each of --contexts. *linear*: one row through matrices of the models' sizes, as many of
them as no cache of the device holds. Both also with rows that are not read. Ten calls or more are recorded as one sequence of
kernels and replayed --repeats times; medians.
"""

from __future__ import annotations

import itertools
import statistics
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.attempts import made, run_all
from benchmarks.bench_decode import LIMIT, Bench
from benchmarks.interleaved import Run, interleaved, recorded
from benchmarks.record import arguments
from crossbreed.core.ops import one_token

SIZES = (
    (1024, 1024),
    (4632, 1024),
    (3968, 1024),
    (1024, 1984),
    (2048, 2048),
    (8192, 2048),
    (2048, 4096),
    (128_256, 1024),
)
"""Outputs and inputs of the matrices of the presets at 440M and 1.5B."""
HELD_BYTES = 400e6
"""Of matrices that take turns: eight times the device's cache."""
CALLS = 10
Calls = list[Run]


def in_a_row(calls: Calls) -> None:
    for call in calls:
        call()


def compared(bench: Bench, part: str, about: dict[str, Any], arms: dict[str, Calls], moved: float) -> None:
    """Every arm into the record, with the bytes that one call must read: the median over repeats of all calls in a row."""
    runs = made(
        {name: partial(recorded, partial(in_a_row, calls), bench.device) for name, calls in arms.items()}
    )
    for name, all_ms in interleaved(runs, bench.options.repeats, bench.device).items():
        took = statistics.median(all_ms) / 1e3 / len(arms[name])
        row = {**about, "arm": name, "seconds": took, "bytes": moved}
        bench.record.keep(row, ("arm", *about), part)
        print(f"{about} {name:24} {took * 1e6:9.1f} us, {moved / took / 1e12:.2f} TB/s", flush=True)


@torch.inference_mode()
def attention(bench: Bench) -> None:
    o, dtype, device = bench.options, getattr(torch, bench.dtype), bench.device
    for batch, S in itertools.product(o.batch, o.contexts):
        if bench.late():
            return
        k, v = (torch.randn(batch, S, o.heads, o.head_size, dtype=dtype, device=device) for _ in range(2))
        q = torch.randn(batch, 1, o.heads, o.head_size, dtype=dtype, device=device)
        slots = torch.arange(S, dtype=torch.int32, device=device).expand(batch, S).contiguous()
        of_queries = {
            "position_B": torch.full((batch,), S - 1, device=device),
            "document_B": torch.ones(batch, dtype=torch.int32, device=device),
        }
        ours = partial(one_token.attention, q, k, v, slots, torch.ones_like(slots), **of_queries)
        turned = [x.transpose(1, 2) for x in (q, k, v)]
        arms: dict[str, Calls] = {
            "kernel": [ours] * CALLS,
            "kernel, read": [partial(ours, read_B=torch.ones(batch, dtype=torch.bool, device=device))]
            * CALLS,
            "kernel, not read": [partial(ours, read_B=torch.zeros(batch, dtype=torch.bool, device=device))]
            * CALLS,
            "sdpa": [partial(F.scaled_dot_product_attention, *turned)] * CALLS,
        }
        if device.type == "cuda":
            try:
                from flash_attn import flash_attn_with_kvcache
            except ImportError as error:
                print(f"flash-attn is not here: {error}", flush=True)
            else:
                lengths = torch.full((batch,), S, dtype=torch.int32, device=device)
                flash = partial(flash_attn_with_kvcache, q, k, v, cache_seqlens=lengths)
                arms["flash_attn_with_kvcache"] = [flash] * CALLS
        about = {"batch": batch, "context": S, "heads": o.heads, "head_size": o.head_size}
        compared(bench, "attention", about, arms, 2.0 * k.element_size() * k.numel())


@torch.inference_mode()
def linear(bench: Bench) -> None:
    dtype, device = getattr(torch, bench.dtype), bench.device
    for outputs, inputs in SIZES:
        if bench.late():
            return
        moved = float(dtype.itemsize * outputs * inputs)
        count = max(2, int(HELD_BYTES / moved)) if device.type == "cuda" else 1
        weights = [torch.randn(outputs, inputs, dtype=dtype, device=device) for _ in range(count)]
        x = torch.randn(1, 1, inputs, device=device, dtype=dtype)
        arms: dict[str, Calls] = {
            "torch": [partial(F.linear, x, w) for w in weights],
            "kernel": [partial(one_token.linear, x, w) for w in weights],
            "kernel, read": [partial(one_token.linear, x, w, _flag(True, device)) for w in weights],
            "kernel, not read": [partial(one_token.linear, x, w, _flag(False, device)) for w in weights],
        }
        compared(bench, "linear", {"outputs": outputs, "inputs": inputs}, arms, moved)


def _flag(read: bool, device: torch.device) -> Tensor:
    return torch.tensor([read], device=device)


def main() -> None:
    parser = arguments(__doc__, repeats=5, seconds=400.0, limit=LIMIT)
    parts = {"attention": attention, "linear": linear}
    parser.add_argument("--part", nargs="*", default=list(parts), choices=list(parts))
    parser.add_argument("--heads", type=int, default=16)
    parser.add_argument("--head-size", type=int, default=64)
    parser.add_argument("--batch", type=int, nargs="*", default=[1, 8])
    parser.add_argument("--contexts", type=int, nargs="*", default=[4096, 16_384, 65_536, 262_144])
    bench = Bench(parser.parse_args())
    run_all({part: partial(parts[part], bench) for part in bench.options.part})


if __name__ == "__main__":
    main()
