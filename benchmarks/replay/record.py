"""Record real learning curves of every architecture of the replay grid, on CPU cores, one process and one thread each.

    python -m benchmarks.replay.record recall --out benchmarks/replay/recall.parquet [--workers 16] [--minutes 5]

A run trains once through its whole schedule and is evaluated at every checkpoint. Recording is resumable: runs that the
file already holds are kept, and it is rewritten every few seconds, so an interrupted recording loses seconds of work.
Every tenth architecture is recorded with five seeds, all others with one.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SHARES = (1 / 27, 2 / 27, 1 / 9, 2 / 9, 1 / 3, 1 / 2, 2 / 3, 1.0)
"""Checkpoints as shares of a run's tokens: the ends of rungs at reductions 2 and 3 among them."""
SEEDS = 5
EVERY = 10
"""Every so many architectures have ``SEEDS`` seeds."""
WRITE_S = 10.0
ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Table:
    """A task with the recipe that all its runs share, and the context length at which decoding is charged."""

    task: dict[str, Any]
    recipe: dict[str, Any]
    context: int


TABLES = {
    "recall": Table(
        {"name": "recall", "params": {"vocab": 28, "pairs": 3, "length": 24, "eval_items": 512}},
        {"tokens": 248_832, "batch": 32, "lr": 5e-3},
        context=1024,
    ),
    "bytes": Table(
        {
            "name": "bytes",
            "params": {"path": str(ROOT / "crossbreed/core"), "length": 48, "eval_items": 128},
        },
        {"tokens": 124_416, "batch": 8, "lr": 5e-3},
        context=256,
    ),
}


def grid() -> list[dict[str, Any]]:
    """The draws of all architectures, in the grid's order."""
    from benchmarks.replay.space import ReplayConfig, ReplayGrid
    from crossbreed.core.contracts.space import Setting
    from crossbreed.core.host import Host
    from crossbreed.core.search.enumeration import enumerate_draws

    # The grid fixes its own widths; what the setting says of tasks only fills the vocabulary in.
    setting = Setting(256, 32, 32, (), (), (), Host.load(third_party=False))
    return [draws for _, draws in enumerate_draws(ReplayGrid(ReplayConfig()), setting)]


def runs(configurations: int) -> list[tuple[int, int]]:
    """(configuration, seed) of every run: first seeds first, in a fixed shuffled order so that part of it is a sample."""
    first = [(index, 0) for index in range(configurations)]
    more = [(index, seed) for index in range(0, configurations, EVERY) for seed in range(1, SEEDS)]
    for part in (first, more):
        random.Random(0).shuffle(part)
    return first + more


def record(table: Table, configuration: int, seed: int, draws: dict[str, Any]) -> list[dict[str, Any]]:
    """One row for each checkpoint of one run; a run that diverges has NaN from there on."""
    import torch

    from benchmarks.replay.space import ReplayConfig, ReplayGrid
    from crossbreed.core import genome
    from crossbreed.core.contracts.space import Setting
    from crossbreed.core.errors import Diverged
    from crossbreed.core.host import Host
    from crossbreed.core.lab.checkpoint import Header
    from crossbreed.core.lab.evaluate import evaluate
    from crossbreed.core.lab.recipe import Recipe
    from crossbreed.core.lab.train import Trainer
    from crossbreed.core.ledger import Shape
    from crossbreed.core.model.language_model import LanguageModel
    from crossbreed.core.search.draws import Fixed

    torch.set_num_threads(1)
    parts = Host.load(third_party=False)
    section, recipe = table.task, Recipe.model_validate(table.recipe)
    task = parts.factory("task", section["name"])(parts.config("task", section["name"], section["params"]))
    setting = Setting(task.vocab, task.length, 32, (), (), (), parts)
    architecture = parts.canonical(ReplayGrid(ReplayConfig()).propose(Fixed(values=draws), setting))
    cost = parts.factory("cost", "analytic")(parts.config("cost", "analytic", {}), parts)
    ledger = cost.estimate(architecture, Shape(tokens=table.context))
    digest = genome.digest(architecture)
    owner = Header(digest, recipe.model_dump(mode="json"), section, seed=seed, step=0, tokens=0, rung=0)
    model = LanguageModel(architecture, parts, seed=seed)
    trainer = Trainer(model, task, recipe, owner, lambda record: None)
    begun, rows, diverged = time.monotonic(), [], False
    for share in SHARES:
        target = round(share * recipe.tokens)
        score = loss = float("nan")
        if not diverged:
            try:
                trainer.advance(target, lambda: False)
                found = evaluate(model, task, recipe.eval_batch, seed=seed)
                score, loss = found.score, found.metrics["loss_nats"]
            except Diverged:
                diverged = True
        rows.append(
            {
                "configuration": configuration,
                "seed": seed,
                "share": share,
                "tokens": target,
                "score": score,
                "loss_nats": loss,
                "seconds": time.monotonic() - begun,
                "hash": digest,
                "draws": json.dumps(draws, sort_keys=True),
                "decode_flops_at_context": float(ledger.decode_flops_per_token),
                "memory_bytes_at_context": float(ledger.memory_bytes),
                "parameters": float(ledger.parameters),
            }
        )
    return rows


def _job(arguments: tuple[Table, int, int, dict[str, Any]]) -> list[dict[str, Any]]:
    return record(*arguments)


def about(name: str, table: Table) -> dict[str, Any]:
    """What the file says of itself: enough to see whether two recordings are of the same thing."""
    import torch

    from crossbreed.core.host import Host

    parts, section = Host.load(third_party=False), table.task
    task = parts.factory("task", section["name"])(parts.config("task", section["name"], section["params"]))
    params = {key: value for key, value in section["params"].items() if key != "path"}
    return {
        "table": name,
        "task": {"name": section["name"], "params": params, "evaluation": task.evaluation_hash()},
        "score": {"name": task.score.name, "bound": task.score.bound, "chance": task.chance},
        "recipe": table.recipe,
        "context": table.context,
        "torch": torch.__version__,
    }


def write(path: Path, rows: list[dict[str, Any]], said: dict[str, Any]) -> None:
    """Replace the file in one move, so that an interruption leaves the old one or the new one."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    ordered = sorted(rows, key=lambda r: (r["configuration"], r["seed"], r["share"]))
    content = pa.Table.from_pylist(ordered).replace_schema_metadata({"recorded": json.dumps(said)})
    partial = path.with_suffix(".partial")
    pq.write_table(content, partial, compression="zstd")
    os.replace(partial, path)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("table", choices=TABLES)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    parser.add_argument("--minutes", type=float, default=float("inf"), help="stop cleanly after so long")
    parser.add_argument("--runs", type=int, help="record at most so many runs more")
    arguments = parser.parse_args()
    table = TABLES[arguments.table]
    said = about(arguments.table, table)
    rows: list[dict[str, Any]] = []
    if arguments.out.exists():
        import pyarrow.parquet as pq

        stored = pq.read_table(arguments.out)
        earlier = json.loads(stored.schema.metadata[b"recorded"])
        if {**earlier, "torch": ""} != {**said, "torch": ""}:
            raise SystemExit(f"{arguments.out} holds another recording: {earlier}; choose another --out")
        rows = stored.to_pylist()
    kept = {(row["configuration"], row["seed"]) for row in rows}
    draws = grid()
    missing = [run for run in runs(len(draws)) if run not in kept][: arguments.runs]
    print(
        f"{len(kept)} runs kept, {len(missing)} to record on {arguments.workers} processes", file=sys.stderr
    )
    begun = written = time.monotonic()
    jobs = [(table, index, seed, draws[index]) for index, seed in missing]
    with multiprocessing.get_context("spawn").Pool(arguments.workers) as pool:
        for done, found in enumerate(pool.imap_unordered(_job, jobs), start=1):
            rows += found
            now = time.monotonic()
            out_of_time = now - begun > 60 * arguments.minutes
            if now - written > WRITE_S or done == len(jobs) or out_of_time:
                write(arguments.out, rows, said)
                written = now
                last = found[-1]
                print(
                    f"{done}/{len(jobs)} after {now - begun:.0f} s; last {last['score']:.3f} in {last['seconds']:.1f} s",
                    file=sys.stderr,
                    flush=True,
                )
            if out_of_time:
                pool.terminate()
                break


if __name__ == "__main__":
    main()
