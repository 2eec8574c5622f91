"""A trained run of a stored study, loaded: its model with the weights of its last rung, its task and its budget."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import PurePosixPath

from crossbreed.core import genome
from crossbreed.core.artefacts import Artefacts
from crossbreed.core.errors import ConfigError
from crossbreed.core.genome import Architecture
from crossbreed.core.host import KEEP_OUT, Registry
from crossbreed.core.lab import checkpoint
from crossbreed.core.lab.checkpoint import Header
from crossbreed.core.lab.environment import pick_device
from crossbreed.core.lab.recipe import Recipe
from crossbreed.core.ledger import Shape
from crossbreed.core.model.language_model import LanguageModel
from crossbreed.core.search.study_file import TASK_DATA, StudyFile
from crossbreed.core.search.study_setting import RunSetting, resolve_runs
from crossbreed.storage import Repository
from crossbreed.storage.rows import RunRow, StudyRow


@dataclass(frozen=True)
class TrainedRun:
    """A run with its model. ``folder``: of its files, relative to the database's artefacts."""

    row: RunRow
    model: LanguageModel
    setting: RunSetting
    header: Header
    recipe: Recipe
    folder: PurePosixPath

    @property
    def shape(self) -> Shape:
        """Where the study takes costs."""
        return self.setting.budget.shape.as_shape()


def load(repository: Repository, key: str, registry: Registry, device: str = "cpu") -> TrainedRun:
    """The run called study/number/seed with the weights that its last rung left.

    Raises ConfigError when it has no checkpoint, when the file is missing or changed, or when its plugins are not the ones
    given here.
    """
    row = repository.run_by_key(key)
    study = repository.open_study(key.split("/")[0])
    setting = resolve_runs(StudyFile.read(study.spec, f"study {study.name!r}"), registry)
    trial = repository.trial(row.study_id, row.number)
    architecture = registry.canonical(genome.parse(Architecture, trial.genome, f"genome of run {key}"))
    check_data(repository, study, setting)
    check_identities(row, setting.identities(architecture))
    rungs = [rung for rung in repository.rungs(row.id) if rung.checkpoint is not None]
    if not rungs:
        raise ConfigError(f"run {key} is {row.state} and left no checkpoint; only a trained run can be used.")
    name = str(rungs[-1].checkpoint)
    what = f"the checkpoint of run {key}"
    with checked(repository.artefacts, name, rungs[-1].sha256, what) as (folder, file):
        header = checkpoint.read_header(folder, file)
        recipe = genome.parse(Recipe, header.recipe, f"recipe of run {key}")
        model = LanguageModel(architecture, registry, seed=row.seed).to(pick_device(device))
        task = setting.file.task
        expected = replace(
            header,
            architecture=genome.digest(architecture),
            task={"name": task.name, "params": task.params, "evaluation": setting.task.evaluation_hash()},
            seed=row.seed,
        )
        checkpoint.read(folder, file, model, None, expected)
    return TrainedRun(row, model.eval(), setting, header, recipe, PurePosixPath(name).parent)


def check_data(repository: Repository, study: StudyRow, setting: RunSetting) -> None:
    """Raise ConfigError for other evaluation items than a study was begun with: a task's settings can stay the same while the
    text they name changes."""
    stored = repository.first_event(study.id, TASK_DATA)
    found = setting.task.evaluation_hash()
    if stored is not None and stored.payload["evaluation"] != found:
        raise ConfigError(
            f"study {study.name!r} was begun with other data: its evaluation items have SHA-256 "
            f"{str(stored.payload['evaluation'])[:12]}, those of task {setting.file.task.name!r} here have {found[:12]}. "
            "Restore the data, or choose another study name."
        )


def check_identities(row: RunRow, here: dict[str, str]) -> None:
    """Raise ConfigError unless a run was trained with the plugins that are here."""
    for part, identity in row.identities.items():
        if here.get(part) != identity:
            given = here.get(part, "nobody")
            keep = "" if given.startswith("sha256:") else f", and {KEEP_OUT}"
            same = (
                f"give the same plugin file with --plugin{keep}"
                if identity.startswith("sha256:")
                else "install the same"
            )
            raise ConfigError(
                f"run {row.key} was trained with {part} of {identity}, but here it is of {given}; {same}."
            )


@contextmanager
def checked(
    artefacts: Artefacts, name: str, sha256: str | None, what: str
) -> Iterator[tuple[Artefacts, str]]:
    """A stored file on this machine, as its folder there and its name in it; ``what`` names it in messages.

    Raises ConfigError when it is missing, or not the one that was stored.
    """
    where = artefacts.shown(name)
    with ExitStack() as held:
        try:
            path = held.enter_context(artefacts.local(name))
        except FileNotFoundError:
            raise ConfigError(f"{what} is missing: {where!r} does not exist.") from None
        with path.open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
        if sha256 is not None and found != sha256:
            raise ConfigError(
                f"{what}, {where!r}, has SHA-256 {found[:12]}, but {sha256[:12]} was stored; it was changed."
            )
        yield Artefacts.at(path.parent), path.name
