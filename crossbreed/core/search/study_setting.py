"""A study file met with what is registered: the task, the space, the budget in numbers, and the parts allowed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from crossbreed.core import genome
from crossbreed.core.budget.budget import Budget
from crossbreed.core.budget.dimensions import check_free
from crossbreed.core.budget.matcher import certify
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
from crossbreed.core.search.study_file import Names, SpaceSection, StudyFile

COST_MODEL = "analytic"
"""The cost model whose numbers budgets use."""


@dataclass(frozen=True)
class RunSetting:
    """What every run of a study shares, whatever its search may propose. ``reference`` is None for a budget given in numbers."""

    file: StudyFile
    registry: Registry
    task: Task
    budget: Budget
    cost_model: CostModel
    reference: Architecture | None

    def identities(self, architecture: Architecture) -> dict[str, str]:
        """``kind:name`` -> identity of every plugin that a run's numbers come from: its architecture's, and its task's where that
        is somebody else's (one of ours changes with crossbreed's version alone)."""
        name = self.file.task.name
        owner = self.registry.registered("task", name).owner
        task = {} if owner.builtin else {f"task:{name}": owner.identity}
        return {**self.registry.identities(architecture), **task}


@dataclass(frozen=True)
class StudySetting(RunSetting):
    """Everything a search needs that does not change while it runs. ``left_out`` says which registered parts ``all`` did not
    take, and why."""

    space: SearchSpace
    setting: Setting
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
    runs = resolve_runs(file, registry)
    d_model = runs.reference.d_model if runs.reference is not None else int(file.budget.d_model or 0)
    place = Place(runs.task.vocab, runs.task.length, d_model, runs.budget.shape.dtype)
    space, setting, left_out = open_space(file.space, registry, place)
    return StudySetting(**vars(runs), space=space, setting=setting, left_out=left_out)


def resolve_runs(file: StudyFile, registry: Registry) -> RunSetting:
    """``resolve`` without the search space: what a stored run needs to be used again, or to be run again."""
    task: Task = _build(registry, "task", file.task.name, file.task.params)
    _check_score(file, task)
    _check_backend(file.search.backend, registry)
    cost_model = registry.factory("cost", COST_MODEL)(registry.config("cost", COST_MODEL, {}), registry)
    reference = _reference(file, registry, task)
    budget = _budget(file, registry, task, cost_model, reference)
    _check_points(file, registry, task, reference)
    _check_lengths(file, task)
    return RunSetting(file, registry, task, budget, cost_model, reference)


class Place(NamedTuple):
    """What a search space proposes for: a vocabulary, a length, a model width and the dtype of activations."""

    vocab: int
    length: int
    d_model: int
    dtype: str


def open_space(
    section: SpaceSection, registry: Registry, place: Place
) -> tuple[SearchSpace, Setting, tuple[str, ...]]:
    """A search space, what it may use, and which registered parts ``all`` did not take, each with its reason."""
    space: SearchSpace = _build(registry, "space", section.name, section.params)
    left_out: list[str] = []
    setting = Setting(
        vocab=place.vocab,
        length=place.length,
        d_model=place.d_model,
        mixers=_allowed(registry, "mixer", section.mixers, place, left_out),
        routers=_allowed(registry, "router", section.routers, place, left_out),
        depth=_allowed(registry, "depth", section.depth, place, left_out),
        parts=registry,
    )
    return space, setting, tuple(left_out)


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


def _check_backend(backend: str, registry: Registry) -> None:
    """Some registered mixer must have it; whether its library is installed is seen where the runs are."""
    mixers = (registry.descriptor("mixer", name).capabilities for name in registry.names("mixer"))
    known = sorted({"auto", "reference"}.union(*(able.backends for able in mixers)))
    if backend not in known:
        raise ConfigError(
            f"search.backend is {backend!r}; it must be one that a registered mixer has: {', '.join(known)}"
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


def _check_lengths(file: StudyFile, task: Task) -> None:
    """Raise ConfigError for a length that the task does not have."""
    for times in file.evaluation.lengths:
        if times > 1:
            try:
                task.at_length(times * task.length)
            except ConfigError as error:
                raise ConfigError(f"evaluation.lengths asks for {times} times the length: {error}") from error


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
    legality.check_training(reference, registry)
    return reference


def _budget(
    file: StudyFile, registry: Registry, task: Task, cost_model: CostModel, reference: Architecture | None
) -> Budget:
    section = file.budget
    shape = {**section.shape.model_dump(), "tokens": section.shape.tokens or task.length}
    data = {**section.model_dump(include={"match", "cap", "values", "free"}), "shape": shape}
    return set_budget(Budget.read(data), registry, cost_model, reference)


def set_budget(
    budget: Budget, registry: Registry, cost_model: CostModel, reference: Architecture | None
) -> Budget:
    """A budget in numbers. Raises ConfigError for one without them, for a reference that is itself outside the budget,
    and for free dimensions that nothing has."""
    check_free(budget.free, registry)
    if reference is not None:
        budget = budget.at_reference(cost_model.estimate(reference, budget.shape.as_shape()))
        certificate = certify(reference, budget, cost_model)
        if not certificate.feasible:
            raise ConfigError(
                f"the budget's reference is itself outside the budget: {certificate.reason} "
                f"Change values.{certificate.worst().quantity} or the reference."
            )
    for quantity in budget.quantities():
        budget.target(quantity)
    return budget


def _allowed(
    registry: Registry, kind: Kind, names: Names, place: Place, left_out: list[str]
) -> tuple[str, ...]:
    """The names a study may use. A named part that cannot serve is an error; ``all`` leaves it out and says so.

    What is made for another use than searching is no part of ``all``, without a word.
    """
    if names != "all":
        for name in names:
            reason = _elsewhere(registry, kind, name) or _incapable(registry, kind, name, place)
            if reason:
                raise MissingCapability(f"{KIND_LABELS[kind]} {name!r} {reason}")
        return tuple(dict.fromkeys(names))
    able = []
    for name in searched(registry, kind):
        try:
            reason = _incapable(registry, kind, name, place)
        except PluginError as error:
            reason = f"is left out: {error}"
        if reason:
            left_out.append(f"{KIND_LABELS[kind]} {name!r} {reason}")
        else:
            able.append(name)
    return tuple(able)


def searched(registry: Registry, kind: Kind) -> list[str]:
    """The registered names that ``all`` means: what is made for another use than searching is none of them."""
    return [name for name in registry.names(kind) if not _elsewhere(registry, kind, name)]


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


def _incapable(registry: Registry, kind: Kind, name: str, place: Place) -> str:
    """Why a part cannot serve in a search, or an empty string. Raises when it is unknown or fails to import."""
    descriptor = registry.descriptor(kind, name)
    registry.factory(kind, name)
    capabilities = getattr(descriptor, "capabilities", None)
    if capabilities is None:
        return ""
    if not capabilities.causal:
        return "is not causal; language models are judged token by token."
    dtypes = getattr(capabilities, "dtypes", (place.dtype,))
    if place.dtype not in dtypes:
        return f"does not run in the budget's dtype {place.dtype!r}; it runs in {', '.join(dtypes)}."
    longest = getattr(capabilities, "longest", None)
    if longest is not None and longest < place.length:
        return f"reads texts of {longest} tokens at most; the task's have {place.length}."
    return ""
