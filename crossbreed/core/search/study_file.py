"""The study file: task, space, budget, recipe, objectives and how to search. Reading it touches no plugin.

``study_setting.resolve`` checks its names against what is registered.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator, model_validator

from crossbreed.core.errors import ConfigError, UnknownName, nearest
from crossbreed.core.genome import parse
from crossbreed.core.lab.recipe import Count, Recipe
from crossbreed.core.ledger import QUANTITIES
from crossbreed.core.search.front import Direction
from crossbreed.presets import presets

SPEEDS = ("decode_tokens_per_s", "prefill_tokens_per_s")
"""Objectives measured on the device, at batch 1 and the task's length."""

TASK_DATA = "task_data"
"""Kind of the event that keeps the hash of the evaluation items a study was begun with."""

Share = Annotated[float, Field(ge=0, le=1)]
Names = Literal["all"] | tuple[str, ...]
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


def _one_or_more(value: object) -> object:
    return (value,) if isinstance(value, str) and value != "all" else value


NameList = Annotated[Names, BeforeValidator(_one_or_more)]


class Section(BaseModel):
    """Base of the file's sections: immutable, unknown keys refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class TaskSection(Section):
    """What candidates are trained and judged on."""

    name: str
    params: dict[str, Any] = Field(default_factory=dict)


class SpaceSection(Section):
    """Which architectures are proposed; ``all`` is everything registered and capable."""

    name: str = "layer_hybrids"
    mixers: NameList = "all"
    routers: NameList = "all"
    depth: NameList = "all"
    params: dict[str, Any] = Field(default_factory=dict)


class ShapeSection(Section):
    """Where the budget is taken; ``tokens`` defaults to the task's length."""

    batch: int = Field(default=1, ge=1)
    tokens: int | None = Field(default=None, ge=1)
    dtype: str = "float32"


class BudgetSection(Section):
    """The budget of every candidate, set by a reference genome (a path, a preset, or inline) or by numbers with a ``d_model``.

    ``match`` and ``cap`` map quantities to tolerances such as ``2%``; ``free`` names dimensions that may move beside those
    that mixers declare free (see ``Budget``).
    """

    reference: str | dict[str, Any] | None = None
    shape: ShapeSection = ShapeSection()
    match: dict[str, float | str] = Field(default_factory=dict)
    cap: dict[str, float | str] = Field(default_factory=dict)
    values: dict[str, float | str] = Field(default_factory=dict)
    free: list[str] | dict[str, Any] = Field(default_factory=list)
    d_model: int | None = Field(default=None, ge=1)

    @model_validator(mode="after")
    def _has_a_reference(self) -> BudgetSection:
        if self.reference is None:
            missing = sorted({*self.match, *self.cap} - set(self.values))
            if missing or self.d_model is None:
                what = f"values.{missing[0]}" if missing else "d_model"
                raise ValueError(f"a budget without a reference genome needs {what}")
        elif self.d_model is not None:
            raise ValueError("d_model comes from the reference genome; remove one of them")
        return self


class StallSection(Section):
    """The front has stopped growing: the last ``trials`` finished candidates together made its hypervolume less than
    ``share`` larger."""

    trials: Annotated[int, Field(ge=1)]
    share: Annotated[float, Field(gt=0, le=1)] = 0.01


class StopSection(Section):
    """When to stop early; whichever comes first.

    max_hours:  of a session. Nothing is begun after it.
    max_tokens: training tokens of the study, all runs together. Nothing is begun once they are spent.
    max_trials: candidates of the study. What was proposed is finished, and the front confirmed.
    stall:      the same once the front has stopped growing.
    """

    max_hours: float | None = Field(default=None, gt=0)
    max_trials: int | None = Field(default=None, ge=1)
    max_tokens: Count | None = Field(default=None, ge=1)
    stall: StallSection | None = None


class SearchSection(Section):
    """How to search.

    trials:     candidates to propose beside the reference, infeasible ones included.
    seeds:      runs of each member of the front, and of the reference; intervals need 3.
    sampler:    tpe, nsga2, nsga3, gp, random, quasi_random or grid, after the space's starting points; or list.
    proposals:  what sampler list proposes: entries ``{draws: {...}}`` or ``{genome: ...}`` (a path, a preset, or inline),
                or the path of a YAML file that holds such a list.
    population: generation of a genetic sampler; random proposals before TPE models.
    workers:    runs at once; default: one per GPU, else one per ``threads`` CPU cores.
    threads:    CPU threads of each worker, in training and while measuring.
    devices_per_trial: devices of one host, GPUs or processes of a CPU, that train a trial together: each takes as many rows of every
                batch. What comes out is what one device would give, up to rounding.
    per_gpu:    most trials that train on one GPU at once, as far as its memory is predicted to hold them.
    repeats:    fresh proposals tried when one was seen before; then that architecture gets its next seed.
    screen:     proposals compared for every second candidate where an objective is a quantity of the ledger, and so known before
                training: kept is the one whose costs leave most room on the front. 1 compares none.
    deadline_s: seconds a rung, an evaluation or a profile may take before its worker is taken to hang and the run has failed;
                default: ten minutes and twenty times what the study's jobs have shown to take.
    profile_after: trained runs that wait before all training stops for them to be timed alone.
    ahead:      candidates proposed before the first of them is trained, so that they are timed in one pause of all
                training; default: 1 for one worker, else 4 for each.
    forced_rates: shares of tokens forced to each router's most expensive choice, at which routed candidates are timed
                before they are trained; without 0 among them none is pruned by its speed. null: no candidate, routed or
                not, is timed before it is trained.
    peaks:      on a CUDA device, measure a candidate's training peak before it is trained, in a process of its own, which takes
                some seconds; without it the peak is that of the worker that trained it.
    points:     operating points, such as ``schedule:0=mamba2,-2.5%=attention``, ``threshold:+0.05`` or ``depth:2``, at which
                candidates they fit are judged and timed beside their own decisions; all of them compete for the front.
    backend:    who computes mixers: auto, which on a CUDA device is the fastest as measured, reference, or by name one, such as fla,
                that computes those which have it; the others compute as they would of themselves. ``crossbreed doctor`` lists them.
    captured:   on a CUDA device, record a training step once and replay it: the same kernels without the time to launch them.
    analytics:  look at a few rows of each routed run after it is timed, for ``crossbreed routers``.
    """

    sampler: str = "tpe"
    proposals: str | tuple[dict[str, Any], ...] = ()
    trials: int = Field(default=16, ge=0)
    seeds: int = Field(default=3, ge=1)
    seed: int = Field(default=0, ge=0)
    population: int = Field(default=10, ge=2)
    workers: int | None = Field(default=None, ge=1)
    threads: int = Field(default=1, ge=1)
    devices_per_trial: int = Field(default=1, ge=1)
    per_gpu: int = Field(default=1, ge=1)
    repeats: int = Field(default=10, ge=1)
    screen: int = Field(default=8, ge=1)
    deadline_s: float | None = Field(default=None, gt=0)
    profile_after: int = Field(default=16, ge=1)
    ahead: int | None = Field(default=None, ge=1)
    forced_rates: tuple[Share, ...] | None = (0.0, 0.1, 0.22, 0.4, 1.0)
    peaks: bool = True
    points: Annotated[tuple[str, ...], BeforeValidator(_one_or_more)] = ()
    backend: str = "auto"
    captured: bool = True
    analytics: bool = True
    stop: StopSection = StopSection()

    @field_validator("points")
    @classmethod
    def _are_points(cls, points: tuple[str, ...]) -> tuple[str, ...]:
        from crossbreed.core.lab.operating_points import OWN, OperatingPoint

        # Own decisions are always judged.
        found = dict.fromkeys(map(OperatingPoint.parse, points))
        longer = [point.name for point in found if point.length is not None]
        if longer:
            raise ValueError(
                f"{longer[0]!r} cannot compete with results at the training length; name it in evaluation.lengths"
            )
        return tuple(point.name for point in found if point != OWN)

    @field_validator("sampler")
    @classmethod
    def _known(cls, sampler: str) -> str:
        from crossbreed.core.search.samplers import known

        return known(sampler).name

    @model_validator(mode="after")
    def _has_parts_of_a_device_or_several(self) -> SearchSection:
        if self.per_gpu > 1 and self.devices_per_trial > 1:
            raise ValueError(
                f"per_gpu is {self.per_gpu} and devices_per_trial is {self.devices_per_trial}; trials share a device or have several "
                "each, so one of them must be 1"
            )
        return self

    @model_validator(mode="after")
    def _list_and_sampler_agree(self) -> SearchSection:
        if (self.sampler == "list") != bool(self.proposals):
            said = "names none" if self.sampler == "list" else f"is {self.sampler!r}"
            raise ValueError(f"proposals belong to sampler 'list' and it needs some; this section {said}")
        for i, entry in enumerate(() if isinstance(self.proposals, str) else self.proposals):
            if set(entry) not in ({"draws"}, {"genome"}):
                raise ValueError(
                    f"proposals[{i}] has {', '.join(map(repr, entry)) or 'nothing'}; an entry is either 'draws' or 'genome'"
                )
        return self

    def trial_limit(self) -> int:
        """Candidates the study will hold beside the reference."""
        return min(self.trials, self.stop.max_trials or self.trials)


class EvaluationSection(Section):
    """What trained candidates are judged on beside the task's own items.

    lengths: multiples of the training length, such as ``[1, 2, 4]``: every run that counts is judged and timed on texts so many
             times as long, too. These results compete for nothing; 1 is always there.
    """

    lengths: tuple[Annotated[int, Field(ge=1, le=1024)], ...] = (1,)

    @field_validator("lengths")
    @classmethod
    def _own_length_first(cls, lengths: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(sorted({1, *lengths}))


class StudyFile(Section):
    """A whole study file."""

    schema_version: Literal[1] = Field(default=1, alias="schema")
    name: str
    task: TaskSection
    space: SpaceSection = SpaceSection()
    budget: BudgetSection
    train: Recipe
    objectives: dict[str, Direction] = {"score": "max", "decode_tokens_per_s": "max"}
    evaluation: EvaluationSection = EvaluationSection()
    search: SearchSection = SearchSection()

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    @field_validator("name")
    @classmethod
    def _is_a_word(cls, name: str) -> str:
        # RUN is written study/number/seed, so a study's name holds no slash.
        if not NAME.fullmatch(name):
            raise ValueError("a study's name is letters, digits, '.', '_' and '-', at most 100")
        return name

    @field_validator("objectives")
    @classmethod
    def _are_known(cls, objectives: dict[str, Direction]) -> dict[str, Direction]:
        known = ("score", *SPEEDS, *QUANTITIES)
        for name in objectives:
            if name not in known:
                raise UnknownName("objective", name, known)
        if not objectives:
            raise ValueError("a study needs at least one objective")
        for name in SPEEDS:
            if objectives.get(name) == "min":
                raise ValueError(f"objective {name!r} is a speed; its direction is 'max'")
        return objectives

    @model_validator(mode="after")
    def _devices_share_batches(self) -> StudyFile:
        if self.train.batch % self.search.devices_per_trial:
            raise ValueError(
                f"train.batch is {self.train.batch}, but search.devices_per_trial is {self.search.devices_per_trial}; each device takes as "
                "many rows, so the batch must be divisible by it"
            )
        return self

    @model_validator(mode="after")
    def _tunes_by_score(self) -> StudyFile:
        if len(self.train.settings) > 1 and "score" not in self.objectives:
            raise ValueError(
                f"train.lr {list(self.train.settings)} is tuned by the score, so objectives must have score"
            )
        return self

    @property
    def points(self) -> tuple[str, ...]:
        """Operating points at which runs are judged and timed beside their own decisions; those of ``search.points`` compete."""
        return (*self.search.points, *(f"length:{n}" for n in self.evaluation.lengths if n > 1))

    @staticmethod
    def load(path: str | Path) -> StudyFile:
        """Read a study file and inline its reference genome. Raises ConfigError sentences with nearest keys."""
        file = Path(path)
        data = read_mapping(file, "study file")
        study = StudyFile.read(data, str(path))
        reference = study.budget.reference
        if isinstance(reference, str):
            genome = read_reference(reference, file.parent)
            budget = study.budget.model_copy(update={"reference": genome})
            study = study.model_copy(update={"budget": budget})
        if study.search.proposals:
            entries = read_proposals(study.search.proposals, file.parent)
            search = {**study.search.model_dump(), "proposals": entries}
            study = study.model_copy(update={"search": parse(SearchSection, search, f"{path}: search")})
        return study

    @staticmethod
    def read(data: Any, where: str = "study") -> StudyFile:
        """Validate plain data."""
        if not isinstance(data, dict):
            raise ConfigError(f"{where} must be a mapping with name, task, budget and train.")
        return parse(StudyFile, data, where)

    def as_data(self) -> dict[str, Any]:
        """Plain data for storage; ``read`` gives the same file back."""
        return self.model_dump(mode="json", by_alias=True)

    def check_continues(self, stored: StudyFile) -> None:
        """Raise ConfigError when this file may not continue a stored study: results of both would not be comparable.

        The space, the sections evaluation and search and the order of objectives may change; a study may grow.
        """
        for section in ("task", "budget", "train", "objectives"):
            if getattr(self, section) != getattr(stored, section):
                raise ConfigError(
                    f"study {self.name!r} exists with another {section!r} section; its results would not be "
                    f"comparable. Restore the section or choose another name."
                )


def read_reference(reference: str, folder: Path) -> dict[str, Any]:
    """A reference genome as plain data: a file, by its path from ``folder``, or a preset, whose vocabulary is left out.

    Raises ConfigError for what is neither.
    """
    file = folder / reference
    if not file.exists() and reference in presets():
        return presets()[reference].build().model_dump(mode="json", exclude={"vocab"}, exclude_defaults=True)
    if not file.exists():
        raise ConfigError(
            f"reference genome {reference!r} is neither a file ({str(file)!r} does not exist) nor a preset"
            f"{nearest(reference, presets()) or '.'}"
        )
    return read_mapping(file, "reference genome")


def read_proposals(proposals: str | tuple[dict[str, Any], ...], folder: Path) -> tuple[dict[str, Any], ...]:
    """The entries of ``search.proposals`` with their genomes read in; a path is taken from ``folder``.

    Raises ConfigError for a file that holds no list of mappings.
    """
    if isinstance(proposals, str):
        file = folder / proposals
        entries = read_yaml(file, "list of proposals")
        if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
            raise ConfigError(f"list of proposals {str(file)!r} must be a list of mappings.")
        folder = file.parent
    else:
        entries = list(proposals)
    return tuple(
        {**entry, "genome": read_reference(entry["genome"], folder)}
        if isinstance(entry.get("genome"), str)
        else entry
        for entry in entries
    )


def read_mapping(file: Path, what: str) -> dict[str, Any]:
    """A YAML or JSON file that holds a mapping; ``what`` names it in the ConfigError of one that cannot be read."""
    data = read_yaml(file, what)
    if not isinstance(data, dict):
        raise ConfigError(f"{what} {str(file)!r} must be a mapping of keys to values.")
    return data


def read_yaml(file: Path, what: str) -> Any:
    """What a YAML or JSON file holds."""
    try:
        return yaml.safe_load(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"{what} {str(file)!r} does not exist.") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{what} {str(file)!r} cannot be read: {error}.") from error
    except yaml.YAMLError as error:
        place = getattr(error, "problem_mark", None)
        line = f" at line {place.line + 1}" if place else ""
        raise ConfigError(
            f"{what} {str(file)!r} is not valid YAML{line}: {getattr(error, 'problem', None) or error}."
        ) from error
