"""The facade of a study: start or continue a search, and read its results as tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from crossbreed.core.errors import ConfigError, PluginError
from crossbreed.core.genome import Architecture
from crossbreed.core.host import Registry
from crossbreed.core.ledger import QUANTITIES
from crossbreed.core.search import divergence, executors, genes, losses, plugin_files
from crossbreed.core.search.candidates import OWN, Candidate, Objectives, front_volume, read
from crossbreed.core.search.divergence import Divergence
from crossbreed.core.search.driver import Driver, DriverOptions, End
from crossbreed.core.search.executors.resources import Resources
from crossbreed.core.search.genes import Genes
from crossbreed.core.search.helper import Helper
from crossbreed.core.search.membership import front_probabilities
from crossbreed.core.search.patience import drive
from crossbreed.core.search.progress import Progress
from crossbreed.core.search.shortlist import front_candidates
from crossbreed.core.search.study_file import TASK_DATA, StudyFile
from crossbreed.core.search.study_setting import StudySetting, resolve
from crossbreed.core.search.trained import check_data
from crossbreed.storage import Repository
from crossbreed.storage.locations import ARTEFACTS
from crossbreed.storage.rows import StudyRow

if TYPE_CHECKING:
    import pandas as pd


PASSING = "Checkpoints are kept in the memory of this process and end with it:"


@dataclass(frozen=True)
class Outcome:
    """How a session of a search ended: the study is ``done``, was ``interrupted`` or ``stopped`` by another process, or ran
    ``out_of_time`` or ``out_of_tokens``.

    rule: what ended it before all that the study file asks for was done, in a sentence.
    """

    end: End
    candidates: tuple[Candidate, ...]
    rule: str | None = None

    @property
    def front(self) -> tuple[Candidate, ...]:
        return tuple(c for c in self.candidates if c.on_front)


class Study:
    """A study in a database. ``Study.open`` reads results; ``Study.start`` gives one that can ``run``.

    notes: what its user should know before it runs, each a sentence.
    """

    def __init__(
        self,
        repository: Repository,
        row: StudyRow,
        setting: StudySetting | None = None,
        changed: Sequence[str] = (),
    ) -> None:
        self.repository, self.row, self.setting = repository, row, setting
        left_out = () if setting is None else setting.left_out
        self.notes = (*changed, *(f"Left out: {sentence}" for sentence in left_out))
        self.file = StudyFile.read(row.spec, f"study {row.name!r}")

    @staticmethod
    def open(url: str, name: str | None = None) -> Study:
        """Open a stored study read-only; ``name`` may be left out where the database holds only one.

        Raises StorageError when the database cannot be read, UnknownName or ConfigError when the study is not clear.
        """
        repository = Repository.open(url, read_only=True, create=False)
        try:
            return Study(repository, _find(repository, name))
        except BaseException:
            repository.close()
            raise

    @staticmethod
    def join(url: str, file: StudyFile, registry: Registry) -> Study:
        """The stored study of a file, to help the process that drives it; nothing about the study is changed.

        Raises UnknownName when there is no such study, ConfigError and PluginError as ``start`` does.
        """
        repository = Repository.open(url, create=False)
        try:
            row = repository.open_study(file.name)
            stored = StudyFile.read(row.spec, f"stored study {file.name!r}")
            file.check_continues(stored)
            for sentence in plugin_files.check(repository, row, registry):
                raise PluginError(f"{sentence} A helper needs the text that its driver uses.")
            setting = resolve(stored, registry)
            check_data(repository, row, setting)
            return Study(repository, row, setting)
        except BaseException:
            repository.close()
            raise

    @staticmethod
    def start(url: str, file: StudyFile, registry: Registry) -> Study:
        """Create the study of a file, or take it up where it was left. Plugin files in ``registry`` are stored with it.

        Raises ConfigError when a stored study of that name has another task, budget, recipe or objectives, or a new one finds
        the artefacts of another database's study, and PluginError when it used a plugin file that was not given again. One that was edited is among its ``notes``.
        """
        try:
            setting = resolve(file, registry)
        except ConfigError:
            # A name may be unknown, or known twice, for a reason that only the stored study tells.
            plugin_files.check_stored(url, file.name, registry)
            raise
        repository = Repository.open(url)
        changed: tuple[str, ...] = ()
        try:
            row = repository.find_study(file.name)
            if row is None:
                _check_no_artefacts(repository, file.name)
                row = repository.create_study(file.name, file.as_data())
            else:
                stored = StudyFile.read(row.spec, f"stored study {file.name!r}")
                file.check_continues(stored)
                changed = plugin_files.check(repository, row, registry)
                if stored != file:
                    repository.set_spec(row.id, file.as_data())
            check_data(repository, row, setting)
            if repository.first_event(row.id, TASK_DATA) is None:
                repository.add_event(row.id, TASK_DATA, {"evaluation": setting.task.evaluation_hash()})
            for plugin in registry.files:
                path = str(Path(plugin.path).absolute())
                repository.add_plugin_file(row.id, path, plugin.sha256, plugin.text)
            passing = () if repository.artefacts.shared else (f"{PASSING} {repository.artefacts.place!r}.",)
            return Study(repository, repository.open_study(file.name), setting, (*changed, *passing))
        except BaseException:
            repository.close()
            raise

    def run(
        self,
        *,
        executor: str = "ray",
        workers: int | None = None,
        device: str | None = None,
        address: str | None = None,
        resources: Resources | None = None,
        deterministic: bool = False,
        join: bool = False,
        max_hours: float | None = None,
        max_trials: int | None = None,
        max_tokens: int | None = None,
        named: Sequence[Architecture] = (),
        on_progress: Callable[[Progress], None] | None = None,
    ) -> Outcome:
        """Search until the front has its seeds. ``named`` genomes are trained as they are, beside what is proposed.

        ``max_hours``: of this session; ``max_trials``, ``max_tokens``: of the study, all sessions together.
        ``deterministic``: one worker, so that proposals see results in a fixed order. Ctrl-C stops in order, twice at
        once. Raises StudyBusy when another driver holds the study; ``join`` helps it instead (see ``Helper``).
        """
        if self.setting is None:
            raise ConfigError(
                f"study {self.row.name!r} was opened to be read; start it from its study file to run it."
            )
        search = self.file.search
        place = executors.choose(
            executor,
            workers=1 if deterministic else workers or (search.workers if executor == "ray" else None),
            threads=search.threads,
            device=device,
            address=address,
            resources=resources,
            per_gpu=search.per_gpu,
            devices=search.devices_per_trial,
        )
        place.check_artefacts(self.repository.artefacts, joined=join)
        limits = (max_hours, max_trials, max_tokens)
        options = DriverOptions(place.device, *limits, tuple(named), on_progress, place.packing)
        parts = (self.repository, self.row.id, self.setting, place.starter(), options)
        if join:
            return Outcome(Helper(*parts).run(), tuple(self.read_candidates()))
        driver, end = drive(self.repository, lambda: Driver(*parts))
        candidates = tuple(self.read_candidates())
        if on_progress is not None:
            on_progress(driver.progress("finished" if end == "done" else "stopped"))
        return Outcome(end, candidates, driver.ended_by)

    def close(self) -> None:
        self.repository.close()

    def __enter__(self) -> Study:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    @property
    def objectives(self) -> Objectives:
        return Objectives.of(self.file)

    def read_candidates(self) -> list[Candidate]:
        """All candidates with their objectives, in order of number, those on the front marked."""
        return read(self.repository.candidates(self.row.id, points=self.objectives.points), self.objectives)

    def hypervolume(self) -> float:
        """Volume of the front from the study's fixed reference point; 0 before the search has fixed one."""
        point = self.row.reference_point or (self.repository.open_study(self.row.name).reference_point or {})
        return front_volume(self.read_candidates(), self.objectives, point) if point else 0.0

    def gene_effects(self) -> Genes:
        """Which choices matter, by pairs of candidates that differ in one alone."""
        found = [c for c in self.read_candidates() if c.point == OWN]
        objectives = self.objectives.over([c.row for c in found])
        return genes.in_study(self.repository, self.row.id, found, objectives)

    def divergence(self) -> dict[str, Divergence]:
        """How often runs of each family diverged, the highest rate first."""
        return divergence.in_study(self.repository, self.row.id)

    def front(self) -> pd.DataFrame:
        """The members of the front, best first in the first objective: see ``candidates`` for the columns."""
        found, objectives = front_candidates(self.repository, self.row.id, self.objectives)
        table = _table(found, objectives)
        first, direction = next(iter(self.objectives.directions.items()))
        table = table[table["on_front"]].drop(columns="on_front")
        return table.sort_values(first, ascending=direction == "min", ignore_index=True)

    def candidates(self) -> pd.DataFrame:
        """One row per candidate and operating point that competes: objectives as means with ``_low`` and ``_high`` ends of their 95% intervals (missing below
        3 seeds), whether they are ``confirmed`` by fresh runs, the learning rate of its best setting, ``front_probability``
        (missing below 3 seeds, and for what may not stand on the front), runs that trained and how many ``diverged``, ledger
        quantities (at nominal rates; one that is an objective at the rates that trained routers chose), and signed relative
        residuals of the budget as ``residual_*``.
        """
        return _table(self.read_candidates(), self.objectives)

    def losses(self, by: Literal["class", "position"] = "class") -> pd.DataFrame:
        """Where every evaluation's loss comes from: one row per candidate, seed, operating point and class of positions, or bin of
        positions, with ``labelled`` positions, their ``accuracy`` and mean ``loss_nats`` (missing where there is none)."""
        tables = {"class": losses.by_class, "position": losses.by_position}
        if by not in tables:
            raise ConfigError(f"losses are kept by 'class' and by 'position', not by {by!r}")
        return tables[by](self.repository.breakdowns(self.row.id))


def _table(found: Sequence[Candidate], objectives: Objectives) -> pd.DataFrame:
    import pandas as pd

    surely = front_probabilities(found, objectives)
    rows = [_table_row(c, objectives, surely.get(c.key)) for c in found]
    return pd.DataFrame(rows, columns=_columns(found, objectives))


def _table_row(candidate: Candidate, objectives: Objectives, surely: float | None) -> dict[str, Any]:
    row = candidate.row
    trained = divergence.of_seeds(candidate.seeds)
    cells: dict[str, Any] = {
        "trial": row.number,
        "point": candidate.point,
        "family": row.family,
        "origin": row.origin,
        "state": row.state,
        "cause": row.cause,
        "seeds": len(candidate.done),
        "on_front": candidate.on_front,
        "front_probability": surely,
        "trained": trained.runs,
        "diverged": trained.diverged,
        "confirmed": candidate.confirmed,
        "lr": candidate.lr,
        "hash": row.hash[:12],
    }
    for name in objectives.names:
        interval = candidate.intervals[name]
        cells[name] = candidate.means[name]
        cells[f"{name}_low"] = None if interval is None else interval.low
        cells[f"{name}_high"] = None if interval is None else interval.high
    cells |= {n: (row.ledger or {}).get(n) for n in QUANTITIES if n not in objectives.names}
    for residual in (row.certificate or {}).get("quantities", ()):
        cells[f"residual_{residual['quantity']}"] = residual["residual"]
    return cells


def _columns(candidates: Iterable[Candidate], objectives: Objectives) -> list[str]:
    """All columns in order, also for a study without candidates."""
    columns = [
        "trial",
        "point",
        "family",
        "origin",
        "state",
        "cause",
        "seeds",
        "on_front",
        "front_probability",
    ]
    columns += ["trained", "diverged", "confirmed", "lr", "hash"]
    columns += [c for n in objectives.names for c in (n, f"{n}_low", f"{n}_high")]
    columns += [name for name in QUANTITIES if name not in objectives.names]
    residuals = [
        f"residual_{r['quantity']}"
        for c in candidates
        for r in (c.row.certificate or {}).get("quantities", ())
    ]
    return list(dict.fromkeys([*columns, *residuals]))


def _check_no_artefacts(repository: Repository, name: str) -> None:
    """A new study finds no checkpoints: its runs would go on from those of another database, without their curves."""
    folder = repository.artefacts.under(name)
    if not folder.empty():
        raise ConfigError(
            f"folder {folder.place!r} holds artefacts of a study {name!r}, but database {repository.database.shown} has no "
            f"such study; remove the folder, give the study another name, or name another place in {ARTEFACTS}."
        )


def _find(repository: Repository, name: str | None) -> StudyRow:
    if name is not None:
        return repository.open_study(name)
    studies = repository.list_studies()
    if len(studies) == 1:
        return studies[0]
    if not studies:
        raise ConfigError(f"database {repository.database.shown} holds no study.")
    names = ", ".join(s.name for s in studies)
    raise ConfigError(
        f"database {repository.database.shown} holds {len(studies)} studies: {names}. Say which one."
    )
