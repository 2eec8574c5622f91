"""What attention over depth takes of a training step of a recurrent model.

    python -m benchmarks.bench_depth [PRESET ...] [--shapes 32x256 8x2048] [--steps 3] [--repeats 5] [--out record.json]

Arms, steps of the lab's own loop in bfloat16, interleaved: the preset, and the same without the sublayer of depth attention.
Share: of the preset's time, what is saved without it. Steps are recorded once as one CUDA graph of all depths and replayed, never
compiled, so no depth has a graph of its own. Kernels: the time of those that attend over depth in one replayed step, by the
profiler, without projections and sums of gradients.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import traceback
from functools import partial
from typing import Any

import torch

from benchmarks.attempts import made, run_all
from benchmarks.record import Record, made_by, name_of
from benchmarks.steps import Steps, arguments, in_turns, row
from crossbreed.core.genome import Architecture
from crossbreed.core.host import Host, Registry
from crossbreed.presets import presets

PRESETS = ("dreamer-l16-k4",)
SHAPES = ("32x256", "8x2048")
WITH, WITHOUT = "with depth attention", "without"
KERNELS = "_depth_attention"


def without_depth(genome: Architecture) -> Architecture:
    data = genome.model_dump(mode="json")
    for stage in data["stages"]:
        for block in stage["blocks"]:
            block["sublayers"] = [s for s in block["sublayers"] if s["mixer"] != "depth_attention"]
    return Architecture.model_validate(data)


def kernel_ms(steps: Steps) -> dict[str, float] | None:
    """Milliseconds of all kernels of one step, and of those that attend over depth; None on a CPU."""
    if steps.trainer.device.type == "cpu":
        return None
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        steps(1)
        torch.cuda.synchronize()
    found = profile.key_averages()
    print(found.table(sort_by="self_device_time_total", row_limit=15, max_name_column_width=70), flush=True)
    return {
        "all": sum(one.self_device_time_total for one in found) / 1e3,
        "depth": sum(one.self_device_time_total for one in found if KERNELS in one.key) / 1e3,
    }


def compare(registry: Registry, name: str, shape: str, options: argparse.Namespace, record: Record) -> None:
    batch, tokens = map(int, shape.split("x"))
    options = argparse.Namespace(**{**vars(options), "batch": batch, "tokens": tokens})
    genome = registry.canonical(presets()[name].build())

    def ready(architecture: Architecture) -> tuple[Steps, str]:
        steps = Steps(registry.canonical(architecture), registry, options)
        return steps, steps.warm()

    ran = made({WITH: partial(ready, genome), WITHOUT: partial(ready, without_depth(genome))})
    arms: dict[str, Any] = {arm: partial(steps, options.steps) for arm, (steps, _) in ran.items()}
    found = in_turns(arms, options, options.steps)
    ms = {arm: statistics.median(all_ms) for arm, all_ms in found.items()}
    for arm, all_ms in found.items():
        steps, how = ran[arm]
        one = row(all_ms, preset=name, batch=batch, tokens=tokens, arm=arm, steps=how)
        if arm == WITH and WITHOUT in ms:
            one["share"] = 1 - ms[WITHOUT] / ms[WITH]
        if arm == WITH:
            try:
                one["kernel_ms"] = kernel_ms(steps)
            except Exception:
                traceback.print_exc()
        same = ("preset", "batch", "tokens", "arm")
        record.keep({**one, "backend": options.backend, **made_by(options)}, same)
        said = f", depth attention {one['share']:.1%} of it" if "share" in one else ""
        print(
            f"{name:16} {batch} x {tokens:5} {arm:22} {one['ms']:8.2f} ms ({min(one['all_ms']):.2f} to "
            f"{max(one['all_ms']):.2f}), {how}{said}, kernels {one.get('kernel_ms')}",
            flush=True,
        )


def main() -> None:
    parser = arguments(__doc__, 0, 0)
    parser.add_argument("preset", nargs="*", default=PRESETS)
    parser.add_argument(
        "--shapes", nargs="+", default=SHAPES, help="Rows x tokens; instead of --batch and --tokens."
    )
    parser.add_argument("--steps", type=int, default=3)
    options = parser.parse_args()
    registry = Host.load(third_party=False)
    record = Record(options.out, device=name_of(torch.device(options.device)), dtype="bfloat16")
    pieces = {
        f"{name}, {shape}": partial(compare, registry, name, shape, options, record)
        for name, shape in itertools.product(options.preset, options.shapes)
    }
    run_all(pieces)


if __name__ == "__main__":
    main()
