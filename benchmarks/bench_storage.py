"""Storage at the size of a large study: writing results in bulk, and asking for the front.

    python benchmarks/bench_storage.py                                   SQLite, in a folder of its own
    python benchmarks/bench_storage.py --db postgresql://user@host/name  a server, an empty database
    python benchmarks/bench_storage.py --trials 500 --values 30 --repeats 5

Each trial has one done run with a curve of --values points, an evaluation and two timings. Printed: values written a second, in
transactions of one record, as a search stores what its workers stream, of one run's records, and of 100 runs'; then the median, and the slowest, of --repeats readings of the front: as
`crossbreed front` and `Study.front()` ask for it, and for comparison with every candidate read, as a search does.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from crossbreed.core.lab.records import CurvePoint, Measurement
from crossbreed.core.search.candidates import Objectives, read
from crossbreed.core.search.shortlist import front_candidates
from crossbreed.core.search.study import Study
from crossbreed.storage import Repository

OBJECTIVES = {"score": "max", "decode_tokens_per_s": "max"}
SPEC = {
    "schema": 1,
    "name": "large",
    "task": {"name": "recall", "params": {}},
    "budget": {"d_model": 64, "values": {"parameters": 1000}, "match": {"parameters": "2%"}},
    "train": {"tokens": 100000},
}
LEDGER = {
    "parameters": 1000,
    "training_flops_per_token": 1e6,
    "memory_bytes": 1e6,
    "parts": [{"site": f"0.{i}"} for i in range(30)],
}
RESIDUAL = {
    "quantity": "parameters",
    "kind": "match",
    "target": 1000,
    "tolerance": 0.02,
    "value": 1000,
    "residual": 0,
    "ok": True,
}
CERTIFICATE = {"feasible": True, "quantities": [RESIDUAL], "path": "given"}


def points(values: int) -> list[CurvePoint]:
    return [CurvePoint(10 * (i + 1), 320 * (i + 1), 3.0 / (i + 1), 1e-3, 1.0) for i in range(values)]


def timing(phase: str, median: float) -> Measurement:
    return Measurement(
        metric=f"{phase}_tokens_per_s",
        unit="tokens/s",
        phase=phase,
        batch=1,
        tokens=256,
        dtype="float32",
        device="a processor (1 thread)",
        policy="best",
        compiled=False,
        median=median,
        q1=0.98 * median,
        q3=1.02 * median,
        repeats=9,
        backends={f"stages.0.blocks.{i}": "reference" for i in range(8)},
    )


def fill(
    repository: Repository,
    study_id: int,
    first: int,
    last: int,
    values: int,
    at_once: int,
    *,
    together: bool = True,
) -> float:
    """Trials ``first`` to ``last`` as a driver stores them; seconds spent on their runs' records.

    The records of ``at_once`` runs are one transaction, unless not ``together``: then each record is one.
    """
    random = np.random.default_rng(first)
    curve = points(values)
    spent = 0.0
    for start in range(first, last, at_once):
        with repository.batch():
            leased = []
            for number in range(start, min(start + at_once, last)):
                trial = repository.add_trial(
                    study_id,
                    hash=f"{number:064x}",
                    genome={"number": number},
                    family=f"family {number % 12}",
                    origin="sampler",
                    draws={"width": number},
                    certificate=CERTIFICATE,
                    ledger=LEDGER,
                )
                run = repository.add_run(
                    trial.id, 0, recipe={"lr": 1e-3}, identities={"mixer:attention": "1"}
                )
                lease = repository.lease_run(run.id, "bench", seconds=600)
                assert lease is not None
                leased.append((run.id, lease))
        began = time.perf_counter()
        with repository.batch() if together else contextlib.nullcontext():
            for run_id, lease in leased:
                score, speed = random.random(), 1000 * random.random() + 1
                repository.record_started(run_id, lease, {"device": "bench"})
                repository.record_curve(run_id, lease, curve)
                repository.record_evaluation(
                    run_id,
                    lease,
                    "own",
                    tokens=256,
                    metrics={"accuracy": score},
                    score=score,
                    rows=512,
                    ledger=LEDGER,
                )
                repository.record_profile(
                    run_id, lease, "own", [timing("decode", speed), timing("prefill", 9 * speed)]
                )
                repository.record_finished(run_id, lease, "done")
        spent += time.perf_counter() - began
    return spent


def timed(what: str, repeats: int, work: Callable[[], object]) -> None:
    work()
    gc.collect()
    seconds = []
    for _ in range(repeats):
        began = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - began)
    print(
        f"{what}: median {1e3 * statistics.median(seconds):.0f} ms, slowest {1e3 * max(seconds):.0f} ms of {repeats}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--db", help="a PostgreSQL URL or an SQLite path, empty")
    parser.add_argument("--trials", type=int, default=5000)
    parser.add_argument("--values", type=int, default=30)
    parser.add_argument("--repeats", type=int, default=15)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        url = given.db or str(Path(folder) / "large.db")
        with Repository.open(url) as repository:
            study = repository.create_study("large", SPEC).id
            few = min(100, given.trials // 3)
            # The first statements of each kind are put together here.
            fill(repository, study, 0, 1, given.values, 1)
            streamed = fill(repository, study, 1, 1 + few, given.values, 1, together=False)
            alone = fill(repository, study, 1 + few, 1 + 2 * few, given.values, 1)
            many = fill(repository, study, 1 + 2 * few, given.trials, given.values, 100)
            kind = "SQLite" if repository.database.is_sqlite else "PostgreSQL"
        # Beside the curve's: a score, two medians with quartiles.
        stored = given.values + 7
        print(f"{kind}: {given.trials} trials of {given.values} curve points")
        for what, runs, seconds in (
            ("one record", few, streamed),
            ("one run", few, alone),
            ("100 runs", given.trials - 1 - 2 * few, many),
        ):
            rate, each = runs * stored / seconds, 1e3 * seconds / runs
            print(f"written {what} a transaction: {rate:.0f} values/s ({each:.1f} ms a run)")
        objectives = Objectives(OBJECTIVES)
        with Study.open(url) as opened:
            rows = opened.repository
            timed("front, queried", given.repeats, lambda: front_candidates(rows, study, objectives))
            timed("Study.front(), a data frame", given.repeats, opened.front)
            timed(
                "every candidate, objectives",
                given.repeats,
                lambda: read(rows.candidates(study, details=False), objectives),
            )
            timed(
                "every candidate, all details",
                given.repeats,
                lambda: read(rows.candidates(study), objectives),
            )


if __name__ == "__main__":
    main()
