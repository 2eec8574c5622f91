"""Small things to store."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Any

from crossbreed.core.lab.records import CurvePoint, Measurement
from crossbreed.storage import Repository
from crossbreed.storage.rows import RunRow, TrialRow

SECONDS = 60.0


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def add_trial(repository: Repository, study_id: int, name: str = "a", **changes: Any) -> TrialRow:
    fields: dict[str, Any] = {
        "hash": digest(name),
        "genome": {"vocab": 64, "name": name},
        "family": "attention",
        "origin": "start",
        "draws": {"layers": 2},
        "certificate": {"feasible": True},
        "ledger": {"parameters": 1000},
    }
    return repository.add_trial(study_id, **(fields | changes))


def add_run(repository: Repository, study: str = "study", name: str = "a", seed: int = 0) -> RunRow:
    """A queued run of a new trial, in a study made when missing."""
    found = repository.find_study(study) or repository.create_study(study, {"schema": 1})
    trial = add_trial(repository, found.id, name)
    return repository.add_run(trial.id, seed, recipe={"lr": 1e-3}, identities={"mixer:attention": "0.1.0"})


def leased(repository: Repository, run: RunRow, worker: str = "worker-0") -> str:
    lease = repository.lease_run(run.id, worker, seconds=SECONDS)
    assert lease is not None
    return lease


def running(repository: Repository, run: RunRow) -> str:
    lease = leased(repository, run)
    assert repository.record_started(run.id, lease, {"torch": "2"})
    return lease


def curve(first: int, last: int, loss: float = 2.0) -> list[CurvePoint]:
    return [CurvePoint(step, step * 32, loss, 1e-3, 1.0, {"router": 0.5}) for step in range(first, last)]


def speed(median: float, metric: str = "decode_tokens_per_s", **changes: Any) -> Measurement:
    fields: dict[str, Any] = {
        "metric": metric,
        "unit": "tokens/s",
        "phase": metric.split("_")[0],
        "batch": 1,
        "tokens": 32,
        "dtype": "float32",
        "device": "cpu",
        "policy": "reference",
        "compiled": False,
        "median": median,
        "q1": median * 0.9,
        "q3": median * 1.1,
        "repeats": 7,
        "backends": {"attention": "reference"},
    }
    return Measurement(**(fields | changes))


@dataclass(frozen=True)
class Ledgerish:
    """A dataclass with what JSON has no form for."""

    parameters: int
    rates: dict[str, tuple[float, ...]] = field(default_factory=dict)
