"""What a trial reports while it runs: small frozen records of plain data that survive JSON exactly.

A worker streams them to the driver, which stores them; a record sent twice is the same record.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from crossbreed.core.errors import ConfigError, nearest

State = Literal["done", "off_budget", "out_of_memory", "diverged", "failed", "preempted"]
"""How a trial ends; the driver knows further states of trials that never ran."""

Rates = dict[str, tuple[float, ...]]
"""Routed site -> share of the asked tokens per choice."""


@dataclass(frozen=True)
class Started:
    """The first record of a trial: where it runs, and the step its training goes on from."""

    environment: dict[str, Any]
    resumed_step: int = 0


@dataclass(frozen=True)
class Measurement:
    """A median of repeated measurements, with everything that must be equal before two of them may be compared.

    The key is (phase, batch, tokens, dtype, device, policy, compiled). ``compiled``: its kernels were recorded once and replayed,
    rather than launched one by one. ``stable``: the warm-up settled before its bound.
    ``neighbours``: other processes that were at work on the device meanwhile, in words; empty when there were none, None
    when nobody looked.
    """

    metric: str
    unit: str
    phase: str
    batch: int
    tokens: int
    dtype: str
    device: str
    policy: str
    compiled: bool
    median: float
    q1: float
    q3: float
    repeats: int
    stable: bool = True
    threads: int = 1
    backends: dict[str, str] = field(default_factory=dict)
    neighbours: str | None = None

    def key(self) -> tuple[str, int, int, str, str, str, bool]:
        """What a chart must not mix."""
        return (
            self.phase,
            self.batch,
            self.tokens,
            self.dtype,
            self.device,
            self.policy,
            self.compiled,
        )


@dataclass(frozen=True)
class Waiting:
    """The job stands still until something is free; ``cause`` says what, and who has it."""

    cause: str


@dataclass(frozen=True)
class Profiled:
    """Measurements at one operating point, and the rates its decisions had while measuring decode."""

    point: str
    rates: Rates
    measurements: tuple[Measurement, ...]


@dataclass(frozen=True)
class CurvePoint:
    """Training after ``step`` steps; loss (nats a scored token) and gradient norm are means since the last point."""

    step: int
    tokens: int
    loss_nats: float
    lr: float
    grad_norm: float
    aux: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Curve:
    """Some successive points of the training curve."""

    points: tuple[CurvePoint, ...]


@dataclass(frozen=True)
class RungDone:
    """A rung's end: its evaluation and the checkpoint it left (path relative to the run's artefact folder)."""

    rung: int
    tokens: int
    metrics: dict[str, float]
    checkpoint: str
    sha256: str
    bytes: int


@dataclass(frozen=True)
class Evaluated:
    """The evaluation of a trained model at one operating point, with its realised ledger and certificate.

    settings: what else tells how it was judged: on texts of another length, their ``length`` in tokens and the SHA-256 of the
    ``items``.
    tolerance: how far the score may move with the batch size, see ``lab.evaluate``.
    breakdown: the losses by class of positions and along the text, see ``lab.breakdown``.
    """

    point: str
    tokens: int
    metrics: dict[str, float]
    score: float
    rates: Rates
    rows: int
    unscored_rows: int
    ledger: dict[str, Any] | None = None
    certificate: dict[str, Any] | None = None
    settings: dict[str, Any] | None = None
    tolerance: float | None = None
    breakdown: dict[str, Any] | None = None


@dataclass(frozen=True)
class Analysed:
    """Router analytics at one operating point: kind -> numbers, over ``rows`` evaluation rows.

    ``version`` is that of their form; ``tokens`` those the model had been trained on.
    """

    point: str
    tokens: int
    rows: int
    version: int
    findings: dict[str, dict[str, Any]]


@dataclass(frozen=True)
class Finished:
    """The last record of a trial. ``cause`` is a sentence, empty when done."""

    state: State
    cause: str = ""
    traceback: str = ""


Record = Started | Waiting | Profiled | Curve | RungDone | Evaluated | Analysed | Finished
RECORDS: dict[str, type[Record]] = {
    cls.__name__: cls for cls in (Started, Waiting, Profiled, Curve, RungDone, Evaluated, Analysed, Finished)
}


def to_json(record: Record) -> dict[str, Any]:
    """Plain data of a record, with its kind under ``"record"``."""
    return {"record": type(record).__name__, **asdict(record)}


def from_json(data: Mapping[str, Any]) -> Record:
    """The record that ``to_json`` wrote. Raises ConfigError for an unknown kind."""
    fields = dict(data)
    kind = fields.pop("record", None)
    if kind not in RECORDS:
        raise ConfigError(f"unknown record kind {kind!r}{nearest(str(kind), RECORDS)}")
    if "rates" in fields:
        fields["rates"] = {site: tuple(shares) for site, shares in fields["rates"].items()}
    if kind == "Profiled":
        fields["measurements"] = tuple(Measurement(**m) for m in fields["measurements"])
    if kind == "Curve":
        fields["points"] = tuple(CurvePoint(**p) for p in fields["points"])
    return RECORDS[kind](**fields)
