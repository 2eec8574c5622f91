"""What part of a training step waits for data: the lab's loop on real tasks against the same loop on batches made beforehand.

    python -m benchmarks.bench_data_wait [PRESET ...] [--tokens 256] [--batch 32] [--steps 30] [--repeats 5] [--seconds 40]
                                         [--device cuda] [--out record.json]

Tasks: associative recall, and the bytes of a text that comes with Python. Arms: ``made``, the loop as it is, whose batches a
thread makes ahead; ``held``, its twin whose batches are there, pinned; ``between``, batches made between steps, as without a thread. Every repeat
trains --steps steps between two device events, arms in turn; the wait is 1 - held / made. Steps are recorded and replayed on a
CUDA device. Records add up: a preset and task keep their row until they are measured anew.
"""

from __future__ import annotations

import argparse
import json
import pydoc_data.topics
import time
import traceback
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from benchmarks.bench_backends import commit, versions
from benchmarks.interleaved import elapsed, interleaved, spread
from crossbreed.core.contracts.task import Batch, Task
from crossbreed.core.host import Host, Registry
from crossbreed.core.lab.checkpoint import Header
from crossbreed.core.lab.recipe import Recipe
from crossbreed.core.lab.train import Trainer
from crossbreed.core.model.language_model import LanguageModel
from crossbreed.presets import presets

TASKS: dict[str, dict[str, Any]] = {"recall": {}, "bytes": {"path": pydoc_data.topics.__file__}}
PRESETS = ("amor-gdn-mini", "transformer-mini")
HELD = 16
WARM_STEPS = 8
"""Before anything is timed: a pass is recorded and compared in these."""


class Held:
    """A task whose training batches were made before, some of them again and again."""

    def __init__(self, task: Task, size: int, pin: bool) -> None:
        self.length = task.length
        made = [task.train_batch(0, step, size) for step in range(HELD)]
        self.batches = [Batch(b.tokens_BT.pin_memory(), b.labels_BT.pin_memory()) if pin else b for b in made]

    def train_batch(self, seed: int, step: int, size: int) -> Batch:
        return self.batches[step % HELD]


def trainer(registry: Registry, preset: str, task: Any, vocab: int, options: argparse.Namespace) -> Trainer:
    cuda = torch.device(options.device).type == "cuda"
    # A long run, so that the learning rate's end is never reached.
    recipe = Recipe(
        tokens=options.batch * task.length * 100_000,
        batch=options.batch,
        dtype="bfloat16" if cuda else "float32",
    )
    genome = registry.canonical(presets()[preset].build(vocab))
    model = LanguageModel(genome, registry, backend=options.backend).to(options.device)
    owner = Header("", recipe.model_dump(mode="json"), {}, seed=0, step=0, tokens=0, rung=0)
    made = Trainer(model, task, recipe, owner, lambda record: None)
    advance(made, WARM_STEPS)
    return made


def advance(one: Trainer, steps: int) -> None:
    one.advance(one.tokens + steps * one.recipe.batch * one.task.length, lambda: False)


def measured(registry: Registry, preset: str, task_name: str, options: argparse.Namespace) -> dict[str, Any]:
    device = torch.device(options.device)
    params = {**TASKS[task_name], "length": options.tokens}
    task = registry.factory("task", task_name)(registry.config("task", task_name, params))
    held = Held(task, options.batch, pin=device.type == "cuda")
    real, twin, inline = (trainer(registry, preset, data, task.vocab, options) for data in (task, held, task))
    steps = options.steps
    arms: dict[str, Callable[[], Any]] = {
        "made": lambda: advance(real, steps),
        "held": lambda: advance(twin, steps),
        # A run of one step has no thread.
        "between": lambda: [advance(inline, 1) for _ in range(steps)],
    }
    ms = interleaved(arms, options.repeats, device, calls=steps)
    cpu = torch.device("cpu")
    make_ms = [elapsed(lambda step=step: task.train_batch(1, step, options.batch), cpu) for step in range(20)]
    shares = {
        arm: [1 - a / b for a, b in zip(ms["held"], ms[arm], strict=True)] for arm in ("made", "between")
    }
    return {"preset": preset, "task": task_name, "ms": ms, "make_ms": make_ms, "wait": shares}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("preset", nargs="*", default=PRESETS)
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=40.0, help="No new row is begun after these.")
    parser.add_argument("--backend", default="auto")
    parser.add_argument("--device", default="cuda")
    parser.add_argument(
        "--commit", default=commit(), help="Of the tree that runs, where it has no history with it."
    )
    parser.add_argument("--out", type=Path, help="The record to write, or to add to.")
    options = parser.parse_args()
    registry = Host.load(third_party=False)
    name = torch.cuda.get_device_name() if torch.device(options.device).type == "cuda" else "cpu"
    record: dict[str, Any] = {"device": name, "rows": []}
    if options.out is not None and options.out.exists():
        record = json.loads(options.out.read_text(encoding="utf-8"))
    begun = time.monotonic()
    for preset in options.preset:
        for task in TASKS:
            if time.monotonic() - begun > options.seconds:
                print(f"not measured for want of time: {preset} on {task}", flush=True)
                continue
            try:
                row = measured(registry, preset, task, options)
            except Exception:
                print(f"{preset} on {task}: failed", flush=True)
                traceback.print_exc()
                continue
            waits = ", ".join(
                f"{arm} waits {spread([100 * x for x in row['wait'][arm]])}%" for arm in row["wait"]
            )
            print(
                f"{preset:18} {task:7} {waits} of a step; a batch takes {spread(row['make_ms'])} ms to make; ms a step: "
                + ", ".join(f"{arm} {spread(ms)}" for arm, ms in row["ms"].items()),
                flush=True,
            )
            row |= {"batch": options.batch, "tokens": options.tokens}
            row |= {"versions": versions(), "commit": options.commit, "date": f"{datetime.now(UTC):%Y-%m-%d}"}
            same = (preset, task, options.batch, options.tokens)
            record["rows"] = [
                r for r in record["rows"] if (r["preset"], r["task"], r["batch"], r["tokens"]) != same
            ] + [row]
            if options.out is not None:
                options.out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
