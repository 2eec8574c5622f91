"""What a job asks for, read and checked with the plugins it names: a model and its data, before anything is built."""

from __future__ import annotations

from typing import Any

from crossbreed.core import genome
from crossbreed.core.budget.budget import Budget
from crossbreed.core.budget.certificate import Certificate
from crossbreed.core.budget.matcher import certify
from crossbreed.core.contracts.cost import CostModel
from crossbreed.core.contracts.parts import Kind
from crossbreed.core.contracts.task import Task
from crossbreed.core.errors import ConfigError
from crossbreed.core.host import Host
from crossbreed.core.lab import checkpoint
from crossbreed.core.lab.job import Job
from crossbreed.core.lab.operating_points import OperatingPoint
from crossbreed.core.lab.recipe import Recipe
from crossbreed.core.lab.records import Rates
from crossbreed.core.ledger import Ledger, Shape
from crossbreed.core.model.legality import check_training, mode_readers


class Candidate:
    """The parts of a job. Raises ConfigError for anything it names that is not there or does not fit the rest.

    registry: the plugins. architecture: canonical. task, cost_model: built with their settings.
    recipe:   how it is trained. rungs: tokens at the end of each rung to reach.
    budget:   with its reference values, or None.
    """

    def __init__(self, job: Job) -> None:
        self.job = job
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

    def header(self) -> checkpoint.Header:
        """What every checkpoint of the run says of whose it is; of no step yet."""
        return checkpoint.Header(
            architecture=genome.digest(self.architecture),
            recipe=self.recipe.model_dump(mode="json"),
            task={**self.job.task, "evaluation": self.task.evaluation_hash()},
            seed=self.job.seed,
            step=0,
            tokens=0,
            rung=0,
        )

    def ledger(self, architecture: genome.Architecture, rates: Rates | None = None) -> Ledger:
        """What such a genome costs at the budget's shape, or the task's length without a budget."""
        shape = Shape(tokens=self.task.length) if self.budget is None else self.budget.shape.as_shape()
        return self.cost_model.estimate(architecture, shape, rates=rates)

    def certificate(self, architecture: genome.Architecture, rates: Rates) -> Certificate | None:
        """How such a genome keeps the budget at these rates; None without a budget."""
        if self.budget is None:
            return None
        return certify(architecture, self.budget, self.cost_model, rates=rates)

    def steps(self, tokens: int) -> int:
        """Optimiser steps that training on so many tokens takes."""
        return self.recipe.steps(tokens, self.task.length)

    def reach(self) -> int:
        """Tokens at the end of the job's last rung, whole steps counted."""
        return self.steps(self.rungs[-1]) * self.recipe.batch * self.task.length

    def task_at(self, point: OperatingPoint) -> Task:
        """The task as it is at a point, made once."""
        if point.length is None:
            return self.task
        if point.name not in self._tasks:
            self._tasks[point.name] = point.task(self.task)
        return self._tasks[point.name]

    def rows_at(self, point: OperatingPoint) -> int:
        """Rows evaluated at once: of longer texts fewer, so that they take no more memory."""
        return max(1, self.recipe.eval_batch // (point.length or 1))

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
            task = self.task_at(point)
            point.check(modes, task.length)
            # A schedule of the genome's must fit the longer texts, too.
            self.cost_model.estimate(self.architecture, Shape(tokens=task.length))
