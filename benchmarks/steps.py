"""Training steps of the lab's own loop on any device, timed in turns: what the benchmarks of steps share."""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import time
import traceback
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from benchmarks.bench_backends import commit, versions
from crossbreed.core.contracts.context import Context
from crossbreed.core.contracts.task import Batch
from crossbreed.core.genome import Architecture
from crossbreed.core.host import Registry
from crossbreed.core.lab.checkpoint import Header
from crossbreed.core.lab.recipe import Recipe
from crossbreed.core.lab.train import Trainer
from crossbreed.core.model.language_model import LanguageModel

Run = Callable[[], object]
WARM = 6
"""Steps after which a recorded pass is replayed and believed."""


def arguments(what: str | None, batch: int, tokens: int) -> argparse.ArgumentParser:
    """Options that these benchmarks have in common."""
    parser = argparse.ArgumentParser(description=what, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=batch)
    parser.add_argument("--tokens", type=int, default=tokens)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument(
        "--seconds", type=float, default=60.0, help="No repeat of timed arms begins later than this."
    )
    parser.add_argument(
        "--device", default="cuda", help="cpu: in float32, to see that everything runs; of no other use."
    )
    parser.add_argument("--backend", default="auto", help="As `search.backend`.")
    parser.add_argument(
        "--commit", default=commit(), help="Of the tree that runs, where it has no history with it."
    )
    parser.add_argument("--out", type=Path, help="The record to write.")
    return parser


class Record:
    """What is written, again after each row that is added."""

    def __init__(self, options: argparse.Namespace, **about: Any) -> None:
        device = "CPU" if options.device == "cpu" else torch.cuda.get_device_name()
        self.out: Path | None = options.out
        self.data: dict[str, Any] = {"device": device, **about, "rows": []}
        self.made_by = {
            "backend": options.backend,
            "versions": versions(),
            "commit": options.commit,
            "date": f"{datetime.now(UTC):%Y-%m-%d}",
        }

    def add(self, row: dict[str, Any]) -> None:
        self.data["rows"].append(row | self.made_by)
        if self.out is not None:
            self.out.write_text(json.dumps(self.data, indent=1) + "\n", encoding="utf-8")


class Steps:
    """Steps of the lab's loop over random tokens; recorded and replayed on a CUDA device.

    ``changed`` gives what a pass is told: the model's own context of a batch goes in, the pass's comes out.
    """

    def __init__(
        self,
        genome: Architecture,
        registry: Registry,
        options: argparse.Namespace,
        changed: Callable[[Context], Context] = lambda context: context,
    ) -> None:
        self.batch, self.length = options.batch, options.tokens
        g = torch.Generator().manual_seed(0)
        rows_BT = torch.randint(genome.vocab, (self.batch, self.length + 1), generator=g).to(options.device)
        self.one = Batch(rows_BT[:, :-1].contiguous(), rows_BT[:, 1:].contiguous())
        self.model = LanguageModel(genome, registry, backend=options.backend).to(options.device)
        own = self.model.context
        self.model.context = lambda *a, **k: changed(own(*a, **k))  # type: ignore[method-assign]
        recipe = Recipe(
            # A run so long that its learning rate never moves.
            tokens=self.batch * self.length * 100_000,
            batch=self.batch,
            dtype="float32" if options.device == "cpu" else "bfloat16",
            lr=1e-4,
        )
        owner = Header("", recipe.model_dump(mode="json"), {}, seed=0, step=0, tokens=0, rung=0)
        self.trainer = Trainer(self.model, self, recipe, owner, lambda record: None)  # type: ignore[arg-type]

    def train_batch(self, seed: int, step: int, batch: int) -> Batch:
        return self.one

    def warm(self) -> str:
        """How steps are run from now on: ``replayed``, or why they are not."""
        self(1 if self.one.tokens_BT.device.type == "cpu" else WARM)
        steps = self.trainer._pass
        return "replayed" if getattr(steps, "replaying", False) else getattr(steps, "refused", "launched")

    def __call__(self, count: int) -> None:
        self.trainer.advance(self.trainer.tokens + count * self.batch * self.length, lambda: False)


def made(arms: Mapping[str, Callable[[], Any]]) -> dict[str, Any]:
    """Arms that could be made; of one that could not, its traceback is printed."""
    found = {}
    for name, make in arms.items():
        begun = time.perf_counter()
        try:
            found[name] = make()
        except Exception:
            traceback.print_exc()
            gc.collect()
            continue
        print(f"{name:40} ready after {time.perf_counter() - begun:.1f} s", flush=True)
    return found


def in_turns(arms: Mapping[str, Run], options: argparse.Namespace, count: int = 1) -> dict[str, list[float]]:
    """arm -> seconds of each repeat of ``count`` calls of it, divided by ``count``; interleaved."""
    found: dict[str, list[float]] = {name: [] for name in arms}
    begun = time.perf_counter()
    for _ in range(options.repeats):
        if all(found.values()) and time.perf_counter() - begun > options.seconds:
            break
        for name, run in arms.items():
            found[name].append(timed(run, options.device) / count)
    return found


def timed(run: Run, device: str) -> float:
    """Seconds of one call, by events of the device."""
    if device == "cpu":
        begun = time.perf_counter()
        run()
        return time.perf_counter() - begun
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
    torch.cuda.synchronize()
    marks[0].record()
    run()
    marks[1].record()
    torch.cuda.synchronize()
    return marks[0].elapsed_time(marks[1]) / 1e3


def row(seconds: list[float], **about: Any) -> dict[str, Any]:
    """One row of a record: the median, and all."""
    return {**about, "ms": 1e3 * statistics.median(seconds), "all_ms": [1e3 * s for s in seconds]}
