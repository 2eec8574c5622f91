"""One trial on one worker: build, check, profile, train by rungs, evaluate; everything is reported as records."""

from __future__ import annotations

import json
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

import torch

from crossbreed.core import genome
from crossbreed.core.budget.budget import Budget
from crossbreed.core.budget.certificate import Certificate
from crossbreed.core.budget.matcher import certify
from crossbreed.core.contracts.cost import CostModel
from crossbreed.core.contracts.parts import Kind
from crossbreed.core.contracts.task import Task
from crossbreed.core.errors import (
    ArtefactsLost,
    ConfigError,
    CrossbreedError,
    DiskFull,
    Diverged,
    NotFinite,
    OutOfMemory,
)
from crossbreed.core.host import Host
from crossbreed.core.lab import analytics, checkpoint, fresh, lease, memory
from crossbreed.core.lab.environment import describe, pick_device, precision
from crossbreed.core.lab.evaluate import TOLERANCE, Evaluation, evaluate
from crossbreed.core.lab.job import Job
from crossbreed.core.lab.kept import Kept, name_of
from crossbreed.core.lab.operating_points import FORCED, OWN, OperatingPoint
from crossbreed.core.lab.probe import probe
from crossbreed.core.lab.profile import profile
from crossbreed.core.lab.recipe import Recipe
from crossbreed.core.lab.records import (
    Analysed,
    Evaluated,
    Finished,
    Profiled,
    Rates,
    Record,
    Started,
    State,
    Waiting,
)
from crossbreed.core.lab.train import Trainer
from crossbreed.core.lab.verify import verify
from crossbreed.core.ledger import Ledger, Shape
from crossbreed.core.model.language_model import LanguageModel
from crossbreed.core.model.legality import backend_within, check_training, mode_readers

__all__ = ["Job", "run"]

Emit = Callable[[Record], None]
Stop = Callable[[], bool]

ALLOCATOR_SENTENCE = "can't allocate memory"
"""How torch words a failed allocation on the host, which it raises as a plain RuntimeError."""


def run(job: Job, emit: Emit, stop: Stop) -> None:
    """Run a job; the last record is always ``Finished``.

    Faults of plugins and of the candidate end as states, never as exceptions. ``stop`` is asked before each step and
    between phases. A KeyboardInterrupt is reported as ``preempted`` and raised again, so that an executor in the same
    process sees it too. What ``emit`` raises is not caught.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(job.threads)

    def deliver(record: Record) -> None:
        try:
            emit(record)
        except Exception as error:
            raise _Undelivered(error) from error

    try:
        emit(_finish(job, deliver, stop))
    except _Undelivered as failed:
        raise failed.error from failed
    except KeyboardInterrupt:
        emit(Finished("preempted", f"run {job.key} was interrupted; its last checkpoint is kept"))
        raise
    finally:
        torch.set_num_threads(threads)


def trainer_of(job: Job) -> Trainer:
    """A job's trainer before its first step, as the trial makes it."""
    return _Trial(job, lambda record: None, lambda: False).trainer


def _finish(job: Job, emit: Emit, stop: Stop) -> Finished:
    try:
        return _Trial(job, emit, stop).run()
    except (_Preempted, fresh.Stopped) as error:
        return Finished("preempted", str(error))
    except Diverged as error:
        return Finished("diverged", str(error))
    except (MemoryError, OutOfMemory, torch.OutOfMemoryError) as error:
        return Finished("out_of_memory", _sentence(error), traceback.format_exc())
    except NotFinite as error:
        return Finished("failed", f"non_finite: {error}", traceback.format_exc())
    except DiskFull as error:
        return Finished("failed", f"disk: {error}", traceback.format_exc())
    except ArtefactsLost as error:
        return Finished("failed", f"unreachable: {error}", traceback.format_exc())
    except CrossbreedError as error:
        return Finished("failed", str(error), traceback.format_exc())
    except Exception as error:
        state: State = "out_of_memory" if ALLOCATOR_SENTENCE in str(error) else "failed"
        return Finished(state, f"exception: {_sentence(error)}", traceback.format_exc())


def _sentence(error: BaseException) -> str:
    first = str(error).strip().splitlines()
    return f"{type(error).__name__}: {first[0] if first else 'no message'}"


def _plain(data: dict[str, Any]) -> dict[str, Any]:
    """``data`` as JSON gives it back, so that a record equals itself after the journey."""
    return dict(json.loads(json.dumps(data)))


class _Undelivered(BaseException):
    """``emit`` raised, which is no fault of the trial's: passed through it to whoever runs it."""

    def __init__(self, error: Exception) -> None:
        super().__init__(error)
        self.error = error


class _Preempted(Exception):
    """The executor asked the trial to stop; its checkpoint is written."""


class _Trial:
    """A built candidate with its task, and what this job has done with it so far."""

    def __init__(self, job: Job, emit: Emit, stop: Stop) -> None:
        self.job, self.emit, self.stop = job, emit, stop
        self.kept = Kept(job.artefacts)
        self.registry = registry = Host.load(job.plugins, trust=job.trust)
        self.architecture = registry.canonical(
            genome.parse(genome.Architecture, job.architecture, "architecture")
        )
        self.task: Task = self._part("task", job.task)
        self.cost_model: CostModel = self._part("cost", job.cost, registry)
        self.recipe = genome.parse(Recipe, job.recipe, "train")
        self.rungs = job.rung_tokens(self.recipe.rung_tokens())
        self.budget = None if job.budget is None else Budget.read(job.budget)
        if self.architecture.vocab != self.task.vocab:
            raise ConfigError(
                f"architecture.vocab is {self.architecture.vocab}, but task {job.task['name']!r} has {self.task.vocab} token ids; they must be equal"
            )
        if "train" in job.phases:
            check_training(self.architecture, registry)
        self._tasks: dict[str, Task] = {}
        self._check_texts()
        self.device = pick_device(job.device)
        # Before the candidate itself: a kernel that is wrong on this device is to be named, not trained with.
        self.probes = probe(
            self.architecture, registry, self.device, backend=job.backend, dtype=self.recipe.dtype
        )
        # Before this process takes memory of the device, and before time goes into a candidate that does not fit.
        begins = "train" in job.phases and not self.kept.begun()
        measured = job.memory and begins and self.device.type == "cuda"
        self.peak = memory.measured(job, stop) if measured else None
        self.backend = backend_within(self.architecture, registry, job.backend)
        self.model = LanguageModel(self.architecture, registry, seed=job.seed, backend=self.backend)
        self.model.to(self.device)
        verify(self.model, self._ledger(), job.certificate, job.key)
        owner = checkpoint.Header(
            architecture=genome.digest(self.architecture),
            recipe=self.recipe.model_dump(mode="json"),
            task={**job.task, "evaluation": self.task.evaluation_hash()},
            seed=job.seed,
            step=0,
            tokens=0,
            rung=0,
        )
        self.trainer = Trainer(self.model, self.task, self.recipe, owner, emit, captured=job.captured)
        self.profiled: set[OperatingPoint] = set()
        self.evaluation: tuple[int, Evaluation] | None = None
        self.off_budget = ""

    def run(self) -> Finished:
        self.kept.resume(self.trainer, self._reach())
        with precision(self.recipe.dtype, self.device):
            environment = describe(self.device, self.model)
        environment["probes"] = [asdict(found) for found in self.probes]
        environment["plugins"] = self.registry.identities(self.architecture)
        self.emit(Started(environment, self.trainer.step))
        if self.peak is not None:
            self.emit(memory.report(self.peak, self.trainer, self.job.backend))
        for i, phase in enumerate(self.job.phases):
            if self.stop():
                raise self._preempted()
            if phase == "profile":
                self._profile(training_ahead="train" in self.job.phases[i + 1 :])
            elif phase == "train":
                self._train()
            elif phase == "evaluate":
                self._evaluate()
            else:
                raise ConfigError(
                    f"unknown phase {phase!r} of run {self.job.key}; it must be 'profile', 'train' or 'evaluate'"
                )
        return Finished("off_budget", self.off_budget) if self.off_budget else Finished("done")

    def _part(self, kind: Kind, spec: dict[str, Any], *arguments: Any) -> Any:
        """The task or cost model that ``{name, params}`` names."""
        config = self.registry.config(kind, spec["name"], spec.get("params") or {})
        return self.registry.factory(kind, spec["name"])(config, *arguments)

    def _check_texts(self) -> None:
        """Refuse schedules, the genome's and the job's, that the task's texts are too short for."""
        self.cost_model.estimate(self.architecture, Shape(tokens=self.task.length))
        modes = mode_readers(self.architecture)
        for name in (*self.job.judged, *self.job.points):
            point = OperatingPoint.parse(name)
            task = self._task(point)
            point.check(modes, task.length)
            # A schedule of the genome's must fit the longer texts, too.
            self.cost_model.estimate(self.architecture, Shape(tokens=task.length))

    def _ledger(self, rates: Rates | None = None, architecture: genome.Architecture | None = None) -> Ledger:
        shape = Shape(tokens=self.task.length) if self.budget is None else self.budget.shape.as_shape()
        return self.cost_model.estimate(architecture or self.architecture, shape, rates=rates)

    def _reach(self) -> int:
        """Tokens at the end of this job's last rung, whole steps counted."""
        steps = self.recipe.steps(self.rungs[-1], self.task.length)
        return steps * self.recipe.batch * self.task.length

    def _train(self) -> None:
        if self.device.type == "cuda":
            # What earlier trials of this process left behind is no part of this one's peak.
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats(self.device)
        for rung, tokens in enumerate(self.rungs):
            target = self.recipe.steps(tokens, self.task.length)
            if target <= self.trainer.step and self.kept.has(rung):
                self.emit(self.kept.again(rung))
                continue
            if self.trainer.step > target:
                raise ConfigError(
                    f"checkpoint {name_of(rung)!r} of run {self.job.key} is missing, though training is at step {self.trainer.step} already"
                )
            if not self.trainer.advance(tokens, self.stop):
                self._keep_stopped(rung)
                raise self._preempted()
            metrics = self._evaluated().metrics | self._peak_memory()
            self.emit(self.kept.keep(self.trainer, rung, metrics))

    def _keep_stopped(self, rung: int) -> None:
        try:
            self.kept.keep_stopped(self.trainer, rung)
        except DiskFull as error:
            raise _Preempted(f"run {self.job.key} was asked to stop, and {error}") from error

    def _peak_memory(self) -> dict[str, float]:
        """Peak device memory of training and evaluation so far, bytes; nothing on a CPU."""
        if self.device.type != "cuda":
            return {}
        return {
            "training_peak_allocated_bytes": float(torch.cuda.max_memory_allocated(self.device)),
            "training_peak_reserved_bytes": float(torch.cuda.max_memory_reserved(self.device)),
        }

    def _evaluated(self) -> Evaluation:
        """The evaluation at the current step, made once."""
        if self.evaluation is None or self.evaluation[0] != self.trainer.step:
            self.evaluation = (self.trainer.step, self._at(OWN))
        return self.evaluation[1]

    def _at(self, point: OperatingPoint) -> Evaluation:
        seed, dtype = self.job.seed, self.recipe.dtype
        return evaluate(
            self._model(point), self._task(point), self._rows(point), point=point, seed=seed, dtype=dtype
        )

    def _task(self, point: OperatingPoint) -> Task:
        """The task as it is at a point, made once."""
        if point.length is None:
            return self.task
        if point.name not in self._tasks:
            self._tasks[point.name] = point.task(self.task)
        return self._tasks[point.name]

    def _rows(self, point: OperatingPoint) -> int:
        """Rows evaluated at once: of longer texts fewer, so that they take no more memory."""
        return max(1, self.recipe.eval_batch // (point.length or 1))

    def _model(self, point: OperatingPoint) -> LanguageModel:
        return point.model(self.model, self.registry, self.backend)

    def _evaluate(self) -> None:
        """Evaluate at the points asked for, then at own decisions, whose realised ledger must keep the budget.

        Own decisions come last: once they are stored, nothing of this phase is left to do.
        """
        if self.trainer.step == 0:
            raise ConfigError(f"run {self.job.key} has no checkpoint; phase 'evaluate' needs a trained model")
        for name in self.job.judged:
            point = OperatingPoint.parse(name)
            self._judge(point, self._at(point))
        certificate = self._judge(OWN, self._evaluated())
        if certificate is not None and not certificate.feasible:
            self.off_budget = f"at the realised rates: {certificate.reason}"

    def _judge(self, point: OperatingPoint, found: Evaluation) -> Certificate | None:
        """Report an evaluation with the ledger and the certificate of what was really run."""
        certificate, architecture = None, point.variant(self.architecture, self.registry)
        settings, ledger = None, None
        if point.length is not None:
            # Ledger and budget are of the training length.
            task = self._task(point)
            settings = {"length": task.length, "items": task.evaluation_hash()}
        else:
            ledger = _plain(self._ledger(found.rates, architecture).as_dict())
            if self.budget is not None:
                certificate = certify(architecture, self.budget, self.cost_model, rates=found.rates)
        self.emit(
            Evaluated(
                point=point.name,
                tokens=self.trainer.tokens,
                metrics=found.metrics,
                score=found.score,
                rates=found.rates,
                rows=found.rows,
                unscored_rows=found.unscored_rows,
                ledger=ledger,
                certificate=None if certificate is None else certificate.model_dump(mode="json"),
                settings=settings,
                tolerance=TOLERANCE[self.recipe.dtype],
                breakdown=found.breakdown,
            )
        )
        return certificate

    def _profile(self, training_ahead: bool) -> None:
        points = [p for p in self._points(training_ahead) if p not in self.profiled]
        with self._alone():
            for point in points:
                self.profiled.add(point)
                self.emit(self._timed(point))
                if point == OWN and self.trainer.step and self.job.analytics:
                    self._analyse(point)

    def _timed(self, point: OperatingPoint) -> Profiled:
        job = self.job
        return profile(
            self._model(point),
            self._task(point),
            point,
            backend=job.backend,
            seed=job.seed,
            dtype=self.recipe.dtype,
        )

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Hold the device against every other trial that times on this host, of whatever study; a wait is reported."""
        try:
            with lease.alone(
                self.device, self.job.key, waiting=lambda why: self.emit(Waiting(why)), stop=self.stop
            ):
                yield
        except lease.GivenUp as error:
            raise _Preempted(f"run {self.job.key} was {error}") from error

    def _analyse(self, point: OperatingPoint) -> None:
        """Look at a few rows: no more work than timing one point (see ``analytics.few_rows`` for the bounds)."""
        subject = analytics.Subject(
            self.model,
            self.task,
            analytics.few_rows(self.task),
            point=point,
            batch=self.recipe.eval_batch,
            seed=self.job.seed,
            dtype=self.recipe.dtype,
        )
        found = analytics.analyse(subject)
        if found.kinds:
            tokens, version = self.trainer.tokens, analytics.VERSION
            self.emit(Analysed(point.name, tokens, found.rows, version, _plain(found.kinds)))

    def _points(self, training_ahead: bool) -> tuple[OperatingPoint, ...]:
        if self.job.points:
            return tuple(OperatingPoint.parse(name) for name in self.job.points)
        if not self.model.sites():
            return (OWN,)
        untrained = self.trainer.step == 0
        return FORCED if training_ahead or untrained else (OWN,)

    def _preempted(self) -> _Preempted:
        return _Preempted(f"run {self.job.key} was asked to stop at step {self.trainer.step}")
