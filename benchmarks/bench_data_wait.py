"""What part of a training step waits for data: the lab's loop on real tasks against the same loop on batches made beforehand.

    python -m benchmarks.bench_data_wait [PRESET ...] [--tokens 256] [--batch 32] [--steps 200] [--repeats 5] [--seconds 40]
                                         [--device cuda] [--out record.json]

Tasks: associative recall, and the bytes of a text that comes with Python. Arms: ``made``, the loop as it is, whose batches a
thread makes ahead; ``held``, its twin whose batches are there, pinned; ``between``, batches made between steps, as without a thread. Every repeat
trains --steps steps between two device events, arms in turn; the wait is 1 - held / made. Steps are recorded and replayed on a
CUDA device. Records add up: a preset and task keep their row until they are measured anew.
"""

from __future__ import annotations

import argparse
import itertools
import pydoc_data.topics
from functools import partial
from typing import Any

import torch

from benchmarks.attempts import attempts, deadline
from benchmarks.interleaved import Run, elapsed, interleaved, spread
from benchmarks.record import Record, made_by, name_of
from benchmarks.steps import Held, advance, arguments, trainer
from crossbreed.core.host import Host, Registry
from crossbreed.core.model.language_model import LanguageModel
from crossbreed.presets import presets

TASKS: dict[str, dict[str, Any]] = {"recall": {}, "bytes": {"path": pydoc_data.topics.__file__}}
PRESETS = ("amor-gdn-mini", "transformer-mini")
HELD = 16
WARM_STEPS = 8
"""Before anything is timed: a pass is recorded and compared in these."""


def measured(registry: Registry, preset: str, task_name: str, options: argparse.Namespace) -> dict[str, Any]:
    device = torch.device(options.device)
    params = {**TASKS[task_name], "length": options.tokens}
    task = registry.factory("task", task_name)(registry.config("task", task_name, params))
    held = Held([task.train_batch(0, step, options.batch) for step in range(HELD)], device.type == "cuda")
    genome = registry.canonical(presets()[preset].build(task.vocab))
    trainers = []
    for data in (task, held, task):
        model = LanguageModel(genome, registry, backend=options.backend).to(device)
        trainers.append(trainer(model, data, options.batch))
        advance(trainers[-1], WARM_STEPS)
    real, twin, inline = trainers
    steps = options.steps
    arms: dict[str, Run] = {
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
    return {
        "preset": preset,
        "task": task_name,
        "ms": ms,
        "make_ms": make_ms,
        "wait": shares,
        "batch": options.batch,
        "tokens": options.tokens,
    }


def main() -> None:
    parser = arguments(__doc__, 32, 256, seconds=40.0, limit="No new row is begun after these.")
    parser.add_argument("preset", nargs="*", default=PRESETS)
    parser.add_argument("--steps", type=int, default=200)
    options = parser.parse_args()
    registry = Host.load(third_party=False)
    record = Record(options.out, device=name_of(torch.device(options.device)))
    pieces = {
        f"{preset} on {task}": partial(measured, registry, preset, task, options)
        for preset, task in itertools.product(options.preset, TASKS)
    }
    for row in attempts(pieces, deadline(options.seconds)):
        waits = ", ".join(
            f"{arm} waits {spread([100 * x for x in wait])}%" for arm, wait in row["wait"].items()
        )
        print(
            f"{row['preset']:18} {row['task']:7} {waits} of a step; a batch takes {spread(row['make_ms'])} ms to make; ms a step: "
            + ", ".join(f"{arm} {spread(ms)}" for arm, ms in row["ms"].items()),
            flush=True,
        )
        record.keep(row | made_by(options), ("preset", "task", "batch", "tokens"))


if __name__ == "__main__":
    main()
