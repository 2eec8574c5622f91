"""Jobs that are replayed: the records of a healthy trial, written down instead of computed, with a duration of their own.

What is left of a search when its trials cost nothing, or a known time, is what the search itself costs.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from crossbreed.core.lab import trial
from crossbreed.core.lab.job import Job
from crossbreed.core.lab.records import (
    Curve,
    CurvePoint,
    Evaluated,
    Finished,
    Measurement,
    Profiled,
    Record,
    RungDone,
    Started,
)

CURVE_POINTS = 30
TRAIN_S, TIMING_S, TIMES = "REPLAY_TRAIN_S", "REPLAY_TIMING_S", "REPLAY_TIMES"
"""Environment of a worker that replays: seconds that a job trains, that one timing takes, and the file it notes its times in."""


def records_of(job: Job) -> Iterator[Record]:
    """What a healthy worker reports, the numbers drawn by the architecture."""
    draw = hashlib.sha256(str(sorted(job.architecture.items())).encode()).digest()
    score, speed = draw[0] / 255 + 0.001 * job.seed, 1000.0 + 10 * draw[1] + job.seed
    yield Started({"device": "replayed"})
    if "train" in job.phases:
        for rung, tokens in enumerate(job.rungs):
            steps = range(1, CURVE_POINTS + 1)
            yield Curve(tuple(CurvePoint(i, tokens * i // CURVE_POINTS, 3.0 / i, 1e-3, 1.0) for i in steps))
            yield RungDone(rung, tokens, {"accuracy": score}, f"rung-{rung}.ckpt", "0" * 64, 100)
    if "evaluate" in job.phases:
        for point in (*job.judged, "own"):
            yield Evaluated(point, 2048, {"accuracy": score}, score, {}, 64, 0, None, job.certificate)
    for point in job.points if "profile" in job.phases else ():
        yield Profiled(point, {}, tuple(_measured(phase, speed) for phase in ("prefill", "decode")))
    yield Finished("done")


def run(job: Job, emit: Callable[[Record], None], stop: Callable[[], bool]) -> None:
    """In the place of ``trial.run``: the records, after as long as the environment says."""
    began = time.time()
    for record in records_of(job):
        if isinstance(record, Curve):
            time.sleep(float(os.environ[TRAIN_S]) / len(job.rungs))
        elif isinstance(record, Profiled):
            time.sleep(float(os.environ[TIMING_S]))
        if isinstance(record, Finished):
            with Path(os.environ[TIMES]).open("a") as file:
                file.write(f"{job.key} {'+'.join(job.phases)} {began} {time.time()}\n")
        emit(record)


def install() -> None:
    """Make every trial of this process a replayed one: Ray calls it in each worker."""
    trial.run = run


def _measured(phase: str, median: float) -> Measurement:
    return Measurement(
        metric=f"{phase}_tokens_per_s",
        unit="tokens/s",
        phase=phase,
        batch=1,
        tokens=16,
        dtype="float32",
        device="replayed",
        policy="reference",
        compiled=False,
        median=median,
        q1=0.9 * median,
        q3=1.1 * median,
        repeats=7,
    )
