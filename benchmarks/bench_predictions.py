"""Times of a grid of architectures on one device, for the page that holds ``roofline`` and ``measured`` against them.

    python benchmarks/bench_predictions.py --out record.json [--device cuda] [--dtype bfloat16] [--backend reference]
        [--sizes 4x512,8x384,12x768,16x1024] [--train 1024] [--prefill 512,2048] [--decode 512,4096] [--seconds 400]

First the device's ceilings, then each architecture's training step (batch 4, AdamW, no recomputation), prefill and decoded
token (batch 1) at each length: medians with quartiles of 7 calls after a stable warm-up. Which architectures are held out of
the fit is settled by their place in the grid, before anything is measured. The record is written after each architecture, so
that ``--seconds`` or a kill loses none that was done; ``docs/_generate/predictions.py`` reads it.
"""

from __future__ import annotations

import argparse
import gc
import json
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch

from crossbreed.core.contracts.task import Batch
from crossbreed.core.genome import Architecture, parse
from crossbreed.core.host import Host
from crossbreed.core.lab import lease
from crossbreed.core.lab.ceilings import measure_ceilings
from crossbreed.core.lab.environment import device_name, policy, precision
from crossbreed.core.lab.neighbours import Watch
from crossbreed.core.lab.profile import Timing, measure
from crossbreed.core.model.language_model import LanguageModel

VOCAB = 8192
TRAIN_BATCH = 4
STEPS = 8
"""Tokens decoded in one timed call."""


def families(d_model: int) -> dict[str, tuple[str, list[dict[str, Any]]]]:
    """Name -> (depth policy, blocks of one layer or of the repeated block). Heads of 64, four of them at least."""
    heads = d_model // 64
    attention = {"mixer": "attention", "params": {"heads": heads, "head_size": 64}}
    mamba2 = {"mixer": "mamba2", "params": {"heads": 2 * heads, "head_size": 64, "state_size": 64}}
    delta = {"mixer": "gated_deltanet", "params": {"heads": heads, "key_size": 64, "value_size": 64}}
    swiglu = {"mixer": "swiglu", "params": {"hidden": 8 * d_model // 3 // 64 * 64}}
    depth = {"mixer": "depth_attention", "params": {"heads": heads, "head_size": 64}}
    experts = {"mixer": "experts", "params": {"experts": 16, "hidden": d_model // 2, "top_k": 3}}

    def block(*sublayers: dict[str, Any], **more: Any) -> dict[str, Any]:
        return {"sublayers": list(sublayers), **more}

    return {
        "attention": ("layered", [block(attention, swiglu)]),
        "mamba2": ("layered", [block(mamba2, swiglu)]),
        "gated_deltanet": ("layered", [block(delta, swiglu)]),
        "mamba2 + attention": ("layered", [block(mamba2, swiglu), block(attention, swiglu)]),
        "deltanet & attention": ("layered", [block(delta, attention, arrangement="parallel"), block(swiglu)]),
        "dreamer": ("recurrent", [block(depth, attention, experts)]),
    }


def grid(sizes: list[tuple[int, int]]) -> Iterator[dict[str, Any]]:
    """Every family at every size. Of each family one size that is neither the smallest nor the largest is held out."""
    for size, (layers, d_model) in enumerate(sizes):
        for family, (name, (repeating, blocks)) in enumerate(families(d_model).items()):
            repeats = layers if repeating == "recurrent" else max(1, layers // len(blocks))
            stage = {"blocks": blocks, "depth": {"name": repeating, "repeats": repeats}}
            yield {
                "family": name,
                "layers": layers,
                "d_model": d_model,
                "held_out": len(sizes) > 2 and size == 1 + family % (len(sizes) - 2),
                "genome": {"vocab": VOCAB, "d_model": d_model, "stages": [stage]},
            }


class Bench:
    """One architecture on the device."""

    def __init__(
        self, architecture: Architecture, registry: Any, device: torch.device, dtype: str, backend: str
    ) -> None:
        self.device, self.dtype = device, dtype
        self.model = LanguageModel(architecture, registry, backend=backend).to(device)
        self.vocab = architecture.vocab
        self.watch = Watch.of(device)

    def tokens(self, batch: int, length: int) -> torch.Tensor:
        return torch.randint(self.vocab, (batch, length), device=self.device)

    def time(self, call: Any) -> Timing:
        cuda = self.device.type == "cuda"
        synchronise = partial(torch.cuda.synchronize, self.device) if cuda else (lambda: None)
        return measure(call, synchronise=synchronise, watch=self.watch)

    def train(self, length: int) -> Timing:
        model = self.model.train()
        optimiser = torch.optim.AdamW(model.parameter_groups(0.1), lr=1e-4, fused=True)
        parameters = [p for group in optimiser.param_groups for p in group["params"]]
        tokens_BT = self.tokens(TRAIN_BATCH, length)
        batch = Batch(tokens_BT, tokens_BT)

        def step() -> None:
            context = model.context(tokens_BT, phase="train", labels_BT=tokens_BT)
            with precision(self.dtype, self.device):
                objective = model.loss(batch, context).objective
            objective.backward()
            torch.nn.utils.clip_grad_norm_(parameters, 1.0, foreach=True)
            optimiser.step()
            optimiser.zero_grad(set_to_none=True)
            model.after_step()

        return self.time(step)

    @torch.inference_mode()
    def prefill(self, length: int) -> Timing:
        model, tokens_1T = self.model.eval(), self.tokens(1, length)
        context = model.context(tokens_1T)
        number = getattr(torch, self.dtype)

        def whole() -> None:
            h_BTD, _ = model(tokens_1T, context, model.init_state(1, slots=length, dtype=number))
            model.logits(h_BTD[:, -1:])

        with precision(self.dtype, self.device):
            return self.time(whole)

    @torch.inference_mode()
    def decode(self, length: int) -> Timing:
        model, tokens_1T = self.model.eval(), self.tokens(1, length)
        state = model.init_state(1, slots=length, dtype=getattr(torch, self.dtype))
        prompt_1T, rest_1T = tokens_1T[:, : length - STEPS], tokens_1T[:, length - STEPS :]
        with precision(self.dtype, self.device):
            _, begun = model(prompt_1T, model.context(prompt_1T, state=state), state)
            steps = []
            for i in range(STEPS):
                context = model.context(rest_1T[:, i : i + 1], phase="decode", state=begun)
                steps.append(context.at(positions_BT=context.positions_BT + i))

            def eight() -> None:
                state = begun
                for i, context in enumerate(steps):
                    h_BTD, state = model(rest_1T[:, i : i + 1], context, state)
                    model.logits(h_BTD)

            return self.time(eight)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--backend", default="reference")
    parser.add_argument("--sizes", default="4x512,8x384,12x768,16x1024")
    parser.add_argument("--train", default="1024")
    parser.add_argument("--prefill", default="512,2048")
    parser.add_argument("--decode", default="512,4096")
    parser.add_argument("--seconds", type=float, default=400.0)
    options = parser.parse_args()
    begun, device = time.monotonic(), torch.device(options.device)
    registry = Host.load(third_party=False)
    lengths = {p: [int(n) for n in getattr(options, p).split(",")] for p in ("train", "prefill", "decode")}
    sizes = [tuple(int(n) for n in size.split("x")) for size in options.sizes.split(",")]
    with lease.alone(device, "bench_predictions", waiting=print):
        record: dict[str, Any] = {
            "ceilings": measure_ceilings(device),
            "device": device_name(device),
            "torch": torch.__version__,
            "dtype": options.dtype,
            "policy": policy(options.backend),
            "architectures": [],
        }
        print(record["ceilings"], flush=True)
        for entry in grid(sizes):  # type: ignore[arg-type]
            if time.monotonic() - begun > options.seconds:
                print("out of time; what is missing was not measured")
                break
            architecture = registry.canonical(parse(Architecture, entry["genome"], entry["family"]))
            bench = Bench(architecture, registry, device, options.dtype, options.backend)
            entry["times"] = []
            for phase in ("decode", "prefill", "train"):
                for length in lengths[phase]:
                    timing = getattr(bench, phase)(length)
                    batch = TRAIN_BATCH if phase == "train" else 1
                    tokens = STEPS if phase == "decode" else batch * length
                    q1, median, q3 = (s / tokens for s in (timing.q1, timing.median, timing.q3))
                    entry["times"].append(
                        {
                            "phase": phase,
                            "batch": batch,
                            "tokens": length,
                            "seconds_per_token": median,
                            "q1": q1,
                            "q3": q3,
                        }
                        | {"stable": timing.stable, "neighbours": timing.neighbours}
                    )
            record["architectures"].append(entry)
            options.out.write_text(json.dumps(record, indent=1) + "\n")
            words = ", ".join(
                f"{t['phase']} {t['tokens']}: {1e6 * t['seconds_per_token']:.3g} us" for t in entry["times"]
            )
            print(
                f"{time.monotonic() - begun:5.0f} s  {entry['family']} {entry['layers']} x {entry['d_model']}: {words}",
                flush=True,
            )
            del bench
            gc.collect()
            if device.type == "cuda":
                torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
