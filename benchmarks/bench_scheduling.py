"""What a search costs beside its trials: seconds of the driver a trial, and how busy it keeps its workers.

    python -m benchmarks.bench_scheduling [--trials 60] [--repeats 5]
    python -m benchmarks.bench_scheduling --only busy --busy-trials 20 --timing 0.02

The driver, its proposals and matching, and an SQLite file are the real ones; trials are replayed (``benchmarks/replay/jobs``).
First they take no time, in the driver's own process: its seconds are the overhead. A trial is a run that was trained, the
front's fresh seeds among them; choosing what to try and matching it to the budget happens once a candidate, and is shown apart.
Then they take a second each on two real Ray workers: a worker is inside a trial from the job's first record to its last, and
the whole time is two workers' from the first job's begin to the last one's end. --timing gives each timing a length; by rule
the other worker stands still meanwhile, so that long ones leave no room for the aim.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.replay import jobs
from crossbreed.core.host import Host
from crossbreed.core.lab.job import Job
from crossbreed.core.search.driver import Driver, DriverOptions
from crossbreed.core.search.executors.base import Deliver, Executor, Spool
from crossbreed.core.search.executors.ray import RayExecutor
from crossbreed.core.search.executors.resources import Resources
from crossbreed.core.search.study_file import StudyFile
from crossbreed.core.search.study_setting import resolve
from crossbreed.storage import Repository

WORKERS = 2
TRIAL_S = 1.0


def spec(trials: int) -> dict[str, Any]:
    """A study of layer hybrids on a budget that most proposals have to be matched to."""
    attention = {"mixer": "attention", "params": {"heads": 4, "head_size": 16}}
    swiglu = {"mixer": "swiglu", "params": {"hidden": 128}}
    stage = {"blocks": [{"sublayers": [attention, swiglu]}] * 4}
    return {
        "schema": 1,
        "name": "replayed",
        "task": {"name": "recall", "params": {"vocab": 24, "pairs": 2, "length": 16, "eval_items": 64}},
        "budget": {
            "reference": {"d_model": 64, "stages": [stage]},
            "match": {"non_embedding_parameters": "3%"},
        },
        "train": {"tokens": 2048, "batch": 8},
        "search": {"trials": trials, "workers": WORKERS},
    }


class AtOnce:
    """An executor whose jobs end at once."""

    slots = WORKERS

    def __init__(self) -> None:
        self._jobs: list[Job] = []

    @property
    def running(self) -> int:
        return len(self._jobs)

    def start(self) -> None: ...

    def submit(self, job: Job) -> None:
        self._jobs.append(job)

    def work(self, deliver: Deliver, timeout: float) -> None:
        job = self._jobs.pop(0)
        for record in jobs.records_of(job):
            deliver(job.lease, record)

    def kill(self, lease: str) -> None: ...

    def refuse(self, lease: str, why: str) -> None: ...

    def stop(self) -> None: ...

    def resume(self) -> None: ...

    def shutdown(self) -> None: ...


@dataclass(frozen=True)
class Cost:
    """A whole search: seconds of the driver, by the clock and of the processor, and those of them spent on proposals; and
    what it came to."""

    wall: float
    cpu: float
    proposing: float
    proposing_cpu: float
    candidates: int
    runs: int

    def each(self) -> dict[str, float]:
        """Milliseconds by what they are of."""
        return {
            "a trial, without proposals": 1e3 * (self.wall - self.proposing) / self.runs,
            "a candidate's proposal and matching": 1e3 * self.proposing / self.candidates,
            "a trial, everything": 1e3 * self.wall / self.runs,
            "a trial, without proposals, of the processor": 1e3 * (self.cpu - self.proposing_cpu) / self.runs,
            "a trial, everything, of the processor": 1e3 * self.cpu / self.runs,
        }


def searched(folder: Path, trials: int, start: Callable[[Spool], Executor]) -> Cost:
    """Search one whole study."""
    setting = resolve(StudyFile.read(spec(trials)), Host.load(third_party=False))
    proposing = proposing_cpu = 0.0
    with Repository.open(str(folder / "replayed.db")) as repository:
        study = repository.create_study("replayed", setting.file.as_data()).id
        driver = Driver(repository, study, setting, start, DriverOptions())
        add_next = driver.breeder.add_next

        def timed(*arguments: Any) -> None:
            nonlocal proposing, proposing_cpu
            began, began_cpu = time.perf_counter(), time.process_time()
            add_next(*arguments)
            proposing += time.perf_counter() - began
            proposing_cpu += time.process_time() - began_cpu

        driver.breeder.add_next = timed  # type: ignore[method-assign]
        wall, cpu = time.perf_counter(), time.process_time()
        end = driver.run()
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        rows = repository.candidates(study)
    if end != "done":
        raise RuntimeError(f"the search ended as {end!r}")
    runs = sum(s.state == "done" for row in rows for s in row.seeds)
    return Cost(wall, cpu, proposing, proposing_cpu, len(rows), runs)


def overhead(trials: int, repeats: int) -> None:
    """Print the driver's milliseconds a trial."""
    found = []
    # The first one imports what the others have.
    for _ in range(1 + repeats):
        with tempfile.TemporaryDirectory() as folder:
            found.append(searched(Path(folder), trials, lambda spool: AtOnce()))
    runs = ", ".join(f"{cost.runs} of {cost.candidates}" for cost in found[1:])
    print(f"trials that take no time, of how many candidates: {runs} (aim: under 50 ms a trial)")
    for what in found[0].each():
        each = [cost.each()[what] for cost in found[1:]]
        print(f"  ms {what}: median {statistics.median(each):.1f} of {_shown(each)}")


def busy(trials: int, repeats: int, timing_s: float) -> None:
    """Print the share of two Ray workers' time that is spent inside trials of a second."""
    os.environ |= {
        jobs.TRAIN_S: str(TRIAL_S),
        jobs.TIMING_S: str(timing_s),
        "PYTHONPATH": os.pathsep.join(p for p in sys.path if p),
    }
    resources = Resources(runtime_env={"worker_process_setup_hook": "benchmarks.replay.jobs.install"})
    shares, trainings = [], []
    for _ in range(repeats):
        with tempfile.TemporaryDirectory() as folder:
            os.environ[jobs.TIMES] = str(Path(folder) / "times")
            searched(Path(folder), trials, lambda spool: RayExecutor(WORKERS, spool, resources=resources))
            lines = [line.split() for line in Path(os.environ[jobs.TIMES]).read_text().splitlines()]
        spans = [(float(began), float(ended)) for _, _, began, ended in lines]
        whole = WORKERS * (max(e for _, e in spans) - min(b for b, _ in spans))
        shares.append(sum(ended - began for began, ended in spans) / whole)
        trainings.append(sum("train" in phases for _, phases, _, _ in lines))
    counts = ", ".join(map(str, trainings))
    print(f"{counts} trials of {TRIAL_S:g} s on {WORKERS} Ray workers, timings of {timing_s:g} s (aim: 90%)")
    each = [100 * share for share in shares]
    print(f"  % of worker time inside trials: median {statistics.median(each):.1f} of {_shown(each)}")


def _shown(values: list[float]) -> str:
    return ", ".join(f"{value:.1f}" for value in values)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", choices=("overhead", "busy"))
    parser.add_argument("--trials", type=int, default=60, help="candidates of the first part")
    parser.add_argument("--busy-trials", type=int, default=40, help="candidates of the second part")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--timing", type=float, default=0.0, help="seconds that one timing takes")
    given = parser.parse_args()
    print(f"load of this machine: {os.getloadavg()[0]:.1f}")
    if given.only != "busy":
        overhead(given.trials, given.repeats)
    if given.only != "overhead":
        busy(given.busy_trials, given.repeats, given.timing)


if __name__ == "__main__":
    main()
