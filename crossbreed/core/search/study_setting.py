"""A study file met with what is registered: the task, the space, the budget in numbers, and the parts allowed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from crossbreed.core import genome
from crossbreed.core.budget.budget import Budget
from crossbreed.core.contracts.cost import CostModel
from crossbreed.core.contracts.parts import Kind
from crossbreed.core.contracts.space import SearchSpace, Setting
from crossbreed.core.contracts.task import Task
from crossbreed.core.errors import ConfigError, MissingCapability, PluginError
from crossbreed.core.genome import Architecture
from crossbreed.core.host import KIND_LABELS, Registry
from crossbreed.core.lab.operating_points import OperatingPoint
from crossbreed.core.model import legality
from crossbreed.core.search.candidates import SCORE, Objectives
from crossbreed.core.search.study_file import Names, StudyFile

COST_MODEL = "analytic"
"""The cost model whose numbers budgets use."""


@dataclass(frozen=True)
class StudySetting:
    """Everything a search needs that does not change while it runs.

    ``reference`` is None for a budget given in numbers. ``left_out`` says which registered parts ``all`` did not take, and
    why.
    """

    file: StudyFile
    registry: Registry
    task: Task
    space: SearchSpace
    setting: Setting
    budget: Budget
    cost_model: CostModel
    reference: Architecture | None
    left_out: tuple[str, ...] = ()

    def hypervolume_reference(self, objectives: Objectives) -> dict[str, float]:
        """Where hypervolume is measured from: chance, a speed of 0, and twice the reference's cost."""
        shape = self.budget.shape.as_shape()
        ledger = None if self.reference is None else self.cost_model.estimate(self.reference, shape)
        point = {}
        for name, direction in objectives.directions.items():
            if name == SCORE:
                point[name] = self.task.chance
            elif name in objectives.speeds or direction == "max":
                point[name] = 0.0
            else:
                point[name] = 2 * (self.budget.target(name) if ledger is None else ledger.quantity(name))
        return point


def resolve(file: StudyFile, registry: Registry) -> StudySetting:
    """Check every name and setting of a study file and build what it names.

    Raises UnknownName, ConfigError or MissingCapability with one sentence; trains nothing.
    """
    task: Task = _build(registry, "task", file.task.name, file.task.params)
    _check_score(file, task)
    space: SearchSpace = _build(registry, "space", file.space.name, file.space.params)
    cost_model = registry.factory("cost", COST_MODEL)(registry.config("cost", COST_MODEL, {}), registry)
    reference = _reference(file, registry, task)
    budget = _budget(file, task, cost_model, reference)
    dtype = budget.shape.dtype
    _check_points(file, registry, task, reference)
    left_out: list[str] = []
    setting = Setting(
        vocab=task.vocab,
        length=task.length,
        d_model=reference.d_model if reference is not None else int(file.budget.d_model or 0),
        mixers=_allowed(registry, "mixer", file.space.mixers, dtype, left_out),
        routers=_allowed(registry, "router", file.space.routers, dtype, left_out),
        depth=_allowed(registry, "depth", file.space.depth, dtype, left_out),
        parts=registry,
    )
    return StudySetting(file, registry, task, space, setting, budget, cost_model, reference, tuple(left_out))


def _build(registry: Registry, kind: Kind, name: str, params: dict[str, Any]) -> Any:
    config = registry.config(kind, name, params)
    return registry.factory(kind, name)(config)


def _check_score(file: StudyFile, task: Task) -> None:
    asked = file.objectives.get("score")
    if asked is not None and asked != task.score.direction:
        raise ConfigError(
            f"objectives.score is {asked!r}, but task {file.task.name!r} scores {task.score.name!r} with direction "
            f"{task.score.direction!r}."
        )


def _check_points(file: StudyFile, registry: Registry, task: Task, reference: Architecture | None) -> None:
    """Schedules must fit into the task's texts and name readers that exist; numbers mean those of the reference."""
    modes = () if reference is None else tuple(legality.mode_readers(reference))
    readers = tuple(n for n in registry.names("mixer") if registry.descriptor("mixer", n).reader is not None)
    for name in file.search.points:
        schedule = OperatingPoint.parse(name).schedule
        if schedule is not None:
            schedule.at(task.length, readers)
            if modes and not schedule.readers:
                schedule.at(task.length, modes)


def _reference(file: StudyFile, registry: Registry, task: Task) -> Architecture | None:
    data = file.budget.reference
    if data is None:
        return None
    where = "budget.reference"
    if not isinstance(data, dict):
        raise ConfigError(f"{where} {data!r} was not read; load the study file from its path.")
    reference = genome.parse(Architecture, {"vocab": task.vocab, **data}, where)
    if reference.vocab != task.vocab:
        raise ConfigError(
            f"{where} has vocab {reference.vocab}, but task {file.task.name!r} has {task.vocab} tokens; leave vocab out."
        )
    reference = registry.canonical(reference)
    legality.check(reference, registry)
    return reference


def _budget(file: StudyFile, task: Task, cost_model: CostModel, reference: Architecture | None) -> Budget:
    section = file.budget
    shape = {**section.shape.model_dump(), "tokens": section.shape.tokens or task.length}
    data = {"shape": shape, "match": section.match, "cap": section.cap, "values": section.values}
    budget = Budget.read(data)
    if reference is None:
        return budget
    return budget.at_reference(cost_model.estimate(reference, budget.shape.as_shape()))


def _allowed(
    registry: Registry, kind: Kind, names: Names, dtype: str, left_out: list[str]
) -> tuple[str, ...]:
    """The names a study may use. A named part that cannot serve is an error; ``all`` leaves it out and says so.

    What is made for another use than searching is no part of ``all``, without a word.
    """
    if names != "all":
        for name in names:
            reason = _elsewhere(registry, kind, name) or _incapable(registry, kind, name, dtype)
            if reason:
                raise MissingCapability(f"{KIND_LABELS[kind]} {name!r} {reason}")
        return tuple(dict.fromkeys(names))
    able = []
    for name in registry.names(kind):
        if _elsewhere(registry, kind, name):
            continue
        try:
            reason = _incapable(registry, kind, name, dtype)
        except PluginError as error:
            reason = f"is left out: {error}"
        if reason:
            left_out.append(f"{KIND_LABELS[kind]} {name!r} {reason}")
        else:
            able.append(name)
    return tuple(able)


def _elsewhere(registry: Registry, kind: Kind, name: str) -> str:
    """Where a part has its use instead of a search, or an empty string."""
    capabilities = getattr(registry.descriptor(kind, name), "capabilities", None)
    if getattr(capabilities, "needs_labels", False):
        return (
            "looks at the labels, which no model in use has; `crossbreed compare` takes it as an upper bound."
        )
    if getattr(capabilities, "fitted", False):
        return "takes no part in training; `crossbreed fit-router` fits it to a trained run."
    return ""


def _incapable(registry: Registry, kind: Kind, name: str, dtype: str) -> str:
    """Why a part cannot serve in a search, or an empty string. Raises when it is unknown or fails to import."""
    descriptor = registry.descriptor(kind, name)
    registry.factory(kind, name)
    capabilities = getattr(descriptor, "capabilities", None)
    if capabilities is None:
        return ""
    if not capabilities.causal:
        return "is not causal; language models are judged token by token."
    dtypes = getattr(capabilities, "dtypes", (dtype,))
    if dtype not in dtypes:
        return f"does not run in the budget's dtype {dtype!r}; it runs in {', '.join(dtypes)}."
    return ""
