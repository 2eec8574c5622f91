"""Candidates with results, without a database."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from crossbreed.core.search.candidates import Candidate, Objectives, read
from crossbreed.storage.rows import CandidateRow, EvaluationRow, MeasurementRow, PointRow, SeedRow

TWO = Objectives({"score": "max", "decode_tokens_per_s": "max"})
SCORE = Objectives({"score": "max"})


def measurement(median: float) -> MeasurementRow:
    fields: dict[str, Any] = dict.fromkeys(MeasurementRow.__dataclass_fields__, 0)
    fields |= {"metric": "decode_tokens_per_s", "phase": "decode", "batch": 1, "tokens": 16, "median": median}
    return MeasurementRow(**{**fields, "device": "cpu", "policy": "best"})


def seed(
    number: int,
    score: float | None,
    speed: float | None = None,
    state: str = "done",
    role: str = "report",
) -> SeedRow:
    speeds = () if speed is None else (measurement(speed),)
    evaluations = () if score is None else (EvaluationRow(16, {}, score, 8, 0),)
    own = PointRow("own", None, None, None, None, speeds, evaluations)
    identities = {"mixer:attention": "crossbreed 1"}
    return SeedRow(number + 1, number, state, None, 1, identities, {"own": own}, role)


def row(number: int, seeds: Sequence[SeedRow], **more: Any) -> CandidateRow:
    fields: dict[str, Any] = {
        "trial_id": number,
        "number": number,
        "hash": f"{number:064x}",
        "family": "f",
        "origin": "sampler",
        "draws": {},
        "state": "done",
        "cause": None,
        "certificate": None,
        "ledger": None,
        "seeds": tuple(seeds),
    }
    return CandidateRow(**{**fields, **more})


def scored(
    scores: Mapping[int, Sequence[float]],
    speeds: Mapping[int, Sequence[float]] | None = None,
    draws: Mapping[int, Mapping[str, Any]] | None = None,
) -> list[Candidate]:
    """Candidates by number, with one score (and speed) a seed."""
    rows = [
        row(
            number,
            [
                seed(i, score, speeds[number][i] if speeds is not None else None)
                for i, score in enumerate(values)
            ],
            draws=dict(draws[number]) if draws is not None else {},
        )
        for number, values in scores.items()
    ]
    return read(rows, SCORE if speeds is None else TWO)
