"""The training loop of the lab against a bare hand-written PyTorch loop on the same model.

Both draw the same batches and use fused AdamW, warm-up and cosine, and clipping. The lab's loop also logs at its default
interval, checks that losses are finite, and writes a checkpoint at its end; the bare one prints nothing and saves nothing.
Runs are interleaved; the ratio of each pair is taken, so that a slow minute of the machine falls on both.

    python benchmarks/bench_training_loop.py [--threads 2] [--steps 200] [--repeats 7]
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path

import torch
from torch import nn

from crossbreed.core.artefacts import Artefacts
from crossbreed.core.contracts.task import Task
from crossbreed.core.genome import Architecture
from crossbreed.core.host import Host, Registry
from crossbreed.core.lab.checkpoint import Header
from crossbreed.core.lab.recipe import Recipe
from crossbreed.core.lab.train import Trainer
from crossbreed.core.model.language_model import LanguageModel

TASK = {"vocab": 48, "pairs": 4, "length": 32}
CONVOLUTION = {"short_conv": {"width": 4, "on": "kv"}}
MIXERS = {
    "attention": {"heads": 4, "head_size": 16, **CONVOLUTION},
    "gated_deltanet": {"heads": 2, "key_size": 24, "value_size": 48},
}


def build(parts: Registry, mixer: str) -> LanguageModel:
    """Two layers at width 64, the size of the quick start."""
    block = {
        "sublayers": [
            {"mixer": mixer, "params": MIXERS[mixer]},
            {"mixer": "swiglu", "params": {"hidden": 176}},
        ]
    }
    data = {"vocab": TASK["vocab"], "d_model": 64, "stages": [{"blocks": [block, block]}]}
    return LanguageModel(parts.canonical(Architecture.model_validate(data)), parts, seed=0)


def bare(model: LanguageModel, task: Task, recipe: Recipe, steps: int) -> float:
    """Seconds of a loop as one would write it for one experiment."""
    optimiser = torch.optim.AdamW(
        model.parameter_groups(recipe.weight_decay), lr=recipe.lr, betas=recipe.betas, fused=True
    )
    parameters = list(model.parameters())
    model.train()
    begin = time.perf_counter()
    for step in range(steps):
        batch = task.train_batch(0, step, recipe.batch)
        for group in optimiser.param_groups:
            group["lr"] = recipe.lr_at(step, steps)
        h_BTD, _ = model(batch.tokens_BT, model.context(batch.tokens_BT, phase="train", step=step))
        logits_BTV = model.logits(h_BTD)
        loss = nn.functional.cross_entropy(logits_BTV.flatten(0, 1), batch.labels_BT.flatten())
        loss.backward()
        nn.utils.clip_grad_norm_(parameters, recipe.clip)
        optimiser.step()
        optimiser.zero_grad()
    return time.perf_counter() - begin


def lab(model: LanguageModel, task: Task, recipe: Recipe, folder: Path) -> tuple[float, float]:
    """Seconds of the lab's loop with default logging and a checkpoint, and those of the checkpoint alone."""
    owner = Header("a", recipe.model_dump(mode="json"), {}, seed=0, step=0, tokens=0, rung=0)
    begin = time.perf_counter()
    trainer = Trainer(model, task, recipe, owner, lambda record: None)
    trainer.advance(recipe.tokens, lambda: False)
    trained = time.perf_counter()
    trainer.save(Artefacts.at(folder), "rung-0.safetensors", 0)
    end = time.perf_counter()
    return end - begin, end - trained


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--repeats", type=int, default=7)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    parts = Host.load(third_party=False)
    task = parts.factory("task", "recall")(parts.config("task", "recall", TASK))
    batch = 32
    recipe = Recipe(tokens=arguments.steps * batch * TASK["length"], batch=batch)
    print(f"{arguments.threads} threads, {arguments.steps} steps, {arguments.repeats} interleaved repeats")
    for mixer in MIXERS:
        bares, labs, saves = [], [], []
        with tempfile.TemporaryDirectory() as folder:
            for repeat in range(arguments.repeats + 1):
                # Each goes first every other time.
                for which in ("bare", "lab") if repeat % 2 else ("lab", "bare"):
                    model = build(parts, mixer)
                    if which == "bare":
                        bares.append(bare(model, task, recipe, arguments.steps))
                    else:
                        whole, save = lab(model, task, recipe, Path(folder))
                        labs.append(whole)
                        saves.append(save)
        # The first pair warms caches up.
        ratios = [ours / theirs for ours, theirs in zip(labs[1:], bares[1:], strict=True)]
        low, middle, high = statistics.quantiles(ratios, n=4, method="inclusive")
        print(
            f"{mixer:16} bare {1e3 * statistics.median(bares[1:]) / arguments.steps:7.3f} ms/step"
            f"  lab {1e3 * statistics.median(labs[1:]) / arguments.steps:7.3f} ms/step"
            f"  ratio {middle:.3f} [{low:.3f}, {high:.3f}]"
            f"  (checkpoint {1e3 * statistics.median(saves[1:]):.0f} ms a run)"
        )


if __name__ == "__main__":
    main()
