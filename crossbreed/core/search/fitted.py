"""Keeping a run's fitted routers: files beside the run's own, and an operating point of it. The run is not changed."""

from __future__ import annotations

import hashlib
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from crossbreed.core.budget.matcher import certify
from crossbreed.core.errors import ConfigError, StorageError, UnknownName
from crossbreed.core.genome import digest, from_yaml, to_yaml
from crossbreed.core.host import Registry
from crossbreed.core.lab import checkpoint
from crossbreed.core.lab.analytics import VERSION
from crossbreed.core.lab.fit_router import Fitted
from crossbreed.core.lab.operating_points import FITTED
from crossbreed.core.lab.records import Profiled
from crossbreed.core.model.language_model import LanguageModel
from crossbreed.core.search.trained import TrainedRun, check_file
from crossbreed.storage import Repository

GENOME = "genome.yaml"
FINISHED = ("done", "off_budget")


def check_finished(run: TrainedRun) -> None:
    """Raise ConfigError unless the run has ended by itself: otherwise a worker may still write about it."""
    if run.row.state not in FINISHED or run.row.lease is None:
        raise ConfigError(
            f"run {run.row.key} is {run.row.state}; its routers can be fitted once it is done or off_budget."
        )


def point_name(fitted: Fitted) -> str:
    """``fitted:distilled``."""
    return FITTED + "+".join(sorted({site.student for site in fitted.sites}))


def store(
    repository: Repository, run: TrainedRun, fitted: Fitted, profiled: Profiled | None = None
) -> dict[str, Any]:
    """Write the model and its genome, then record where they are and what they do; returns the point's settings.

    Files come first and the records in one transaction after them: interrupted, nothing of the run has changed. Fitted
    again, the same point is replaced. Raises StorageError when somebody else has taken up the run.
    """
    check_finished(run)
    assert run.row.lease is not None
    name, architecture = point_name(fitted), fitted.architecture
    folder = run.folder / name.replace(":", "-")
    hash = digest(architecture)
    header = replace(run.header, architecture=hash, pending=[], metrics=fitted.fitted.metrics)
    model_path, genome_path = folder / f"model{checkpoint.SUFFIX}", folder / GENOME
    checkpoint.write(repository.artefacts / model_path, fitted.model, None, header)
    (repository.artefacts / genome_path).write_text(to_yaml(architecture), encoding="utf-8")
    settings = {
        "genome": hash,
        "checkpoint": model_path.as_posix(),
        "judged_on": "every second evaluation row; the rows between were fitted on",
        "native": {"score": fitted.native.score, "rates": fitted.native.rates},
        "sites": [asdict(site) for site in fitted.sites],
    }
    cost_model, rates = run.setting.cost_model, fitted.fitted.rates
    with repository.batch():
        repository.add_architecture(hash, architecture.model_dump(mode="json"))
        kept = repository.record_evaluation(
            run.row.id,
            run.row.lease,
            name,
            tokens=run.header.tokens,
            metrics=fitted.fitted.metrics,
            score=fitted.fitted.score,
            rows=fitted.fitted.rows,
            unscored_rows=fitted.fitted.unscored_rows,
            rates=rates,
            ledger=cost_model.estimate(architecture, run.shape, rates=rates).as_dict(),
            certificate=certify(architecture, run.setting.budget, cost_model, rates=rates),
            settings=settings,
        )
        # What was found about an earlier fit is not about this one.
        kept = kept and repository.record_analytics(
            run.row.id, run.row.lease, name, {}, version=VERSION, tokens=run.header.tokens, rows=0
        )
        if profiled is not None:
            kept = kept and repository.record_profile(run.row.id, run.row.lease, name, profiled.measurements)
        for kind, path in (("fitted model", model_path), ("genome", genome_path)):
            kept = kept and _record_file(repository, run, kind, path)
        if not kept:
            raise StorageError(f"run {run.row.key} was taken up by somebody else; nothing was recorded.")
    return settings


def load(repository: Repository, run: TrainedRun, name: str, registry: Registry) -> LanguageModel:
    """The model kept as the run's operating point ``fitted:...``, on the run's device.

    Raises UnknownName for a point that nobody made, ConfigError when its files are missing or changed.
    """
    (detail,) = [
        d for d in repository.trial_detail(run.row.study_id, run.row.number).runs if d.run.id == run.row.id
    ]
    made = {point: row.settings for point, row in detail.points.items() if point.startswith(FITTED)}
    settings = made.get(name)
    if settings is None:
        hint = f" `crossbreed fit-router {run.row.key}` makes one."
        raise UnknownName("fitted operating point", name, made, hint)
    path = repository.artefacts / settings["checkpoint"]
    genome_path = path.with_name(GENOME)
    known = {artefact.path: artefact.sha256 for artefact in detail.artefacts}
    for what, file in (("model", path), ("genome", genome_path)):
        sha256 = known.get(file.relative_to(repository.artefacts).as_posix())
        check_file(file, sha256, f"the {what} of {run.row.key} at {name}")
    architecture = registry.canonical(from_yaml(genome_path.read_text(encoding="utf-8"), str(genome_path)))
    model = LanguageModel(architecture, registry, seed=run.row.seed)
    checkpoint.read(path, model, None, replace(run.header, architecture=settings["genome"]))
    return model.to(run.model.embedding.weight.device).eval()


def _record_file(repository: Repository, run: TrainedRun, kind: str, path: Path) -> bool:
    assert run.row.lease is not None
    content = (repository.artefacts / path).read_bytes()
    return repository.record_artefact(
        run.row.id,
        run.row.lease,
        kind=kind,
        path=path.as_posix(),
        sha256=hashlib.sha256(content).hexdigest(),
        bytes=len(content),
    )
