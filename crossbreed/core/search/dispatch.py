"""A waiting run as a job: what a worker is asked to do next, with everything it needs to do it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from crossbreed.core import genome
from crossbreed.core.genome import Architecture
from crossbreed.core.lab.job import Job, Phase
from crossbreed.core.lab.operating_points import OperatingPoint
from crossbreed.core.lab.speeds import Settled
from crossbreed.core.search import preview
from crossbreed.core.search.agenda import Item
from crossbreed.core.search.candidates import OWN
from crossbreed.core.search.study_setting import COST_MODEL, StudySetting
from crossbreed.storage import Repository
from crossbreed.storage.rows import RunRow, TrialRow


def job_for(
    item: Item,
    trial: TrialRow,
    run: RunRow,
    lease: str,
    place: str,
    setting: StudySetting,
    device: str,
    judged: tuple[str, ...] = (),
) -> Job:
    """The next job of a run, its files at ``place``: to its next rung where runs are compared there, else to the end; or to be timed.

    ``judged``: the operating points that say anything about its candidate.
    """
    file = setting.file
    rungs = tuple(file.train.rung_tokens())
    first = min(s.run_id for s in item.row.seeds) == item.seed.run_id
    phases: tuple[Phase, ...] = ("train", "evaluate")
    points: tuple[str, ...] = ()
    ahead = preview.points(item.row, file.search.forced_rates)
    if item.need == "preview":
        phases, points = ("profile",), ahead
    elif item.need == "profile":
        # Every seed counts at every point; what was timed before, as by a preview, stays.
        stored = item.seed.points
        timed = {name for name, point in stored.items() if point.speeds}
        points = tuple(name for name in (*judged, OWN) if name not in timed)
        judged = tuple(p for p in judged if p not in stored or not stored[p].evaluations)
        phases = (*(("evaluate",) if judged else ()), *(("profile",) if points else ()))
    elif item.seed.role == "tune" and item.seed.rungs_done < len(rungs) - 1:
        phases, rungs = ("train",), rungs[: item.seed.rungs_done + 1]
    return Job(
        study=file.name,
        number=item.row.number,
        seed=item.seed.seed,
        lease=lease,
        architecture=trial.genome,
        task={"name": file.task.name, "params": file.task.params},
        recipe=run.recipe,
        artefacts=place,
        rungs=rungs,
        budget=setting.budget.model_dump(mode="json"),
        certificate=trial.certificate,
        plugins=tuple(setting.registry.files),
        trust=setting.registry.trust,
        cost={"name": COST_MODEL, "params": {}},
        device=device,
        threads=file.search.threads,
        phases=phases,
        points=points,
        judged=judged,
        backend=file.search.backend,
        analytics=file.search.analytics,
        captured=file.search.captured,
        devices=file.search.devices_per_trial,
        # Every seed of a candidate needs the same memory.
        memory=first and file.search.peaks,
    )


def settled(runs: Iterable[RunRow]) -> Settled:
    """What mixers of one candidate are built with, by device, where its runs have measured that: the first one's word counts."""
    found: Settled = {}
    for environment in (run.environment or {} for run in runs):
        if environment.get("speeds") is not None:
            found.setdefault(environment["device"], environment["speeds"])
    return found


@dataclass
class Fitting:
    """Which operating points of the study file say anything about a candidate, by its number; looked up once for each."""

    repository: Repository
    study_id: int
    setting: StudySetting
    _known: dict[int, tuple[str, ...]] = field(default_factory=dict)

    def __call__(self, number: int) -> tuple[str, ...]:
        points, length = self.setting.file.points, self.setting.task.length
        if points and number not in self._known:
            genes = self.repository.trial(self.study_id, number).genome
            architecture = genome.parse(Architecture, genes, f"trial {number}")
            self._known[number] = tuple(
                p for p in points if OperatingPoint.parse(p).fits(architecture, self.setting.registry, length)
            )
        return self._known.get(number, ())
