"""Whether a small model learns each task: settings are trained with several seeds until the fixed items are nearly all right.

    python benchmarks/prove_tasks.py [NAME ...] [--device cpu] [--workers 1] [--seeds 3] [--out FILE]

A run ends where its evaluation reaches 0.99, looked at sixteen times on the way, or with its tokens. One JSON object a run goes to
standard output, or to a file. What was seen stands in ``crossbreed/plugins/tasks/proven.py``.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sys
import tempfile
import time
from typing import Any, NamedTuple

WIDTH = 64
MILLION = 1_000_000
LEARNT = 0.99
LOOKS = 16


class Trying(NamedTuple):
    """A task's settings, the layers (``a`` attention, ``d`` Gated DeltaNet with negative eigenvalues, each with a SwiGLU), training
    tokens at most, and the learning rate."""

    task: str
    settings: dict[str, Any]
    layers: str
    tokens: int = 4 * MILLION
    lr: float = 3e-3


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
    Trying("arithmetic", {"modulus": 5, "length": 13}, "dd"),
    Trying("pointers", {"places": 5, "hops": 2, "length": 24}, "aaa"),
    Trying("registers", {"registers": 2, "modulus": 3, "length": 24}, "aaa"),
    Trying("variables", {}, "aaa"),
)

MIXERS = {
    "a": ("attention", {"heads": 4, "head_size": 16, "short_conv": {"width": 4, "on": "kv"}}),
    "d": ("gated_deltanet", {"heads": 4, "key_size": 16, "value_size": 32, "negative_eigenvalues": True}),
}


def architecture(vocab: int, layers: str) -> dict[str, Any]:
    """A genome of one block a layer."""
    blocks = []
    for letter in layers:
        mixer, params = MIXERS[letter]
        swiglu = {"mixer": "swiglu", "params": {"hidden": 2 * WIDTH}}
        blocks.append({"sublayers": [{"mixer": mixer, "params": params}, swiglu]})
    return {"vocab": vocab, "d_model": WIDTH, "stages": [{"blocks": blocks}]}


def tried(number: int, seed: int, device: str) -> dict[str, Any]:
    """Train one of TRIED with one seed, until it has learnt the task or its tokens are over."""
    import torch

    from crossbreed.core.genome import Architecture
    from crossbreed.core.host import Host
    from crossbreed.core.lab.job import Job
    from crossbreed.core.lab.records import Finished, Record, RungDone
    from crossbreed.core.lab.trial import run
    from crossbreed.core.model.language_model import LanguageModel

    this = TRIED[number]
    registry = Host.load(third_party=False)
    task = registry.factory("task", this.task)(registry.config("task", this.task, this.settings))
    genome = architecture(task.vocab, this.layers)
    with torch.device("meta"):
        model = LanguageModel(registry.canonical(Architecture.model_validate(genome)), registry)
    records: list[Record] = []
    begin = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        job = Job(
            study="proof",
            number=number,
            seed=seed,
            lease="proof",
            architecture=genome,
            task={"name": this.task, "params": this.settings},
            recipe={
                "tokens": this.tokens,
                "batch": 64,
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
        run(job, records.append, lambda: _best(records, task.score.name) >= LEARNT)
    last = records[-1]
    assert isinstance(last, Finished)
    looks = [(r.tokens, r.metrics[task.score.name]) for r in records if isinstance(r, RungDone)]
    return {
        **this._asdict(),
        "seed": seed,
        "state": last.state,
        "cause": last.cause,
        "parameters": sum(p.numel() for p in model.parameters()),
        "chance": task.chance,
        "tokens": looks[-1][0] if looks else 0,
        "score": looks[-1][1] if looks else None,
        "looks": looks,
        "seconds": round(time.perf_counter() - begin, 1),
    }


def _tried(run: tuple[int, int, str]) -> dict[str, Any]:
    return tried(*run)


def _best(records: list[Any], score: str) -> float:
    return max((r.metrics[score] for r in records if hasattr(r, "checkpoint")), default=0.0)


def main() -> None:
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("names", nargs="*")
    options.add_argument("--device", default="cpu")
    options.add_argument("--workers", type=int, default=1)
    options.add_argument("--seeds", type=int, default=3)
    options.add_argument("--out", default=None)
    given = options.parse_args()
    chosen = [n for n, this in enumerate(TRIED) if not given.names or this.task in given.names]
    runs = [(n, seed, given.device) for seed in range(given.seeds) for n in chosen]
    out = open(given.out, "a") if given.out else sys.stdout  # noqa: SIM115
    with multiprocessing.get_context("spawn").Pool(given.workers) as pool:
        for done in pool.imap_unordered(_tried, runs):
            print(json.dumps(done), file=out, flush=True)


if __name__ == "__main__":
    main()
