"""One stored result run again from its record: the same genome, recipe, data and seed in a fresh folder, and what differs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from crossbreed.core import genome
from crossbreed.core.artefacts import Artefacts
from crossbreed.core.errors import ConfigError
from crossbreed.core.genome import Architecture
from crossbreed.core.host import Registry
from crossbreed.core.lab.environment import pick_device
from crossbreed.core.lab.job import Job, Phase
from crossbreed.core.lab.recipe import Recipe
from crossbreed.core.lab.records import Curve, Evaluated, Finished, RungDone, Started
from crossbreed.core.search.candidates import OWN
from crossbreed.core.search.dispatch import settled
from crossbreed.core.search.executors import Place
from crossbreed.core.search.executors.base import Lost, Report, Spool
from crossbreed.core.search.study_file import StudyFile
from crossbreed.core.search.study_setting import COST_MODEL, RunSetting, resolve_runs
from crossbreed.core.search.trained import check_data, check_identities
from crossbreed.storage import Repository
from crossbreed.storage.rows import RunDetail, RunRow

POLL_S = 1.0
TRAINED = ("done", "off_budget")
COMPARABLE = (*TRAINED, "diverged")
"""How a run may end again: anything else says something about this machine, not about the result."""
ENVIRONMENT = (
    "crossbreed",
    "python",
    "torch",
    "platform",
    "device",
    "cuda",
    "devices",
    "threads",
    "backends",
    "libraries",
)
"""What of a run's environment may change its numbers."""


@dataclass(frozen=True)
class Unlike:
    """A part of the environment that is not what it was."""

    what: str
    stored: Any
    here: Any


@dataclass(frozen=True)
class Difference:
    """A number of the record and of the new run: the training loss (nats) at a step, or a metric after training."""

    what: str
    step: int | None
    stored: float | None
    again: float | None


@dataclass(frozen=True)
class Reproduction:
    """How a run that was run again compares.

    losses, metrics: how many were compared. differences: those that are not equal bit for bit, in order of step.
    ended: the state then and now. unlike: of the environment. folder: the place of the new run's files.
    """

    run: str
    losses: int
    metrics: int
    differences: tuple[Difference, ...]
    ended: tuple[str, str]
    unlike: tuple[Unlike, ...]
    folder: str

    @property
    def equal(self) -> bool:
        return not self.differences and self.ended[0] == self.ended[1]


@dataclass(frozen=True)
class Plan:
    """A run that can be run again: its record, and the job that does it."""

    row: RunRow
    detail: RunDetail
    losses: Mapping[int, float | None]
    job: Job
    steps: int

    def run(self, place: Place, on_step: Callable[[int], None] = lambda step: None) -> Reproduction:
        """Train and judge it again in ``place``, whose workers see the job's folder. ``on_step`` hears of progress.

        Raises ConfigError when it ends in a way that says nothing about the result, such as out of memory.
        """
        heard = self._again(place, on_step)
        if heard.last is None or heard.last.state not in COMPARABLE:
            state, cause = (
                ("lost", heard.lost) if heard.last is None else (heard.last.state, heard.last.cause)
            )
            raise ConfigError(f"run {self.row.key} cannot be repeated here: it ended as {state}: {cause}")
        reached = max(heard.losses, default=0)
        stored = {step: loss for step, loss in self.losses.items() if step <= reached}
        different = [
            Difference("loss_nats", step, stored.get(step), heard.losses.get(step))
            for step in sorted(stored.keys() | heard.losses.keys())
            if stored.get(step) != heard.losses.get(step)
        ]
        metrics = self._metrics(heard)
        different += [d for d in metrics if d.stored != d.again]
        then = "diverged" if self.row.state == "diverged" else "trained"
        now = "diverged" if heard.last.state == "diverged" else "trained"
        # Runs of earlier versions had one device each and do not say so.
        unlike = _unlike({"devices": 1, **(self.row.environment or {})}, heard.environment)
        return Reproduction(
            self.row.key,
            len(stored),
            len(metrics),
            tuple(different),
            (then, now),
            unlike,
            self.job.artefacts,
        )

    def _again(self, place: Place, on_step: Callable[[int], None]) -> _Heard:
        artefacts = Artefacts.at(self.job.artefacts)
        place.check_artefacts(artefacts)
        heard, spool = _Heard(on_step), Spool(artefacts.under("spool"))
        executor = place.starter()(spool)
        try:
            executor.start()
            executor.submit(self.job)
            while executor.running:
                executor.work(lambda lease, report: heard.take(report), POLL_S)
        finally:
            executor.shutdown()
            spool.unmark()
        spool.discard(self.job.lease)
        return heard

    def _metrics(self, heard: _Heard) -> list[Difference]:
        found = []
        for rung in self.detail.rungs:
            again = heard.rungs.get(rung.rung)
            for name in sorted(rung.metrics.keys() & (again or {}).keys()):
                if not name.endswith("_bytes"):
                    assert again is not None
                    found.append(
                        Difference(f"rung {rung.rung}: {name}", None, rung.metrics[name], again[name])
                    )
        own = self.detail.points.get(OWN)
        if own is not None and own.evaluations and heard.score is not None:
            found.append(Difference("score", None, own.evaluations[-1].score, heard.score))
        return found


@dataclass
class _Heard:
    """What the new run reports."""

    on_step: Callable[[int], None]
    losses: dict[int, float] = field(default_factory=dict)
    rungs: dict[int, dict[str, float]] = field(default_factory=dict)
    score: float | None = None
    environment: dict[str, Any] = field(default_factory=dict)
    last: Finished | None = None
    lost: str = ""

    def take(self, record: Report) -> None:
        if isinstance(record, Started):
            self.environment = record.environment
        elif isinstance(record, Curve):
            self.losses |= {p.step: p.loss_nats for p in record.points}
            self.on_step(record.points[-1].step)
        elif isinstance(record, RungDone):
            self.rungs[record.rung] = record.metrics
        elif isinstance(record, Evaluated) and record.point == OWN:
            self.score = record.score
        elif isinstance(record, Finished):
            self.last = record
        elif isinstance(record, Lost):
            self.lost = record.cause


def plan(
    repository: Repository,
    key: str,
    registry: Registry,
    folder: Artefacts,
    *,
    device: str | None = None,
    threads: int | None = None,
    elsewhere: bool = False,
) -> Plan:
    """What running ``key`` (study/number/seed) again in ``folder`` takes; device and threads default to the record's, and it has as
    many devices.

    ``elsewhere``: it will run on other machines, so that this one need not have the device. Raises ConfigError when it left no curve, when its plugins, task data or device are not here, or when the folder exists.
    """
    row = repository.run_by_key(key)
    study = repository.open_study(key.split("/")[0])
    losses = {p.step: p.loss_nats for p in repository.curve(row.id)}
    if not losses:
        raise ConfigError(
            f"run {key} is {row.state} and left no training curve; there is nothing to compare."
        )
    if not folder.empty():
        raise ConfigError(
            f"folder {folder.place!r} exists already; a run is repeated in a fresh one, see --out."
        )
    setting = resolve_runs(StudyFile.read(study.spec, f"study {study.name!r}"), registry)
    check_data(repository, study, setting)
    stored = repository.trial(row.study_id, row.number)
    architecture = registry.canonical(genome.parse(Architecture, stored.genome, f"genome of run {key}"))
    check_identities(row, setting.identities(architecture))
    environment = row.environment or {}
    device = device or str(environment.get("device_type", "cpu"))
    try:
        if not elsewhere:
            pick_device(device)
    except ConfigError as error:
        raise ConfigError(
            f"run {key} was trained on {device!r}: {error}. Name another with --device."
        ) from error
    recipe = genome.parse(Recipe, row.recipe, f"recipe of run {key}")
    detail = next(r for r in repository.trial_detail(row.study_id, row.number).runs if r.run.id == row.id)
    job = _job(row, detail, stored.genome, stored.certificate, recipe, setting, folder.place)
    threads = threads or int(environment.get("threads", setting.file.search.threads))
    job = replace(job, device=device, threads=threads, devices=int(environment.get("devices", 1)))
    if device.partition(":")[0] == environment.get("device_type"):
        # By the same backends, whatever is the fastest by now.
        job = replace(job, backend=setting.file.search.backend, speeds=settled([row]))
    return Plan(row, detail, losses, job, recipe.steps(job.rungs[-1], setting.task.length))


def _job(
    row: RunRow,
    detail: RunDetail,
    architecture: dict[str, Any],
    certificate: dict[str, Any] | None,
    recipe: Recipe,
    setting: RunSetting,
    place: str,
) -> Job:
    """To the end of what was trained, and judged where it was."""
    rungs = recipe.rung_tokens()
    whole = row.state == "diverged" or row.rungs_done >= len(rungs)
    judged = OWN in detail.points and bool(detail.points[OWN].evaluations)
    phases: Sequence[Phase] = ("train", "evaluate") if whole and judged else ("train",)
    task = setting.file.task
    return Job(
        study=row.key.split("/")[0],
        number=row.number,
        seed=row.seed,
        lease="reproduced",
        architecture=architecture,
        task={"name": task.name, "params": task.params},
        recipe=recipe.model_dump(mode="json"),
        artefacts=place,
        rungs=tuple(rungs if whole else rungs[: max(1, row.rungs_done)]),
        budget=setting.budget.model_dump(mode="json"),
        certificate=certificate,
        plugins=tuple(setting.registry.files),
        trust=setting.registry.trust,
        cost={"name": COST_MODEL, "params": {}},
        phases=tuple(phases),
        analytics=False,
        memory=False,
    )


def _unlike(stored: Mapping[str, Any], here: Mapping[str, Any]) -> tuple[Unlike, ...]:
    return tuple(
        Unlike(name, stored.get(name), here.get(name))
        for name in ENVIRONMENT
        if stored.get(name) != here.get(name)
    )
