"""Storing what jobs report: each record under the lease it was made with; a stale one changes nothing."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from crossbreed.core.budget.certificate import Certificate
from crossbreed.core.lab.records import (
    Analysed,
    Curve,
    Evaluated,
    Finished,
    Profiled,
    Record,
    RungDone,
    Started,
    Waiting,
)
from crossbreed.core.search.breeding import Breeder, violation
from crossbreed.core.search.candidates import OWN
from crossbreed.storage import Repository

TRAINED = ("done", "off_budget")


@dataclass(frozen=True)
class Intake:
    """Takes in the records of one study's jobs, and says what the end of a job means for its run."""

    repository: Repository
    study_id: int
    rungs: int
    breeder: Breeder

    def take_all(self, run_id: int, number: int, folder: str, lease: str, records: Iterable[Record]) -> None:
        """All that a worker wrote down, in order."""
        for record in records:
            self.take(run_id, number, folder, lease, record)

    def take(self, run_id: int, number: int, folder: str, lease: str, record: Record) -> bool:
        """Store one record; False when its lease is stale. Raises NotFinite for numbers that no front could hold."""
        if isinstance(record, Finished):
            return self._end(run_id, number, lease, record)
        if isinstance(record, Waiting):
            self.repository.add_event(self.study_id, "waiting", {"trial": number, "cause": record.cause})
            return True
        return store(self.repository, run_id, folder, lease, record)

    def _end(self, run_id: int, number: int, lease: str, last: Finished) -> bool:
        """End a run, or put it back for what it still needs: another rung, or its profile."""
        if last.state not in TRAINED:
            return self.repository.record_finished(
                run_id, lease, last.state, cause=last.cause, traceback=last.traceback
            )
        with self.repository.batch():
            own = self.repository.point(run_id, OWN)
            if own is None or not own.evaluations or not own.speeds:
                return self.repository.release_run(run_id, lease)
            if self.repository.run(run_id).rungs_done < self.rungs:
                return self.repository.release_run(run_id, lease)
            certificate = None if own.certificate is None else Certificate.model_validate(own.certificate)
            if certificate is not None and not certificate.feasible:
                self.breeder.violations[number] = violation(certificate)
                cause = certificate.reason or last.cause
                return self.repository.record_finished(run_id, lease, "off_budget", cause=cause)
            return self.repository.record_finished(run_id, lease, "done")


def run_folder(study: str, number: int, seed: int) -> str:
    """A run's folder, relative to the artefact folder."""
    return f"{study}/{number}/{seed}"


def store(repository: Repository, run_id: int, folder: str, lease: str, record: Record) -> bool:
    """Store one record of a run's results. False when the lease is stale."""
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
            settings=record.settings,
            tolerance=record.tolerance,
            breakdown=record.breakdown,
        )
    if isinstance(record, Analysed):
        return repository.record_analytics(
            run_id,
            lease,
            record.point,
            record.findings,
            version=record.version,
            tokens=record.tokens,
            rows=record.rows,
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
