"""A waiting run as a job: what a worker is asked to do next, with everything it needs to do it."""

from __future__ import annotations

from pathlib import Path

from crossbreed.core.lab.job import Job, Phase
from crossbreed.core.search.agenda import Item
from crossbreed.core.search.candidates import OWN
from crossbreed.core.search.study_setting import COST_MODEL, StudySetting
from crossbreed.storage.rows import TrialRow


def job_for(item: Item, trial: TrialRow, lease: str, folder: Path, setting: StudySetting, device: str) -> Job:
    """The next job of a run: to its next rung where runs are compared there, else to the end; or its profile."""
    file, recipe = setting.file, setting.file.train
    rungs = tuple(recipe.rung_tokens())
    first = min(s.run_id for s in item.row.seeds) == item.seed.run_id
    phases: tuple[Phase, ...] = ("train", "evaluate")
    points: tuple[str, ...] = ()
    if item.need != "train":
        phases = ("profile",)
        routed = bool((trial.ledger or {}).get("rates"))
        # Forced decisions cost the same whatever the seed; one run of each candidate is timed under them.
        forced = tuple(f"forced:{rate:g}" for rate in file.search.forced_rates) if routed and first else ()
        points = (*forced, OWN)
    elif first and item.seed.rungs_done < len(rungs) - 1:
        phases, rungs = ("train",), rungs[: item.seed.rungs_done + 1]
    return Job(
        study=file.name,
        number=item.row.number,
        seed=item.seed.seed,
        lease=lease,
        architecture=trial.genome,
        task={"name": file.task.name, "params": file.task.params},
        recipe=recipe.model_dump(mode="json"),
        artefacts=str(folder),
        rungs=rungs,
        budget=setting.budget.model_dump(mode="json"),
        certificate=trial.certificate,
        plugins=tuple(setting.registry.files),
        cost={"name": COST_MODEL, "params": {}},
        device=device,
        threads=file.search.threads,
        phases=phases,
        points=points,
    )
