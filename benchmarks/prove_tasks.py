"""Whether a small model learns each task: settings are trained with several seeds until the fixed items are nearly all right.

    python benchmarks/prove_tasks.py [TASK ...] [--device cpu] [--workers 1] [--seeds 0,1,2] [--seconds S] [--out FILE]
    python benchmarks/prove_tasks.py --take FILE [FILE ...]

A run ends where its evaluation reaches 0.99, looked at sixteen times on the way, or with its tokens, or when the seconds for all of
them are over. One JSON object a run goes to standard output, or is added to a file. ``--take`` writes what such files show to
``crossbreed/plugins/tasks/proven.json``: of each task the last setting of TRIED that three seeds learnt.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

MILLION = 1_000_000
LEARNT = 0.99
ENOUGH = 0.94
"""Where a run ends, and what the worst of its seeds must have scored for a setting to be shown as learnt."""
SEEDS = 3
LOOKS = 16
GRACE_S = 20.0
"""After the seconds for all runs, for those at work to evaluate and end."""
PROVEN = Path(__file__).parents[1] / "crossbreed" / "plugins" / "tasks" / "proven.json"


class Trying(NamedTuple):
    """A task's settings and a model: its layers (``a`` attention, ``d`` Gated DeltaNet with negative eigenvalues, each with a
    SwiGLU), how often all of them are run, and their width. Training: tokens at most, rows a step and the learning rate."""

    task: str
    settings: dict[str, Any]
    layers: str
    tokens: int = 4 * MILLION
    lr: float = 3e-3
    batch: int = 64
    repeats: int = 1
    width: int = 64


TRIED = (
    Trying("facts", {}, "a"),
    Trying("recall", {}, "aa"),
    Trying("noisy_recall", {}, "aa"),
    Trying("fuzzy_recall", {}, "aaa"),
    Trying("needle", {"length": 32}, "aa"),
    Trying("filler_recall", {"length": 64, "pairs": 4, "queries": 4, "targets": "answers"}, "aa"),
    Trying("filler_recall", {"length": 64, "pairs": 4, "queries": 12}, "aa", 6 * MILLION),
    Trying("copy", {}, "aa"),
    Trying("selective_copy", {"items": 4, "length": 20}, "aaa"),
    Trying("compression", {}, "aa"),
    Trying("parity", {}, "d"),
    Trying("permutations", {"points": 3}, "dd"),
    Trying("permutations", {"moved": 2}, "d"),
    Trying("permutations", {}, "dddd", 24 * MILLION, 2e-3, batch=256, width=128),
    Trying("arithmetic", {"modulus": 5, "length": 13}, "dd"),
    Trying("pointers", {"places": 5, "hops": 2, "length": 24}, "aaa"),
    Trying("registers", {"registers": 2, "modulus": 2, "length": 24}, "dd", 8 * MILLION),
    Trying("registers", {"registers": 2, "modulus": 3, "length": 24}, "aaa"),
    Trying("registers", {"registers": 2, "modulus": 3, "length": 24}, "ddd", 16 * MILLION, batch=256),
    Trying("registers", {"registers": 2, "modulus": 3, "length": 24}, "aa", 16 * MILLION, 2e-3, 256, repeats=6),
    Trying("variables", {}, "aaa"),
)  # fmt: skip

MIXERS: dict[str, tuple[str, dict[str, Any]]] = {
    "a": ("attention", {"head_size": 16, "short_conv": {"width": 4, "on": "kv"}}),
    "d": ("gated_deltanet", {"key_size": 16, "value_size": 32, "negative_eigenvalues": True}),
}
NAMES = {"a": "attention", "d": "Gated DeltaNet"}
HEAD = 16
"""Of the model's width for each head."""


def architecture(this: Trying, vocab: int) -> dict[str, Any]:
    """A genome of one block a layer."""
    blocks = []
    for letter in this.layers:
        mixer, params = MIXERS[letter]
        swiglu = {"mixer": "swiglu", "params": {"hidden": 2 * this.width}}
        heads = this.width // HEAD
        blocks.append({"sublayers": [{"mixer": mixer, "params": {"heads": heads, **params}}, swiglu]})
    depth = {"name": "recurrent" if this.repeats > 1 else "layered", "repeats": this.repeats}
    return {"vocab": vocab, "d_model": this.width, "stages": [{"blocks": blocks, "depth": depth}]}


def in_words(this: Trying) -> str:
    """``2 layers of attention and SwiGLU at width 64``."""
    count, names = len(this.layers), " and ".join(NAMES[letter] for letter in dict.fromkeys(this.layers))
    again = f", run {this.repeats} times," if this.repeats > 1 else ""
    return f"{count} layer{'' if count == 1 else 's'} of {names} and SwiGLU{again} at width {this.width}"


def tried(this: Trying, seed: int, device: str, ends: float = math.inf) -> dict[str, Any]:
    """Train with one seed, until the task is learnt, or its tokens or the time (seconds since the epoch) are over."""
    import torch

    from crossbreed.core.genome import Architecture
    from crossbreed.core.host import Host
    from crossbreed.core.lab.job import Job
    from crossbreed.core.lab.records import Finished, Record, RungDone
    from crossbreed.core.lab.trial import run
    from crossbreed.core.model.language_model import LanguageModel

    registry = Host.load(third_party=False)
    task = registry.factory("task", this.task)(registry.config("task", this.task, this.settings))
    genome = architecture(this, task.vocab)
    with torch.device("meta"):
        model = LanguageModel(registry.canonical(Architecture.model_validate(genome)), registry)
    records: list[Record] = []
    begin = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        job = Job(
            study="proof",
            number=0,
            seed=seed,
            lease="proof",
            architecture=genome,
            task={"name": this.task, "params": this.settings},
            recipe={
                "tokens": this.tokens,
                "batch": this.batch,
                "lr": this.lr,
                "rungs": [(n + 1) / LOOKS for n in range(LOOKS)],
                "log_every": 100,
                "eval_batch": 256,
            },
            artefacts=folder,
            device=device,
            phases=("train",),
            memory=False,
        )
        run(job, records.append, lambda: _best(records, task.score.name) >= LEARNT or time.time() > ends)
    last = records[-1]
    assert isinstance(last, Finished)
    looks = [(r.tokens, r.metrics[task.score.name]) for r in records if isinstance(r, RungDone)]
    return {
        **this._asdict(),
        "model": in_words(this),
        "seed": seed,
        "state": last.state,
        "cause": last.cause,
        "parameters": sum(p.numel() for p in model.parameters()),
        "chance": task.chance,
        "trained_tokens": looks[-1][0] if looks else 0,
        "score": looks[-1][1] if looks else None,
        "looks": looks,
        "device": device,
        "seconds": round(time.perf_counter() - begin, 1),
    }


def _tried(run: tuple[Trying, int, str, float]) -> dict[str, Any]:
    try:
        return tried(*run)
    except Exception:
        # The other runs go on.
        traceback.print_exc()
        return {
            **run[0]._asdict(),
            "seed": run[1],
            "state": "failed",
            "cause": traceback.format_exc(),
            "score": None,
        }


def _best(records: Sequence[Any], score: str) -> float:
    return max((r.metrics[score] for r in records if hasattr(r, "checkpoint")), default=0.0)


def prove(runs: Sequence[tuple[Trying, int]], device: str, workers: int, seconds: float, out: Any) -> None:
    """All runs, those with most tokens first, so that none is begun late that takes long."""
    ends = time.time() + seconds
    longest = sorted(runs, key=lambda run: -run[0].tokens * len(run[0].layers) * run[0].repeats)
    with multiprocessing.get_context("spawn").Pool(workers) as pool:
        # By hand: the iterator's timeout alone says when a worker has died, of which a pool says nothing.
        found = pool.imap_unordered(_tried, [(this, seed, device, ends) for this, seed in longest])
        for _ in longest:
            try:
                done = found.next(max(1.0, ends + GRACE_S - time.time()) if seconds < math.inf else None)
            except multiprocessing.TimeoutError:
                print("time is over; what is still at work is given up", file=sys.stderr)
                return
            print(json.dumps(done), file=out, flush=True)
            shown = "-" if done["score"] is None else f"{done['score']:.4f}"
            print(
                f"{done['task']} {done['settings']} {done.get('model')} seed {done['seed']}: {shown} after "
                f"{done.get('trained_tokens', 0):,} tokens, {done['state']}, {done.get('seconds')} s",
                file=sys.stderr,
                flush=True,
            )


def learnt(runs: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Of each task the last of TRIED that SEEDS seeds learnt, as ``proven.json`` holds it."""

    def key(run: dict[str, Any]) -> int:
        return TRIED.index(Trying(**{name: run[name] for name in Trying._fields}))

    found: dict[str, dict[str, Any]] = {}
    for number, same in groupby(sorted((r for r in runs if r["score"] is not None), key=key), key):
        # A later file's run of a seed takes the place of an earlier one's.
        seeds = {run["seed"]: run for run in same}
        worst = min(seeds.values(), key=lambda run: float(run["score"]))
        if len(seeds) >= SEEDS and worst["score"] >= ENOUGH:
            this = TRIED[number]
            found[this.task] = {
                "task": this.task,
                "settings": this.settings,
                "model": in_words(this),
                "model_parameters": worst["parameters"],
                "tokens": max(run["trained_tokens"] for run in seeds.values()),
                "seeds": len(seeds),
                "score": round(worst["score"], 3),
            }
    return list(found.values())


def take(files: Sequence[str]) -> None:
    """Write what runs have shown; a task of which they show nothing keeps what it has."""
    runs = [
        json.loads(line) for file in files for line in Path(file).read_text(encoding="utf-8").splitlines()
    ]
    kept = {found["task"]: found for found in json.loads(PROVEN.read_text(encoding="utf-8"))}
    kept.update((found["task"], found) for found in learnt(runs))
    PROVEN.write_text(json.dumps(list(kept.values()), indent=1) + "\n", encoding="utf-8")


def main() -> None:
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("names", nargs="*", help="tasks; all if left out")
    options.add_argument("--device", default="cpu")
    options.add_argument("--workers", type=int, default=1)
    options.add_argument("--seeds", default="0,1,2")
    options.add_argument("--seconds", type=float, default=math.inf, help="for all runs together")
    options.add_argument("--most", type=int, default=None, help="tokens of a run at most, to try the script")
    options.add_argument(
        "--out", default=None, help="a file to which results are added, one JSON object a line"
    )
    options.add_argument("--take", nargs="+", metavar="FILE", help="write what these files show")
    given = options.parse_args()
    if given.take:
        take(given.take)
        return
    chosen = [this for this in TRIED if not given.names or this.task in given.names]
    if given.most is not None:
        chosen = [this._replace(tokens=min(this.tokens, given.most)) for this in chosen]
    runs = [(this, int(seed)) for seed in given.seeds.split(",") for this in chosen]
    out = open(given.out, "a") if given.out else sys.stdout  # noqa: SIM115
    prove(runs, given.device, given.workers, given.seconds, out)


if __name__ == "__main__":
    main()
