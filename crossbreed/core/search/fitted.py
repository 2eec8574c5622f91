"""Keeping a run's fitted routers: files beside the run's own, and an operating point of it. The run is not changed."""

from __future__ import annotations

import hashlib
from contextlib import AbstractContextManager
from dataclasses import asdict, replace
from pathlib import PurePosixPath
from typing import Any

from crossbreed.core.artefacts import Artefacts
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
from crossbreed.core.search.trained import TrainedRun, checked
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
    model_name, genome_name = str(folder / f"model{checkpoint.SUFFIX}"), str(folder / GENOME)
    stored = checkpoint.write(repository.artefacts, model_name, fitted.model, None, header)
    text = to_yaml(architecture).encode()
    repository.artefacts.write(genome_name, text)
    settings = {
        "genome": hash,
        "checkpoint": model_name,
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
        files = (
            ("fitted model", model_name, stored.sha256, stored.bytes),
            ("genome", genome_name, hashlib.sha256(text).hexdigest(), len(text)),
        )
        for kind, path, sha256, bytes in files:
            kept = kept and repository.record_artefact(
                run.row.id, run.row.lease, kind=kind, path=path, sha256=sha256, bytes=bytes
            )
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
    model_name = str(settings["checkpoint"])
    genome_name = str(PurePosixPath(model_name).with_name(GENOME))
    known = {artefact.path: artefact.sha256 for artefact in detail.artefacts}

    def kept(what: str, file: str) -> AbstractContextManager[tuple[Artefacts, str]]:
        return checked(repository.artefacts, file, known.get(file), f"the {what} of {run.row.key} at {name}")

    with kept("model", model_name) as (folder, model_file), kept("genome", genome_name) as (beside, file):
        architecture = registry.canonical(from_yaml(beside.read(file).decode(), genome_name))
        model = LanguageModel(architecture, registry, seed=run.row.seed)
        expected = replace(run.header, architecture=settings["genome"])
        checkpoint.read(folder, model_file, model, None, expected)
    return model.to(run.model.embedding.weight.device).eval()
