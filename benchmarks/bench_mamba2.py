"""The mamba2 mixer against transformers' Mamba2Mixer (its PyTorch path), forward and backward, on a CPU.

Both carry the same weights, and their outputs are compared first. The rival runs at the chunk size that is fastest for it
here. Runs are interleaved; each side's median is taken, and the ratio of the medians.

    python benchmarks/bench_mamba2.py [--threads 2] [--repeats 9] [--inner 3]
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from transformers import Mamba2Config
from transformers.models.mamba2.modeling_mamba2 import Mamba2Mixer

from crossbreed.core.contracts.context import Context
from crossbreed.core.contracts.mixer import MixerBuild
from crossbreed.core.host import Host

D_MODEL, HEADS, HEAD, STATE = 128, 8, 32, 32
BATCH, TOKENS = 4, 1024
RIVAL_CHUNKS = (16, 32, 64, 128, 256)


def rival(chunk: int) -> Any:
    """Mamba2Mixer: d_model 128, expand 2, head 32, state 32, one group."""
    torch.manual_seed(0)
    config = Mamba2Config(
        hidden_size=D_MODEL,
        num_heads=HEADS,
        head_dim=HEAD,
        state_size=STATE,
        expand=2,
        n_groups=1,
        chunk_size=chunk,
        layer_norm_epsilon=1e-6,
        num_hidden_layers=1,
    )
    return Mamba2Mixer(config, layer_idx=0).train()


def ours(theirs: Any) -> Any:
    """Our mixer with the rival's weights."""
    parts = Host.load(third_party=False)
    config = parts.config("mixer", "mamba2", {"heads": HEADS, "head_size": HEAD, "state_size": STATE})
    mixer = parts.factory("mixer", "mamba2")(config, MixerBuild(D_MODEL, parts=parts))
    inner = HEADS * HEAD
    with torch.no_grad():
        z, x, b, c, dt = theirs.in_proj.weight.split([inner, inner, STATE, STATE, HEADS])
        mixer.projections.input.weight.copy_(torch.cat((b, x, c, z)))
        for mine, its in (
            (mixer.conv_CW, theirs.conv1d.weight.squeeze(1)),
            (mixer.conv_bias_C, theirs.conv1d.bias),
        ):
            x, b, c = its.split([inner, STATE, STATE])
            mine.copy_(torch.cat((b, x, c)))
        reader = mixer.readers[0]
        for mine, its in (
            (reader.dt_proj.weight, dt),
            (reader.dt_bias, theirs.dt_bias),
            (reader.A_log, theirs.A_log),
            (reader.D_H, theirs.D),
            (mixer.norm_weight, theirs.norm.weight),
            (mixer.projections.output.weight, theirs.out_proj.weight),
        ):
            mine.copy_(its)
    return mixer


def seconds(step: Callable[[], Tensor], inner: int) -> float:
    """Mean seconds of a forward and backward pass over ``inner`` passes."""
    begin = time.perf_counter()
    for _ in range(inner):
        step().square().sum().backward()
    return (time.perf_counter() - begin) / inner


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--threads", type=int, default=2)
    options.add_argument("--repeats", type=int, default=9)
    options.add_argument("--inner", type=int, default=3)
    args = options.parse_args()
    torch.set_num_threads(args.threads)
    x_BTD = torch.randn(BATCH, TOKENS, D_MODEL, requires_grad=True)
    context = Context(
        positions_BT=torch.arange(TOKENS).expand(BATCH, TOKENS), row_id_B=torch.arange(BATCH), phase="train"
    )
    rivals = {chunk: rival(chunk) for chunk in RIVAL_CHUNKS}
    mixer = ours(rivals[RIVAL_CHUNKS[0]])
    mine = mixer(x_BTD, context, None)[0]
    for chunk, module in rivals.items():
        off = (mine - module(x_BTD)).abs().max().item() / mine.abs().max().item()
        print(f"largest difference to the rival at chunk {chunk}, relative to the largest output: {off:.1e}")
        if off > 1e-3:
            raise SystemExit("outputs differ; timing them would mean nothing")
    trials = {
        c: min(seconds(lambda m=m: m(x_BTD), 1) for _ in range(3))  # type: ignore[misc]
        for c, m in rivals.items()
    }
    best = min(trials, key=trials.__getitem__)
    shown = ", ".join(f"{c}: {t * 1e3:.0f} ms" for c, t in trials.items())
    print(f"rival by chunk size: {shown}; using {best}")
    theirs = rivals[best]
    sides: dict[str, Callable[[], Tensor]] = {
        "crossbreed": lambda: mixer(x_BTD, context, None)[0],
        "transformers": lambda: theirs(x_BTD),
    }
    times: dict[str, list[float]] = {name: [] for name in sides}
    for step in sides.values():
        seconds(step, args.inner)
    for repeat in range(args.repeats):
        for name, step in sides.items():
            times[name].append(seconds(step, args.inner))
        shown = "  ".join(f"{name} {taken[-1] * 1e3:7.2f} ms" for name, taken in times.items())
        print(f"repeat {repeat}: {shown}")
    median = {name: statistics.median(taken) for name, taken in times.items()}
    for name, value in median.items():
        print(f"median {name}: {value * 1e3:.2f} ms")
    print(f"ratio: {median['transformers'] / median['crossbreed']:.2f}x faster")


if __name__ == "__main__":
    main()
