"""BUDGET arguments: a study file, whose budget is taken, or a file with a budget alone."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from crossbreed.cli.genomes import cost_model, read_genome
from crossbreed.core.budget.budget import Budget
from crossbreed.core.contracts.cost import CostModel
from crossbreed.core.errors import ConfigError
from crossbreed.core.genome import Architecture, parse
from crossbreed.core.host import Registry
from crossbreed.core.search.study_file import StudyFile, read_mapping
from crossbreed.core.search.study_setting import resolve


@dataclass(frozen=True)
class BudgetGiven:
    """A budget in numbers, the cost model that counts it, and the task's vocabulary where a study names a task."""

    budget: Budget
    cost_model: CostModel
    vocab: int | None = None


def read_budget(path: Path, registry: Registry) -> BudgetGiven:
    """Read a study file's budget, or a file with ``shape``, ``match``, ``cap`` and a ``reference`` genome or ``values``.

    Raises ConfigError with one sentence for what is missing or wrong.
    """
    data = read_mapping(path, "budget file")
    if "budget" in data:
        study = resolve(StudyFile.load(path), registry)
        return BudgetGiven(study.budget, study.cost_model, study.task.vocab)
    reference = data.pop("reference", None)
    budget = Budget.read(data, str(path))
    model = cost_model(registry)
    if reference is None:
        for quantity in budget.quantities():
            budget.target(quantity)
        return BudgetGiven(budget, model)
    architecture = _reference(reference, path, registry)
    return BudgetGiven(
        budget.at_reference(model.estimate(architecture, budget.shape.as_shape())), model, architecture.vocab
    )


def _reference(reference: Any, path: Path, registry: Registry) -> Architecture:
    if isinstance(reference, str):
        file = path.parent / reference
        return read_genome(str(file) if file.exists() else reference, "", registry)
    if not isinstance(reference, dict):
        raise ConfigError(
            f"{path}: reference must be a genome, the path of one or a preset, got {reference!r}."
        )
    return registry.canonical(parse(Architecture, reference, f"{path}: reference"))
