"""A waiting run as a job: what a worker is asked to do next, with everything it needs to do it."""

from __future__ import annotations

from pathlib import Path

from crossbreed.core import genome
from crossbreed.core.genome import Architecture
from crossbreed.core.lab.job import Job, Phase
from crossbreed.core.lab.operating_points import OperatingPoint
from crossbreed.core.model.legality import mode_readers
from crossbreed.core.search import preview
from crossbreed.core.search.agenda import Item
from crossbreed.core.search.candidates import OWN
from crossbreed.core.search.study_setting import COST_MODEL, StudySetting
from crossbreed.storage.rows import RunRow, TrialRow


def job_for(
    item: Item, trial: TrialRow, run: RunRow, lease: str, folder: Path, setting: StudySetting, device: str
) -> Job:
    """The next job of a run: to its next rung where runs are compared there, else to the end; or to be timed."""
    file = setting.file
    rungs = tuple(file.train.rung_tokens())
    first = min(s.run_id for s in item.row.seeds) == item.seed.run_id
    phases: tuple[Phase, ...] = ("train", "evaluate")
    judged = _fitting(file.search.points, trial, preview.routed(item.row))
    points: tuple[str, ...] = ()
    ahead = preview.points(item.row, file.search.forced_rates)
    if item.need == "preview":
        phases, points = ("profile",), ahead
    elif item.need == "profile":
        # Forced decisions cost the same whatever the seed; one run of each candidate is timed under them.
        forced = [p for p in judged if p not in ahead] if item.seed.role == "tune" else []
        phases, points = ("profile",), (*forced, OWN)
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
        artefacts=str(folder),
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
        analytics=file.search.analytics,
        # Every seed of a candidate needs the same memory.
        memory=first,
    )


def _fitting(points: tuple[str, ...], trial: TrialRow, routed: bool) -> tuple[str, ...]:
    """The operating points that say anything about a candidate."""
    modes = mode_readers(genome.parse(Architecture, trial.genome, f"trial {trial.number}"))
    return tuple(p for p in points if OperatingPoint.parse(p).fits(routed=routed, modes=modes))
