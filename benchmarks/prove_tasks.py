"""Whether a small model learns each task: every setting is trained with several seeds and judged on the fixed items.

    python benchmarks/prove_tasks.py [NAME ...] [--device cuda] [--workers 12] [--seeds 3] [--out FILE]

One JSON object a run goes to standard output, or to a file, as it ends. What was seen is kept in
``docs/_records/proven_tasks.json``, from which ``crossbreed/plugins/tasks/proven.py`` was written.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sys
import tempfile
import time
from typing import Any, NamedTuple

WIDTH = 128
MILLION = 1_000_000


class Trying(NamedTuple):
    """A task's settings, the layers (``a`` attention, ``d`` Gated DeltaNet with negative eigenvalues, each with a SwiGLU), training
    tokens, and the learning rate."""

    task: str
    settings: dict[str, Any]
    layers: str
    tokens: int
    lr: float = 1e-3


TRIED = (
    Trying("recall", {}, "aa", 20 * MILLION),
    Trying("noisy_recall", {}, "aa", 20 * MILLION),
    Trying("fuzzy_recall", {}, "aaaa", 30 * MILLION),
    Trying("filler_recall", {}, "aa", 40 * MILLION),
    Trying("needle", {}, "aa", 30 * MILLION),
    Trying("copy", {}, "aa", 20 * MILLION),
    Trying("selective_copy", {}, "aaaa", 30 * MILLION),
    Trying("compression", {}, "aa", 20 * MILLION),
    Trying("facts", {}, "a", 5 * MILLION),
    Trying("parity", {}, "d", 15 * MILLION),
    Trying("permutations", {}, "dddd", 30 * MILLION),
    Trying("permutations", {"points": 3}, "dd", 15 * MILLION),
    Trying("arithmetic", {}, "dddd", 30 * MILLION),
    Trying("arithmetic", {"modulus": 5, "length": 17}, "dddd", 20 * MILLION),
    Trying("registers", {}, "aaaaaa", 40 * MILLION),
    Trying("registers", {"registers": 2, "modulus": 5, "length": 24}, "aaaa", 30 * MILLION),
    Trying("pointers", {}, "aaaaaa", 40 * MILLION),
    Trying("pointers", {"hops": 2}, "aaaa", 30 * MILLION),
    Trying("variables", {}, "aaaa", 30 * MILLION),
)

MIXERS = {
    "a": ("attention", {"heads": 4, "head_size": 32, "short_conv": {"width": 4, "on": "kv"}}),
    "d": ("gated_deltanet", {"heads": 4, "key_size": 32, "value_size": 32, "negative_eigenvalues": True}),
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
    """Train one of TRIED with one seed: what it scored, and on the way at each eighth, quarter and half of its tokens."""
    import torch

    from crossbreed.core.genome import Architecture
    from crossbreed.core.host import Host
    from crossbreed.core.lab.job import Job
    from crossbreed.core.lab.records import Evaluated, Finished, Record, RungDone
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
                "batch": 256,
                "lr": this.lr,
                "rungs": [1 / 8, 1 / 4, 1 / 2, 1.0],
                "log_every": 100,
                "eval_batch": 256,
            },
            artefacts=folder,
            device=device,
            phases=("train", "evaluate"),
            memory=False,
        )
        run(job, records.append, lambda: False)
    last = records[-1]
    assert isinstance(last, Finished)
    return {
        **this._asdict(),
        "seed": seed,
        "state": last.state,
        "cause": last.cause,
        "parameters": sum(p.numel() for p in model.parameters()),
        "score": next((r.score for r in records if isinstance(r, Evaluated)), None),
        "chance": task.chance,
        "rungs": [[r.tokens, r.metrics[task.score.name]] for r in records if isinstance(r, RungDone)],
        "seconds": round(time.perf_counter() - begin, 1),
    }


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
    # The longest first, so that none is left to run alone.
    chosen.sort(key=lambda n: -TRIED[n].tokens * len(TRIED[n].layers))
    runs = [(n, seed, given.device) for seed in range(given.seeds) for n in chosen]
    out = open(given.out, "a") if given.out else sys.stdout  # noqa: SIM115
    with multiprocessing.get_context("spawn").Pool(given.workers) as pool:
        waiting = [pool.apply_async(tried, run) for run in runs]
        for done in waiting:
            print(json.dumps(done.get()), file=out, flush=True)


if __name__ == "__main__":
    main()
