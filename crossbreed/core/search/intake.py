"""Storing what jobs report: each record under the lease it was made with; a stale one changes nothing."""

from __future__ import annotations

from crossbreed.core.lab.records import Curve, Evaluated, Profiled, Record, RungDone, Started
from crossbreed.storage import Repository


def run_folder(study: str, number: int, seed: int) -> str:
    """A run's folder, relative to the artefact folder."""
    return f"{study}/{number}/{seed}"


def store(repository: Repository, run_id: int, folder: str, lease: str, record: Record) -> bool:
    """Store one record but ``Finished``, whose meaning is the driver's. False when the lease is stale."""
    if isinstance(record, Started):
        environment = {**record.environment, "resumed_step": record.resumed_step}
        return repository.record_started(run_id, lease, environment)
    if isinstance(record, Curve):
        return repository.record_curve(run_id, lease, record.points)
    if isinstance(record, Profiled):
        return repository.record_profile(run_id, lease, record.point, record.measurements, rates=record.rates)
    if isinstance(record, Evaluated):
        return repository.record_evaluation(
            run_id,
            lease,
            record.point,
            tokens=record.tokens,
            metrics=record.metrics,
            score=record.score,
            rows=record.rows,
            unscored_rows=record.unscored_rows,
            rates=record.rates,
            ledger=record.ledger,
            certificate=record.certificate,
        )
    if isinstance(record, RungDone):
        return _store_rung(repository, run_id, folder, lease, record)
    raise TypeError(f"a {type(record).__name__} is not stored as a result")


def _store_rung(repository: Repository, run_id: int, folder: str, lease: str, record: RungDone) -> bool:
    path = f"{folder}/{record.checkpoint}"
    with repository.batch():
        return repository.record_rung(
            run_id,
            lease,
            rung=record.rung,
            tokens=record.tokens,
            metrics=record.metrics,
            checkpoint=path,
            sha256=record.sha256,
        ) and repository.record_artefact(
            run_id, lease, kind="checkpoint", path=path, sha256=record.sha256, bytes=record.bytes
        )
