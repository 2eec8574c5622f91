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
from crossbreed.core.model import legality
from crossbreed.core.search.study_file import SpaceSection, StudyFile, read_mapping
from crossbreed.core.search.study_setting import Place, resolve, set_budget


@dataclass(frozen=True)
class BudgetGiven:
    """A budget in numbers and the cost model that counts it; with a study its task's vocabulary and its search space.

    ``place`` is where a search space would propose: None for a budget that says nothing of vocabulary and width.
    """

    budget: Budget
    cost_model: CostModel
    vocab: int | None = None
    space: SpaceSection | None = None
    place: Place | None = None


def read_budget(path: Path, registry: Registry) -> BudgetGiven:
    """Read a study file's budget, or a file with ``shape``, ``match``, ``cap`` and a ``reference`` genome or ``values``.

    Raises ConfigError with one sentence for what is missing or wrong.
    """
    data = read_mapping(path, "budget file")
    if "budget" in data:
        file = StudyFile.load(path)
        study = resolve(file, registry)
        place = Place(study.task.vocab, study.task.length, study.setting.d_model, study.budget.shape.dtype)
        return BudgetGiven(study.budget, study.cost_model, study.task.vocab, file.space, place)
    if "shape" not in data:
        raise ConfigError(
            f"budget file {str(path)!r} must say at which shape its quantities are taken, as in 'shape: {{tokens: 1024}}'; only "
            "a study has a task whose length they could be taken at."
        )
    reference = data.pop("reference", None)
    architecture = None if reference is None else _reference(reference, path, registry)
    model = cost_model(registry)
    budget = set_budget(Budget.read(data, str(path)), registry, model, architecture)
    if architecture is None:
        return BudgetGiven(budget, model)
    vocab, shape = architecture.vocab, budget.shape
    place = Place(vocab, shape.tokens, architecture.d_model, shape.dtype)
    return BudgetGiven(budget, model, vocab, place=place)


def _reference(reference: Any, path: Path, registry: Registry) -> Architecture:
    if isinstance(reference, str):
        file = path.parent / reference
        return read_genome(str(file) if file.exists() else reference, "", registry)
    if not isinstance(reference, dict):
        raise ConfigError(
            f"{path}: reference must be a genome, the path of one or a preset, got {reference!r}."
        )
    architecture = registry.canonical(parse(Architecture, reference, f"{path}: reference"))
    legality.check(architecture, registry)
    return architecture
