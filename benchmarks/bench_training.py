"""Training tokens/s of presets on a CUDA device: the lab's own loop beside the models of other libraries.

    python -m benchmarks.bench_training [PRESET ...] [--batch 8] [--tokens 2048] [--steps 4] [--repeats 5] [--out record.json]

Arms of one preset: the lab's loop replaying recorded passes (captured), launching them (plain), a bare hand-written loop on the
same model (bare), and rivals of the same shape that are installed: flash-linear-attention's own model with each of its fused
losses, and the transformers model with PyTorch's attention. All: bfloat16 autocast over float32 weights, fused AdamW, gradients
clipped to 1, the same batch. Every repeat of every arm trains --steps steps between two device events; arms are interleaved.
MFU: algorithmic training FLOPs of our ledger over 989 TFLOP/s, the dense bfloat16 rate of an H100 or H200.
Records add up: a preset whose row is there keeps it unless it is named again.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.bench_backends import commit, versions
from crossbreed.core.contracts.task import Batch
from crossbreed.core.genome import Architecture
from crossbreed.core.host import Host, Registry
from crossbreed.core.lab.checkpoint import Header
from crossbreed.core.lab.recipe import Recipe
from crossbreed.core.lab.train import Trainer
from crossbreed.core.ledger import Shape
from crossbreed.core.model.language_model import LanguageModel
from crossbreed.presets import presets

PRESETS = (
    "transformer-180m",
    "gdn-180m",
    "mamba2-180m",
    "serial-gdn-180m",
    "amor-gdn-180m",
    "oryx-tm-130m",
    "oryx-tg-130m",
)
PEAK_FLOPS = 989e12
Step = Callable[[], None]


class Text:
    """Random tokens, made before anything is timed."""

    def __init__(self, vocab: int, batch: int, tokens: int) -> None:
        self.length = tokens
        g = torch.Generator().manual_seed(0)
        rows = torch.randint(vocab, (4, batch, tokens + 1), generator=g)
        self.batches = [
            Batch(row[:, :-1].contiguous().pin_memory(), row[:, 1:].contiguous().pin_memory()) for row in rows
        ]

    def train_batch(self, seed: int, step: int, batch: int) -> Batch:
        return self.batches[step % len(self.batches)]


def lab(registry: Registry, genome: Architecture, text: Text, backend: str, captured: bool) -> Step:
    """Steps of the lab's own loop; a long run, so that the learning rate's end is never reached."""
    batch = text.batches[0].tokens_BT.shape[0]
    recipe = Recipe(tokens=batch * text.length * 100_000, batch=batch, dtype="bfloat16", lr=1e-4)
    model = LanguageModel(genome, registry, backend=backend).cuda()
    owner = Header("", recipe.model_dump(mode="json"), {}, seed=0, step=0, tokens=0, rung=0)
    trainer = Trainer(model, text, recipe, owner, lambda record: None, captured=captured)  # type: ignore[arg-type]

    def steps(count: int = 1) -> None:
        trainer.advance(trainer.tokens + count * batch * text.length, lambda: False)

    steps(6 if captured else 3)
    return lambda: steps()


def loop(model: nn.Module, text: Text, loss_of: Callable[[Batch], Tensor]) -> Step:
    """Steps of a loop as one would write it for one experiment."""
    optimiser = torch.optim.AdamW(
        model.parameters(), lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True
    )
    parameters = list(model.parameters())
    model.train()
    count = 0

    def step() -> None:
        nonlocal count
        batch = text.train_batch(0, count, 0)
        batch = Batch(batch.tokens_BT.cuda(non_blocking=True), batch.labels_BT.cuda(non_blocking=True))
        with torch.autocast("cuda", torch.bfloat16):
            loss = loss_of(batch)
        loss.backward()
        nn.utils.clip_grad_norm_(parameters, 1.0, foreach=True)
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)
        count += 1

    for _ in range(3):
        step()
    return step


def bare(registry: Registry, genome: Architecture, text: Text, backend: str) -> Step:
    model = LanguageModel(genome, registry, backend=backend).cuda()

    def loss_of(batch: Batch) -> Tensor:
        context = model.context(batch.tokens_BT, phase="train", labels_BT=batch.labels_BT)
        found = model.loss(batch, context).objective
        model.take_statistics()
        return found

    return loop(model, text, loss_of)


def of_library(model: nn.Module, text: Text) -> Step:
    """A causal language model of transformers' kind, which shifts its labels itself: a row's first token is given as a label, too."""
    model = model.cuda()

    def loss_of(batch: Batch) -> Tensor:
        labels_BT = torch.cat((batch.tokens_BT[:, :1], batch.labels_BT[:, :-1]), dim=1)
        return model(input_ids=batch.tokens_BT, labels=labels_BT, use_cache=False).loss

    return loop(model, text, loss_of)


def rivals(genome: Architecture, tokens: int) -> Iterator[tuple[str, Callable[[], nn.Module]]]:
    """(library and setting, maker) of models that have the same mixers, widths and depth."""
    sublayers = genome.stages[0].blocks[0].sublayers
    if len(genome.stages) > 1 or len(genome.stages[0].blocks) > 1 or genome.mode_router is not None:
        return
    mixer, p = sublayers[0].mixer, dict(sublayers[0].params)
    if mixer not in ("attention", "gated_deltanet"):
        return
    hidden = sublayers[1].params["hidden"]
    layers = genome.stages[0].depth.repeats
    same = {
        "vocab_size": genome.vocab,
        "hidden_size": genome.d_model,
        "intermediate_size": hidden,
        "num_hidden_layers": layers,
        "max_position_embeddings": tokens,
        "tie_word_embeddings": genome.tie_embeddings,
    }
    for loss in ("fuse_cross_entropy", "fuse_linear_cross_entropy"):
        fused = {"fuse_cross_entropy": False, "fuse_linear_cross_entropy": False, loss: True}
        if mixer == "gated_deltanet":
            from fla.models import GatedDeltaNetConfig, GatedDeltaNetForCausalLM

            sizes = {
                "head_dim": p["key_size"],
                "num_heads": p["heads"],
                "expand_v": p["value_size"] / p["key_size"],
            }
            yield (
                f"fla, {loss}",
                lambda f=fused, s=sizes: GatedDeltaNetForCausalLM(GatedDeltaNetConfig(**same, **s, **f)),
            )
        if mixer == "attention":
            from fla.models import TransformerConfig, TransformerForCausalLM

            yield (
                f"fla, {loss}",
                lambda f=fused: TransformerForCausalLM(TransformerConfig(**same, num_heads=p["heads"], **f)),
            )
    if mixer == "attention":
        from transformers import LlamaConfig, LlamaForCausalLM

        yield (
            "transformers, sdpa",
            lambda: LlamaForCausalLM(
                LlamaConfig(**same, num_attention_heads=p["heads"], attn_implementation="sdpa")
            ),
        )


def measured(arms: dict[str, Step], options: argparse.Namespace) -> dict[str, list[float]]:
    """arm -> seconds a step, one for each repeat; interleaved."""
    found: dict[str, list[float]] = {name: [] for name in arms}
    for _ in range(options.repeats):
        for name, step in arms.items():
            marks = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
            torch.cuda.synchronize()
            marks[0].record()
            for _ in range(options.steps):
                step()
            marks[1].record()
            torch.cuda.synchronize()
            found[name].append(marks[0].elapsed_time(marks[1]) / 1e3 / options.steps)
    return found


def compare(registry: Registry, name: str, options: argparse.Namespace) -> dict[str, Any]:
    genome = registry.canonical(presets()[name].build())
    text = Text(genome.vocab, options.batch, options.tokens)
    makers: dict[str, Callable[[], Step]] = {
        "captured": lambda: lab(registry, genome, text, options.backend, captured=True),
        "plain": lambda: lab(registry, genome, text, options.backend, captured=False),
        "bare": lambda: bare(registry, genome, text, options.backend),
    }
    for rival, make in rivals(genome, options.tokens):
        makers[rival] = lambda make=make: of_library(make(), text)
    arms: dict[str, Step] = {}
    for arm, maker in makers.items():
        begun = time.perf_counter()
        try:
            arms[arm] = maker()
        except (ImportError, torch.OutOfMemoryError) as error:
            print(f"{name:18} {arm:32} not here: {str(error).splitlines()[0]}", flush=True)
            continue
        print(f"{name:18} {arm:32} ready after {time.perf_counter() - begun:.0f} s", flush=True)
    shape = Shape(options.batch, options.tokens, "bfloat16")
    flops = (
        registry.factory("cost", "analytic")(None, registry).estimate(genome, shape).training_flops_per_token
    )
    rows = []
    for arm, seconds in measured(arms, options).items():
        rates = [options.batch * options.tokens / s for s in seconds]
        rows.append({"arm": arm, "tokens_per_s": statistics.median(rates), "all": rates})
        mfu = rows[-1]["tokens_per_s"] * flops / PEAK_FLOPS
        print(
            f"{name:18} {arm:32} {rows[-1]['tokens_per_s']:12,.0f} tokens/s ({min(rates):,.0f} to {max(rates):,.0f}), MFU {mfu:.1%}",
            flush=True,
        )
    return {"preset": name, "backend": options.backend, "training_flops_per_token": flops, "rows": rows}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("preset", nargs="*", default=PRESETS)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=2048)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--backend", default="auto")
    parser.add_argument(
        "--commit", default=commit(), help="Of the tree that runs, where it has no history with it."
    )
    parser.add_argument("--out", type=Path, help="The record to write, or to add to.")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("no CUDA device is visible; this script compares training on one")
    registry = Host.load(third_party=False)
    shape = {"batch": options.batch, "tokens": options.tokens, "dtype": "bfloat16"}
    record: dict[str, Any] = {"device": torch.cuda.get_device_name(), "shape": shape, "presets": []}
    if options.out is not None and options.out.exists():
        before = json.loads(options.out.read_text(encoding="utf-8"))
        if (before["device"], before["shape"]) != (record["device"], shape):
            sys.exit(f"{options.out} is of {before['device']} and {before['shape']}; give another --out")
        record["presets"] = before["presets"]
    for name in options.preset:
        found = compare(registry, name, options)
        found |= {"versions": versions(), "commit": options.commit, "date": f"{datetime.now(UTC):%Y-%m-%d}"}
        record["presets"] = [p for p in record["presets"] if p["preset"] != name] + [found]
        if options.out is not None:
            options.out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
        gc.collect()
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
