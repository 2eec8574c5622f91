"""Predicted against measured peak of training memory on a CUDA device.

    python benchmarks/bench_training_peak.py [PRESET ...] [--tokens 1024] [--batch 1] [--dtype bfloat16] [--out record.json]

For each preset: two steps to settle (moments allocated, caches warm), then the peak of allocated memory over a third, as the
lab trains: AdamW on float32 weights, autocast where the dtype is narrower, gradients dropped between steps, no recomputation.
Prints a table and writes a JSON record. Aim: within 15%.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
from pathlib import Path
from typing import Any

import torch

from crossbreed.core.contracts.task import Batch
from crossbreed.core.host import Host, Registry
from crossbreed.core.lab.environment import precision
from crossbreed.core.ledger import Shape
from crossbreed.core.model.language_model import LanguageModel
from crossbreed.presets import presets

AIM = 0.15
PRESETS = (
    "transformer-180m", "amor-gdn-180m", "amor-mamba2-180m", "oryx-tm-130m", "oryx-tg-130m", "dreamer-l8-k4",
    "amor-gdn-440m", "oryx-tm-380m", "transformer-1.5b", "amor-gdn-1.5b", "amor-mamba2-1.5b", "oryx-tm-1.4b",
)  # fmt: skip
STEPS = 3


def measure(registry: Registry, name: str, shape: Shape) -> dict[str, Any]:
    """Predicted and measured bytes of one preset."""
    genome = registry.canonical(presets()[name].build())
    costs = registry.factory("cost", "analytic")(None, registry)
    ledger = costs.estimate(genome, shape)
    device = torch.device("cuda")
    model = LanguageModel(genome, registry, backend="auto").to(device).train()
    optimiser = torch.optim.AdamW(model.parameter_groups(0.1), lr=1e-4, fused=True)
    parameters = [p for group in optimiser.param_groups for p in group["params"]]
    tokens_BT = torch.randint(genome.vocab, (shape.batch, shape.tokens), device=device)
    kept = 0
    for step in range(STEPS):
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        context = model.context(tokens_BT, phase="train", step=step, labels_BT=tokens_BT)
        with precision(shape.dtype, device):
            objective = model.loss(Batch(tokens_BT, tokens_BT), context).objective
        kept = torch.cuda.memory_allocated() - before
        objective.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0, foreach=True)
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)
        model.after_step()
        del objective
    torch.cuda.synchronize()
    measured = torch.cuda.max_memory_allocated()
    found = {
        "preset": name,
        "parameters": ledger.parameters,
        "predicted_bytes": ledger.training_peak_bytes,
        "measured_bytes": measured,
        "reserved_bytes": torch.cuda.max_memory_reserved(),
        "relative_error": ledger.training_peak_bytes / measured - 1,
        "predicted_kept_bytes": ledger.kept_bytes_per_token * shape.batch * shape.tokens,
        "after_forward_bytes": kept,
    }
    del model, optimiser, parameters
    gc.collect()
    torch.cuda.empty_cache()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("preset", nargs="*", default=PRESETS)
    parser.add_argument("--tokens", type=int, default=1024)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--dtype", default="bfloat16", choices=["bfloat16", "float32"])
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("no CUDA device is visible; this script measures CUDA's allocator")
    registry = Host.load(third_party=False)
    shape = Shape(arguments.batch, arguments.tokens, arguments.dtype)
    rows: list[dict[str, Any]] = []
    for name in arguments.preset:
        try:
            rows.append(measure(registry, name, shape))
        except torch.cuda.OutOfMemoryError:
            print(f"{name:24} out of memory")
            gc.collect()
            torch.cuda.empty_cache()
            continue
        row, gib = rows[-1], 1 << 30
        print(
            f"{name:24} predicted {row['predicted_bytes'] / gib:7.2f} GiB, measured {row['measured_bytes'] / gib:7.2f} GiB: "
            f"{row['relative_error']:+.1%}; kept {row['predicted_kept_bytes'] / gib:7.2f} of {row['after_forward_bytes'] / gib:7.2f}",
            flush=True,
        )
        if arguments.out is not None:
            # After each, so that a run that is cut short leaves what it measured.
            arguments.out.write_text(json.dumps(_record(shape, rows), indent=2) + "\n")
    within = sum(abs(row["relative_error"]) <= AIM for row in rows)
    print(f"{within} of {len(rows)} within {AIM:.0%}")


def _record(shape: Shape, rows: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "shape": {"batch": shape.batch, "tokens": shape.tokens, "dtype": shape.dtype},
        "rows": rows,
    }


if __name__ == "__main__":
    main()
