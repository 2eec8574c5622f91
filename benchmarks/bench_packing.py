"""Trials an hour on one GPU: one at a time, packed on it, and packed with NVIDIA's multi-process service (MPS).

    python -m benchmarks.bench_packing [--workers 8] [--tokens 1_250_000] [--repeats 5] [--seconds 150] [--out record.json]

A trial is what a search gives to its Ray workers: a hybrid of 2M parameters is built, checked, trained in recorded steps (bfloat16,
32 x 256 tokens of associative recall) and judged; it is not timed, since timing has the device alone in a search as well. Every arm is
a process with a Ray pool of its own: ``alone`` has one worker, the others ``--workers`` that share the GPU. Arms take turns; in a turn
``alone`` runs --alone trials one after the other and a packed arm one for each worker, the same seeds everywhere. What is only done
once a worker (imports, the probe of backends, kernels that are compiled) falls into a trial before the first turn, and is reported as
the arm's start, in which all arms start at once. The MPS arm is started by ``scripts/with-mps``; where that finds no service the arm is left out, and the record says so.
Scores are of the same seeds: the largest difference from ``alone`` stands beside the largest among the repeats of ``alone``.

``--device cpu`` tries the script out: on a CPU nothing is recorded in graphs, and the figures say nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO, Any

import psutil

from benchmarks import record
from crossbreed.core.artefacts import Artefacts
from crossbreed.core.lab.job import Job
from crossbreed.core.lab.records import Evaluated, Finished, Started
from crossbreed.core.search.executors.base import Lost, Report, Spool

WITH_MPS = Path(__file__).resolve().parent.parent / "scripts" / "with-mps"
SMALL = {"tokens": 4096, "d_model": 32, "length": 32, "batch": 8}
"""Sizes for a CPU."""


def genome(d_model: int, vocab: int) -> dict[str, Any]:
    """Two layers of Gated DeltaNet and two of attention, each with SwiGLU: 1.8M parameters at width 192."""
    heads = max(1, d_model // 32)
    conv = {"short_conv": {"width": 4}}
    linear = {"mixer": "gated_deltanet", "params": {"heads": heads, "key_size": 24, "value_size": 32, **conv}}
    softmax = {"mixer": "attention", "params": {"heads": heads, "head_size": 32, **conv}}
    swiglu = {"mixer": "swiglu", "params": {"hidden": 8 * d_model // 3}}
    blocks = [{"sublayers": [mixer, swiglu]} for mixer in (linear, softmax, linear, softmax)]
    return {"vocab": vocab, "d_model": d_model, "stages": [{"blocks": blocks}]}


def job(options: argparse.Namespace, place: Path, seed: int) -> Job:
    cuda = options.device == "cuda"
    task = {"vocab": 132, "pairs": 8, "length": options.length, "eval_items": 256}
    recipe = {
        "tokens": options.tokens,
        "batch": options.batch,
        "lr": 2e-3,
        "log_every": 50,
        "dtype": "bfloat16" if cuda else "float32",
    }
    return Job(
        study="packing",
        number=0,
        seed=seed,
        lease=f"{place.name}-{seed}",
        architecture=genome(options.d_model, task["vocab"]),
        task={"name": "recall", "params": task},
        recipe=recipe,
        artefacts=str(place / f"{seed}"),
        device=options.device,
        phases=("train", "evaluate"),
        memory=False,
    )


# An arm: a pool of workers that runs a turn whenever it is told to


def serve(options: argparse.Namespace) -> None:
    """Answer each line of stdin, a number of trials, with one JSON line on stdout: seconds, scores, and whether MPS was on."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    # Whatever Ray and plugins print must not get in between.
    os.dup2(2, 1)
    from crossbreed.core.search.executors.ray import RayExecutor
    from crossbreed.core.search.executors.resources import Resources

    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        gpus = 1 / options.serve if options.device == "cuda" else 0.0
        pool = RayExecutor(
            options.serve,
            Spool(Artefacts.at(str(root / "spool"))),
            options.device,
            resources=Resources(gpus=gpus),
        )
        try:
            pool.start()
            for turn, line in enumerate(sys.stdin):
                place = root / f"turn-{turn}"
                found = run_turn(pool, options, place, int(line))
                found["age_s"] = time.time() - psutil.Process().create_time()
                print(json.dumps(found), file=answers, flush=True)
        finally:
            pool.shutdown()


def run_turn(pool: Any, options: argparse.Namespace, place: Path, trials: int) -> dict[str, Any]:
    """Trials of seeds 0, 1, ... as fast as the pool takes them; raises RuntimeError with the first cause where one fails."""
    scores: dict[str, float] = {}
    shared: set[bool | None] = set()
    jobs = [job(options, place, seed) for seed in range(trials)]
    seeds = {each.lease: each.seed for each in jobs}

    def hear(lease: str, report: Report) -> None:
        if isinstance(report, Started):
            shared.add(report.environment["mps"])
        elif isinstance(report, Evaluated):
            scores[str(seeds[lease])] = report.score
        elif isinstance(report, Lost) or (isinstance(report, Finished) and report.state != "done"):
            raise RuntimeError(
                report.cause + ("\n" + report.traceback if isinstance(report, Finished) else "")
            )

    begun = time.perf_counter()
    while jobs or pool.running:
        while jobs and pool.running < pool.slots:
            pool.submit(jobs.pop(0))
        pool.work(hear, 1.0)
        if time.perf_counter() - begun > options.patience:
            raise RuntimeError(f"{trials} trials took longer than {options.patience:g} s")
    return {"seconds": time.perf_counter() - begun, "scores": scores, "mps": sorted(map(str, shared))}


# The bench: starts the arms and gives them their turns


class Arm:
    """A process that serves; ``name`` and how many trials its turn has."""

    def __init__(self, name: str, workers: int, trials: int, options: argparse.Namespace) -> None:
        self.name, self.workers, self.trials = name, workers, trials
        self.turns: list[dict[str, Any]] = []
        self.start_s, self.fault = 0.0, ""
        sizes = [f"--{n}={getattr(options, n)}" for n in ("device", *SMALL, "patience")]
        command = [sys.executable, "-m", "benchmarks.bench_packing", f"--serve={workers}", *sizes]
        if name == "packed, MPS":
            command = ["sh", str(WITH_MPS), *command]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def tell(self, trials: int) -> None:
        if not self.fault:
            try:
                print(trials, file=_pipe(self.process.stdin), flush=True)
            except OSError:
                self.fault = "it did not start"

    def answer(self) -> dict[str, Any] | None:
        """What came of the turn it was told; None, and ``fault``, where it has ended."""
        line = "" if self.fault else _pipe(self.process.stdout).readline()
        if line:
            found: dict[str, Any] = json.loads(line)
            return found
        self.fault = self.fault or f"it ended with code {self.process.wait()}"
        return None

    def warm(self) -> None:
        """Take in the trials that every worker runs before the first turn."""
        found = self.answer()
        self.start_s = 0.0 if found is None else found["age_s"]
        said = (
            f"not here: {self.fault}"
            if found is None
            else f"ready after {self.start_s:.0f} s, MPS {found['mps']}"
        )
        print(f"{self.name:14} {said}", flush=True)

    def turn(self) -> None:
        self.tell(self.trials)
        found = self.answer()
        if found is not None:
            self.turns.append(found)
            rate = 3600 * self.trials / found["seconds"]
            print(
                f"{self.name:14} {self.trials} trials in {found['seconds']:.1f} s: {rate:,.0f} an hour",
                flush=True,
            )

    def close(self) -> None:
        # One that has ended leaves what it was told in the pipe.
        with suppress(BrokenPipeError):
            _pipe(self.process.stdin).close()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()

    def row(self) -> dict[str, Any]:
        rates = [3600 * self.trials / turn["seconds"] for turn in self.turns]
        return {
            "arm": self.name,
            "workers": self.workers,
            "trials": self.trials,
            "mps": sorted({word for turn in self.turns for word in turn["mps"]}),
            "start_s": self.start_s,
            "trials_per_hour": statistics.median(rates) if rates else None,
            "all": rates,
            "scores": [turn["scores"] for turn in self.turns],
            "fault": self.fault,
        }


def _pipe(stream: IO[str] | None) -> IO[str]:
    assert stream is not None
    return stream


@contextmanager
def arms(options: argparse.Namespace) -> Iterator[list[Arm]]:
    """All arms, warm; they start beside each other."""
    with ExitStack() as closing:
        found = []
        for name, workers, trials in (
            ("alone", 1, options.alone),
            ("packed", options.workers, options.workers),
            ("packed, MPS", options.workers, options.workers),
        ):
            arm = Arm(name, workers, trials, options)
            closing.callback(arm.close)
            arm.tell(workers)
            found.append(arm)
        for arm in found:
            arm.warm()
        yield found


def largest(rows: list[dict[str, Any]]) -> dict[str, float | None]:
    """Arm -> the largest difference of a seed's score from the first turn of ``alone``; among the repeats for ``alone``."""
    base = next((row["scores"][0] for row in rows if row["arm"] == "alone" and row["scores"]), {})
    return {
        row["arm"]: max(
            (
                abs(scores[seed] - base[seed])
                for scores in row["scores"]
                for seed in scores.keys() & base.keys()
            ),
            default=None,
        )
        for row in rows
    }


def main() -> None:
    parser = record.arguments(
        __doc__, repeats=5, seconds=150.0, limit="No repeat begins that would end later."
    )
    parser.add_argument("--workers", type=int, default=8, help="trials that share the GPU")
    parser.add_argument(
        "--alone", type=int, default=2, help="trials of a turn of the arm that runs one at a time"
    )
    parser.add_argument("--tokens", type=int, default=1_250_000, help="of a trial")
    parser.add_argument("--d_model", type=int, default=192)
    parser.add_argument("--length", type=int, default=256)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--patience", type=float, default=120.0, help="longest turn in seconds")
    parser.add_argument("--serve", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve is not None:
        serve(options)
        return
    if options.device == "cpu":
        vars(options).update(SMALL)
    begun, longest = time.perf_counter(), 0.0
    with arms(options) as found:
        for repeat in range(options.repeats):
            at = time.perf_counter()
            if at - begun + longest > options.seconds:
                print(
                    f"stopped after {repeat} repeats: another would end after {options.seconds:g} s",
                    flush=True,
                )
                break
            for arm in found:
                arm.turn()
            longest = max(longest, time.perf_counter() - at)
            write(options, [arm.row() for arm in found])


def write(options: argparse.Namespace, rows: list[dict[str, Any]]) -> None:
    """Say how the arms compare so far, and keep it."""
    import torch

    from crossbreed.core.lab.environment import device_name

    once = rows[0]["trials_per_hour"]
    off = largest(rows)
    for row in rows if once else ():
        if row["trials_per_hour"]:
            print(
                f"{row['arm']:14} {row['trials_per_hour']:8,.0f} trials an hour, {row['trials_per_hour'] / once:.2f} times alone, scores "
                f"off by {off[row['arm']]}",
                flush=True,
            )
    found = {
        "device": device_name(torch.device(options.device)),
        "candidate": genome(options.d_model, 132),
        "tokens": options.tokens,
        "shape": {"batch": options.batch, "tokens": options.length},
        "arms": rows,
        "largest_difference": off,
        **record.made_by(options),
    }
    record.write(options.out, found)


if __name__ == "__main__":
    main()
