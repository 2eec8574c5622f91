"""One trial on one worker: build, check, profile, train by rungs, evaluate; everything is reported as records."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from typing import Any

import torch

from crossbreed.core.budget.certificate import Certificate
from crossbreed.core.errors import ConfigError, DiskFull
from crossbreed.core.lab import analytics, lease, memory, outcome, rivals, team
from crossbreed.core.lab.candidate import Candidate
from crossbreed.core.lab.environment import describe, device_name, pick_device, precision
from crossbreed.core.lab.evaluate import TOLERANCE, Evaluation, evaluate
from crossbreed.core.lab.job import Job
from crossbreed.core.lab.kept import Kept, name_of
from crossbreed.core.lab.operating_points import FORCED, OWN, OperatingPoint
from crossbreed.core.lab.outcome import Preempted
from crossbreed.core.lab.probe import probe
from crossbreed.core.lab.profile import profile
from crossbreed.core.lab.records import (
    Analysed,
    Evaluated,
    Finished,
    Profiled,
    Record,
    Started,
    Waiting,
)
from crossbreed.core.lab.speeds import Settled
from crossbreed.core.lab.train import Trainer
from crossbreed.core.lab.verify import verify
from crossbreed.core.model.language_model import LanguageModel
from crossbreed.core.model.legality import backend_within

__all__ = ["Job", "run"]

Emit = Callable[[Record], None]
Stop = Callable[[], bool]


def run(job: Job, emit: Emit, stop: Stop) -> None:
    """Run a job; the last record is always ``Finished``.

    Faults of plugins and of the candidate end as states, never as exceptions. ``stop`` is asked before each step and
    between phases. A KeyboardInterrupt is reported as ``preempted`` and raised again, so that an executor in the same
    process sees it too. What ``emit`` raises is not caught, nor is MemberLost: a run on several devices goes on from its last
    checkpoint where the process of one of them was killed, as where this one was.
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
    except team.MemberLost:
        raise
    except Exception as error:
        return outcome.of(error)


def _plain(data: dict[str, Any]) -> dict[str, Any]:
    """``data`` as JSON gives it back, so that a record equals itself after the journey."""
    return dict(json.loads(json.dumps(data)))


class _Undelivered(BaseException):
    """``emit`` raised, which is no fault of the trial's: passed through it to whoever runs it."""

    def __init__(self, error: Exception) -> None:
        super().__init__(error)
        self.error = error


class _Trial:
    """A built candidate with its task, and what this job has done with it so far."""

    def __init__(self, job: Job, emit: Emit, stop: Stop) -> None:
        self.job, self.emit, self.stop = job, emit, stop
        self.kept = Kept(job.artefacts)
        self.candidate = candidate = Candidate(job)
        self.registry, self.architecture = candidate.registry, candidate.architecture
        self.task, self.recipe = candidate.task, candidate.recipe
        self.device = pick_device(job.device)
        if "train" in job.phases:
            team.check(job, self.recipe.batch)
        self.begun = self.kept.furthest(candidate.reach())
        self.settled = self._settled({} if self.begun is None else self.begun[1].speeds)
        chosen = {one["sublayer"]: one["backend"] for one in self.settled.get(device_name(self.device), [])}
        # Before the model itself: a kernel that is wrong on this device is to be named, not trained with.
        self.probes = probe(
            self.architecture,
            self.registry,
            self.device,
            backend=job.backend,
            dtype=self.recipe.dtype,
            chosen=chosen,
        )
        # Before this process takes memory of the device, and before time goes into a candidate that does not fit.
        begins = "train" in job.phases and not self.kept.begun()
        measured = job.memory and begins and self.device.type == "cuda"
        self.peak = memory.measured(replace(job, speeds=self.settled), stop) if measured else None
        self.backend = backend_within(self.architecture, self.registry, job.backend)
        self.model = LanguageModel(
            self.architecture, self.registry, seed=job.seed, backend=self.backend, chosen=chosen
        )
        self.model.to(self.device)
        verify(self.model, candidate.ledger(self.architecture), job.certificate, job.key)
        owner = replace(candidate.header(), speeds=self.settled)
        self.trainer = Trainer(self.model, self.task, self.recipe, owner, emit, captured=job.captured)
        self.profiled: set[OperatingPoint] = set()
        self.evaluation: tuple[int, Evaluation] | None = None
        self.off_budget = ""

    def run(self) -> Finished:
        if self.begun is not None:
            self.trainer.load(self.kept.folder, self.begun[0])
        with precision(self.recipe.dtype, self.device):
            environment = describe(self.device, self.model) | {"devices": self.job.devices}
        environment["probes"] = [asdict(found) for found in self.probes]
        environment["speeds"] = self.settled.get(device_name(self.device))
        environment["plugins"] = self.registry.identities(self.architecture)
        self.emit(Started(environment, self.trainer.step))
        if self.peak is not None:
            self.emit(memory.report(self.peak, self.trainer, self.job))
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

    def _settled(self, begun: Settled) -> Settled:
        """What its mixers are built with where their speeds decide: as it began on such a device, as its candidate's other runs
        were, or else as is measured."""
        known, name = {**self.job.speeds, **begun}, device_name(self.device)
        if name in known or not rivals.contested(self.job, self.device):
            return known
        found = rivals.choose(
            self.candidate,
            self.device,
            waiting=lambda why: self.emit(Waiting(why)),
            alone=self._alone,
            stop=self.stop,
        )
        return {**known, name: [asdict(speed) for speed in found]}

    def _train(self) -> None:
        if self.device.type == "cuda":
            # What earlier trials of this process left behind is no part of this one's peak.
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats(self.device)
        job, begun = replace(self.job, speeds=self.settled), self.begun and self.begun[0]
        with team.training(job, self.trainer, begun, self.stop) as advance:
            self._climb(advance)

    def _climb(self, advance: team.Advance) -> None:
        """Train from rung to rung."""
        for rung, tokens in enumerate(self.candidate.rungs):
            target = self.candidate.steps(tokens)
            if target <= self.trainer.step and self.kept.has(rung):
                self.emit(self.kept.again(rung))
                continue
            if self.trainer.step > target:
                raise ConfigError(
                    f"checkpoint {name_of(rung)!r} of run {self.job.key} is missing, though training is at step {self.trainer.step} already"
                )
            if not advance(tokens, self.stop):
                self._keep_stopped(rung)
                raise self._preempted()
            metrics = self._evaluated().metrics | self._peak_memory()
            self.emit(self.kept.keep(self.trainer, rung, metrics))

    def _keep_stopped(self, rung: int) -> None:
        try:
            self.kept.keep_stopped(self.trainer, rung)
        except DiskFull as error:
            raise Preempted(f"run {self.job.key} was asked to stop, and {error}") from error

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
        return evaluate(
            self._model(point),
            self.candidate.task_at(point),
            self.candidate.rows_at(point),
            point=point,
            seed=self.job.seed,
            dtype=self.recipe.dtype,
        )

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
            task = self.candidate.task_at(point)
            settings = {"length": task.length, "items": task.evaluation_hash()}
        else:
            ledger = _plain(self.candidate.ledger(architecture, found.rates).as_dict())
            certificate = self.candidate.certificate(architecture, found.rates)
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
            self.candidate.task_at(point),
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
            raise Preempted(f"run {self.job.key} was {error}") from error

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

    def _preempted(self) -> Preempted:
        return Preempted(f"run {self.job.key} was asked to stop at step {self.trainer.step}")
