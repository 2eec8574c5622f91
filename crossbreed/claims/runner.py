"""Makes the runs that a paper's claims need, most decidable first, and stops where each is answered or needs too many."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from crossbreed import __version__
from crossbreed.claims.claim import Paper
from crossbreed.claims.plan import Planner, Unit, describe
from crossbreed.claims.record import Declared, Record
from crossbreed.claims.run import Order, make
from crossbreed.claims.timing import timed
from crossbreed.claims.verdicts import Answer, answers
from crossbreed.core.errors import ConfigError
from crossbreed.core.host import Registry
from crossbreed.core.search.interrupts import orderly


@dataclass(frozen=True)
class Progress:
    """After each run: how many of the runs known to be needed are there, and the last one."""

    made: int
    known: int
    run: dict[str, Any]


@dataclass
class Runner:
    """``most``: seeds up to which an undecided claim is continued. ``minutes``: nothing more is begun after so many."""

    paper: Paper
    record: Record
    registry: Registry
    seeds: int
    most: int
    device: str = "cpu"
    workers: int = 1
    minutes: float | None = None
    on_run: Callable[[Progress], None] = lambda progress: None

    def __post_init__(self) -> None:
        self._stopping = False
        self._made = 0
        self._began = time.monotonic()

    def run(self) -> str:
        """``done``, ``time`` (the limit was reached) or ``interrupted``; the record is written after every run.

        Raises ConfigError where a claim was declared otherwise when the record was begun.
        """
        changed = self.record.changed(self.paper)
        if changed:
            raise ConfigError(
                f"claim {changed[0]} of {self.paper.name} was declared otherwise when record {str(self.record.path)!r} was "
                "begun: directions and margins must be older than the runs that they judge. Give another --record."
            )
        declared = declared_in(Path(self.paper.file))
        for claim in self.paper.claims:
            self.record.declare(claim, declared)
        self.record.sessions.append(
            {
                "began": datetime.now(UTC).isoformat(timespec="seconds"),
                "version": __version__,
                "commit": declared.commit,
                "device": self.device,
                "workers": self.workers,
            }
        )
        with orderly(self._stop, lambda: self._stopping):
            self._take_times()
            for seeds in self._rounds():
                for experiment in self.paper.experiments[self.record.scale]:
                    if experiment.name in seeds:
                        planner = Planner(experiment, self.registry, self.record)
                        while (units := planner.units(seeds[experiment.name])) and not self._over():
                            self._work(units)
        self._close()
        if self._stopping:
            return "interrupted"
        return "time" if self._over() else "done"

    def answers(self) -> list[Answer]:
        return answers(self.paper, self.record, self.registry)

    def _rounds(self) -> Iterator[dict[str, int]]:
        """Seeds by experiment: first the asked ones for all; then once more for what is undecided and within reach."""
        names = [e.name for e in self.paper.experiments[self.record.scale]]
        yield dict.fromkeys(names, self.seeds)
        if self.most > self.seeds and not self._over():
            more: dict[str, int] = {}
            for answer in self.answers():
                needs = answer.needs
                if answer.verdict == "undecided" and needs is not None and needs <= self.most:
                    for name in answer.claim.experiments():
                        more[name] = max(more.get(name, 0), needs)
            yield more

    def _take_times(self) -> None:
        """Times that speed claims read, at scale gpu; those that are there are not taken again."""
        for timing in self.paper.timings if self.record.scale == "gpu" else ():
            if timing.name not in self.record.timings and not self._over():
                self.record.timings[timing.name] = timed(timing, self.registry, self.device)
                self._close()

    def _work(self, units: Sequence[Unit]) -> None:
        orders = [order_of(unit, self.device) for unit in units]
        known = self._made + len(orders)
        for run in _results(orders, self.workers, self._over):
            self.record.runs.append(run)
            self._made += 1
            self._close()
            self.on_run(Progress(self._made, known, run))

    def _close(self) -> None:
        self.record.sessions[-1]["seconds"] = round(time.monotonic() - self._began, 1)
        self.record.save()

    def _stop(self) -> None:
        self._stopping = True

    def _over(self) -> bool:
        spent = time.monotonic() - self._began
        return self._stopping or (self.minutes is not None and spent > 60 * self.minutes)


def order_of(unit: Unit, device: str) -> Order:
    """A unit as plain data for a worker."""
    experiment = unit.experiment
    return Order(
        head=describe(unit),
        points=dict(unit.arm.points),
        architecture=dict(unit.matched["genome"]),
        certificate=dict(unit.matched["certificate"]),
        budget=unit.budget.model_dump(mode="json"),
        task=dict(experiment.task),
        recipe=dict(experiment.recipe),
        device=device,
    )


def declared_in(file: Path) -> Declared:
    """The commit that last touched a declaring file, and when that was written; no commit where the file has changes that are in
    none, or git knows nothing of it."""

    def git(*words: str) -> str:
        done = subprocess.run(
            ["git", "-C", str(file.parent), *words], capture_output=True, text=True, check=True
        )
        return done.stdout.strip()

    changed = datetime.fromtimestamp(file.stat().st_mtime, UTC).isoformat(timespec="seconds")
    try:
        if git("status", "--porcelain", "--", file.name):
            return Declared(None, None, changed)
        # The author's date and the blob stay as they are where the commit is moved onto another.
        commit, _, written = git("log", "-1", "--format=%H %aI", "--", file.name).partition(" ")
        return Declared(commit, git("rev-parse", f"HEAD:./{file.name}"), written)
    except (OSError, subprocess.CalledProcessError):
        return Declared(None, None, changed)


def _results(orders: Sequence[Order], workers: int, over: Callable[[], bool]) -> Iterator[dict[str, Any]]:
    """Results as they come. Once ``over`` says so nothing more is begun, and what runs is finished."""
    if workers == 1:
        for order in orders:
            if over():
                return
            yield make(order)
        return
    context = multiprocessing.get_context("spawn")
    waiting = list(reversed(orders))
    with ProcessPoolExecutor(workers, mp_context=context, initializer=_quiet) as pool:
        running: set[Future[dict[str, Any]]] = set()
        while running or (waiting and not over()):
            while waiting and len(running) < workers and not over():
                running.add(pool.submit(make, waiting.pop()))
            done, running = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                yield future.result()


def _quiet() -> None:
    """A worker leaves Ctrl-C to the process that gave it work, and uses one thread."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.environ["OMP_NUM_THREADS"] = "1"
