"""Studies and executors for search tests: a small space of its own, and workers whose results are written down."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from crossbreed.core.host import Host, PluginFile, Registry
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
from crossbreed.core.search.candidates import Candidate, Objectives, read
from crossbreed.core.search.driver import Driver, DriverOptions, End
from crossbreed.core.search.executors.base import Deliver, Executor, Lost, Report, Spool, Taken
from crossbreed.core.search.study_file import StudyFile
from crossbreed.core.search.study_setting import StudySetting, resolve
from crossbreed.storage import Repository
from crossbreed.storage.rows import CandidateRow

TOY = '''
"""A space of plain Transformers that differ in the width of their channel mixer."""

from pydantic import BaseModel, ConfigDict
from crossbreed import Architecture, SearchSpace, SearchSpaceDescriptor, hookimpl


class ToyConfig(BaseModel):
    model_config = ConfigDict(extra="forbid")
    widths: tuple[int, ...] = (8, 16, 24, 32, 40, 48)
    starts: tuple[int, ...] = (8, 16)
    odd_heads: int = 1


class Toy(SearchSpace):
    def propose(self, draw, setting):
        width = draw.choose("width", self.config.widths)
        heads = self.config.odd_heads if width == 24 else 1
        sublayers = [
            {"mixer": "attention", "params": {"heads": heads, "head_size": 16}},
            {"mixer": "swiglu", "params": {"hidden": width}},
        ]
        block = {"sublayers": sublayers}
        return Architecture.model_validate(
            {"vocab": setting.vocab, "d_model": setting.d_model, "stages": [{"blocks": [block]}]}
        )

    def starting_points(self, setting):
        return [{"width": width} for width in self.config.starts]

    def family(self, architecture):
        return f"width {architecture.sublayers()[1][1].params['hidden']}"


@hookimpl
def register_search_spaces():
    return [SearchSpaceDescriptor("toy", Toy, ToyConfig, "Transformers of several widths")]
'''


def plugin(name: str, text: str) -> PluginFile:
    return PluginFile(name, hashlib.sha256(text.encode()).hexdigest(), text)


def toy_registry(*more: PluginFile) -> Registry:
    return Host.load([plugin("toy.py", TOY), *more], third_party=False)


def study_data(**changes: Any) -> dict[str, Any]:
    """A tiny study over the toy space; the cap is so wide that every width fits without being moved."""
    block = {
        "sublayers": [
            {"mixer": "attention", "params": {"heads": 1, "head_size": 16}},
            {"mixer": "swiglu", "params": {"hidden": 32}},
        ]
    }
    data: dict[str, Any] = {
        "schema": 1,
        "name": "tiny",
        "task": {"name": "recall", "params": {"pairs": 2, "length": 16, "vocab": 24, "eval_items": 64}},
        "space": {"name": "toy"},
        "budget": {
            "reference": {"d_model": 16, "stages": [{"blocks": [block]}]},
            "cap": {"memory_bytes": "90%"},
        },
        "train": {"tokens": 2048, "batch": 8},
        "search": {"trials": 4, "seeds": 1, "sampler": "random", "threads": 1},
    }
    for key, value in changes.items():
        data[key] = {**data[key], **value} if isinstance(value, dict) and key in data else value
    return data


def setting(registry: Registry, **changes: Any) -> StudySetting:
    return resolve(StudyFile.read(study_data(**changes)), registry)


Result = Callable[[Job], tuple[float, float]]


def width_of(job: Job) -> int:
    return int(job.architecture["stages"][0]["blocks"][0]["sublayers"][1]["params"]["hidden"])


def by_width(job: Job) -> tuple[float, float]:
    """Wider is better in score and slower; seeds differ a little, so that intervals are not points."""
    width = width_of(job)
    return 0.01 * width + 0.001 * job.seed, 4000.0 / width + job.seed


class Scripted:
    """An executor whose jobs end at once with results from a function. Everything else is the real thing.

    ``slots`` jobs are in flight before any is answered, so that order and exclusiveness can be checked: ``log`` holds the
    jobs, ``together`` the jobs in flight at each submission.
    """

    def __init__(self, result: Result = by_width, slots: int = 2) -> None:
        self.slots, self.result = slots, result
        self.waiting: list[Job] = []
        self.log: list[Job] = []
        self.together: list[list[Job]] = []
        self.fail: Callable[[Job], Report | None] = lambda job: None
        self.started = self.stopped = self.ended = False
        self.before: Callable[[Job], None] = lambda job: None
        self.hangs: Callable[[Job], bool] = lambda job: False
        self.hanging: list[Job] = []
        self.killed: list[str] = []
        self.refused: list[tuple[str, str]] = []

    @property
    def running(self) -> int:
        return len(self.waiting) + len(self.hanging)

    def start(self) -> None:
        self.started = True

    def submit(self, job: Job) -> None:
        assert self.started
        assert self.running < self.slots
        self.waiting.append(job)
        self.log.append(job)
        self.together.append(list(self.waiting))

    def work(self, deliver: Deliver, timeout: float) -> None:
        if not self.waiting:
            time.sleep(0.02)
            return
        job = self.waiting.pop(0)
        self.before(job)
        if self.hangs(job):
            self.hanging.append(job)
            deliver(job.lease, Taken())
            deliver(job.lease, Started({"device": "test"}))
            return
        if self.stopped:
            deliver(job.lease, Finished("preempted", "asked to stop"))
            return
        failed = self.fail(job)
        if isinstance(failed, Lost):
            deliver(job.lease, failed)
            return
        for record in records_of(job, self.result):
            if failed is not None and not isinstance(record, Started | Curve):
                deliver(job.lease, failed)
                return
            deliver(job.lease, record)

    def kill(self, lease: str) -> None:
        self.killed.append(lease)
        self.hanging = [job for job in self.hanging if job.lease != lease]

    def refuse(self, lease: str, why: str) -> None:
        self.refused.append((lease, why))

    def stop(self) -> None:
        self.stopped = True

    def resume(self) -> None:
        self.stopped = False

    def shutdown(self) -> None:
        self.ended = True


def records_of(job: Job, result: Result) -> list[Record]:
    """What a healthy worker reports for a job."""
    score, speed = result(job)
    found: list[Record] = [Started({"device": "test"})]
    if "train" in job.phases:
        for rung, tokens in enumerate(job.rungs):
            point = CurvePoint(tokens // 128, tokens, 1.0 / (rung + 1), 1e-3, 1.0)
            found.append(Curve((point,)))
            found.append(RungDone(rung, tokens, {"accuracy": score}, f"rung-{rung}.ckpt", "0" * 64, 100))
    if "evaluate" in job.phases:
        for point in (*job.judged, "own"):
            found.append(Evaluated(point, 2048, {"accuracy": score}, score, {}, 64, 0, None, job.certificate))
    for name in job.points if "profile" in job.phases else ():
        found.append(
            Profiled(
                name,
                {},
                tuple(
                    Measurement(
                        metric=f"{phase}_tokens_per_s",
                        unit="tokens/s",
                        phase=phase,
                        batch=1,
                        tokens=16,
                        dtype="float32",
                        device="test",
                        policy="reference",
                        compiled=False,
                        median=speed,
                        q1=0.9 * speed,
                        q3=1.1 * speed,
                        repeats=7,
                    )
                    for phase in ("prefill", "decode")
                ),
            )
        )
    return [*found, Finished("done")]


def off_budget(record: Record) -> Record:
    """The same evaluation with a realised certificate that misses its first quantity."""
    assert isinstance(record, Evaluated)
    certificate = dict(record.certificate or {})
    first, *rest = certificate["quantities"]
    certificate["quantities"] = [
        {**first, "residual": 1.5, "value": 2.5 * first["target"], "ok": False},
        *rest,
    ]
    certificate |= {
        "feasible": False,
        "rates": "realised",
        "reason": "memory_bytes is +150.00% from its target",
    }
    return replace(record, certificate=certificate)


def drive(
    database: Path | str, study: StudySetting, executor: Executor, options: DriverOptions | None = None
) -> tuple[End, Repository, int]:
    """One session of a driver over a database; the repository stays open for looking."""
    repository = Repository.open(str(database))
    name = study.file.name
    row = repository.find_study(name) or repository.create_study(name, study.file.as_data())

    def start(spool: Spool) -> Executor:
        return executor

    driver = Driver(repository, row.id, study, start, options or DriverOptions())
    return driver.run(), repository, row.id


def by_number(repository: Repository, study_id: int) -> dict[int, CandidateRow]:
    return {row.number: row for row in repository.candidates(study_id)}


def candidates(repository: Repository, study_id: int) -> list[Candidate]:
    objectives = Objectives({"score": "max", "decode_tokens_per_s": "max"})
    return read(repository.candidates(study_id), objectives)
