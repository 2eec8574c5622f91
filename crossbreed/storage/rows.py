"""What the repository returns: frozen plain data, alive after the session that read it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

Data = dict[str, Any]


@dataclass(frozen=True)
class StudyRow:
    """A study; ``reference_point`` (objective -> value) is None until it is fixed."""

    id: int
    name: str
    spec: Data
    reference_point: Data | None
    created_at: datetime


@dataclass(frozen=True)
class PluginText:
    """A plugin file as stored: what was run, whatever became of the file."""

    path: str
    sha256: str
    text: str


@dataclass(frozen=True)
class EventRow:
    """Something that happened in a study; ids grow with time."""

    id: int
    at: datetime
    kind: str
    payload: Data


@dataclass(frozen=True)
class Failure:
    """A way in which ``count`` runs ended badly, with the latest of them."""

    state: str
    cause: str | None
    count: int
    latest: RunRow


@dataclass(frozen=True)
class ArchitectureRow:
    """A canonical genome and its hash."""

    hash: str
    genome: Data


@dataclass(frozen=True)
class TrialRow:
    """One candidate with its genome (canonical, matched), nominal ledger and certificate."""

    id: int
    study_id: int
    number: int
    hash: str
    genome: Data
    family: str
    origin: str
    draws: Data
    state: str
    cause: str | None
    certificate: Data | None
    ledger: Data | None
    created_at: datetime


@dataclass(frozen=True)
class RunRow:
    """One seed of a trial. ``key`` is study/number/seed; ``attempts`` counts leases since its last orderly end.

    ``role``: ``tune`` for a run that helps to choose the trial's setting, ``report`` for one whose numbers are shown.
    """

    id: int
    key: str
    study_id: int
    trial_id: int
    number: int
    seed: int
    role: str
    state: str
    cause: str | None
    traceback: str | None
    attempts: int
    lease: str | None
    worker: str | None
    lease_expires_at: datetime | None
    rungs_done: int
    recipe: Data
    identities: Data
    environment: Data | None
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    updated_at: datetime


@dataclass(frozen=True)
class RungRow:
    """A finished rung: tokens trained so far, its metrics and the checkpoint it left."""

    rung: int
    tokens: int
    metrics: Data
    checkpoint: str | None
    sha256: str | None
    recorded_at: datetime


@dataclass(frozen=True)
class CurveRow:
    """Training after ``step`` steps; a loss (nats) or norm that was not finite is None."""

    step: int
    tokens: int
    loss_nats: float | None
    lr: float | None
    grad_norm: float | None
    aux: Data | None


THROUGHPUT = "tokens/s"
"""The unit of speeds; memory peaks are measured in bytes."""


@dataclass(frozen=True)
class MeasurementRow:
    """A profiled metric; two may be compared only when ``key()`` is equal.

    ``neighbours``: other processes at work on the device meanwhile, in words; empty: none; None: nobody looked.
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
    stable: bool
    threads: int
    backends: Data
    neighbours: str | None = None

    def key(self) -> tuple[str, int, int, str, str, str, bool]:
        """Phase, batch, tokens, dtype, device, policy, compiled: what a chart must not mix."""
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
class EvaluationRow:
    """The task's metrics at one length; ``score`` is None where it was not finite.

    tolerance: how far the score may move with the batch size, relative to the larger of itself and 1; None: stored before it was
    kept.
    """

    tokens: int
    metrics: Data
    score: float | None
    rows: int
    unscored_rows: int
    tolerance: float | None = None


@dataclass(frozen=True)
class BreakdownRow:
    """Where the loss of one evaluation comes from (see ``lab.breakdown``), after ``tokens`` training tokens."""

    number: int
    seed: int
    point: str
    tokens: int
    breakdown: Data


@dataclass(frozen=True)
class PointRow:
    """A run at one operating point: realised rates, ledger and certificate, measurements and evaluations."""

    name: str
    settings: Data | None
    rates: Data | None
    ledger: Data | None
    certificate: Data | None
    measurements: tuple[MeasurementRow, ...] = ()
    evaluations: tuple[EvaluationRow, ...] = ()

    @property
    def speeds(self) -> tuple[MeasurementRow, ...]:
        """Measured throughputs: what is left when a point's memory is put aside."""
        return tuple(m for m in self.measurements if m.unit == THROUGHPUT)

    def measured(self, metric: str) -> tuple[MeasurementRow, ...]:
        """Measurements of one metric, one for each key."""
        return tuple(m for m in self.measurements if m.metric == metric)


@dataclass(frozen=True)
class Analysed:
    """A run (of a candidate, with its seed) and an operating point at which its routers were looked at."""

    number: int
    seed: int
    run_id: int
    point: str


@dataclass(frozen=True)
class AnalyticsRow:
    """What router analytics found of one kind, over ``rows`` evaluation rows, after ``tokens`` training tokens."""

    kind: str
    version: int
    tokens: int
    rows: int
    payload: Data
    recorded_at: datetime


@dataclass(frozen=True)
class ArtefactRow:
    """A file of a run; ``path`` is relative to the artefact folder."""

    kind: str
    path: str
    sha256: str
    bytes: int


@dataclass(frozen=True)
class SeedRow:
    """One seed of a candidate: how it ended, and its operating points by name. ``lr``: its recipe's learning rate."""

    run_id: int
    seed: int
    state: str
    cause: str | None
    rungs_done: int
    identities: Data
    points: dict[str, PointRow] = field(default_factory=dict)
    role: str = "tune"
    lr: float | None = None


@dataclass(frozen=True)
class CandidateRow:
    """A trial as fronts, samplers and tables need it; ledger and certificate are None unless asked for."""

    trial_id: int
    number: int
    hash: str
    family: str
    origin: str
    draws: Data
    state: str
    cause: str | None
    certificate: Data | None
    ledger: Data | None
    seeds: tuple[SeedRow, ...]

    def in_state(self, *states: str) -> tuple[SeedRow, ...]:
        """The seeds in one of these states."""
        return tuple(s for s in self.seeds if s.state in states)


class Stamp(NamedTuple):
    """A cheap value that moves with whatever is recorded in a study.

    trials: how many there are. revisions: of all of them and their runs together. event: id of the latest, 0 before any.
    changed_at: when anything was last recorded about a run.
    """

    trials: int
    revisions: int
    event: int
    changed_at: datetime | None


Revision = tuple[int, int, str]
"""A trial's id, how often it and its runs were changed, and the latest time, as stored. Two readings of a trial between which
anything was recorded differ in it, whatever the clock does."""


@dataclass(frozen=True)
class Changes:
    """A study as it is now, by what differs from an earlier reading: the candidates whose revisions do, by number.

    revisions: number -> revision, of all candidates there are.
    """

    stamp: Stamp
    revisions: Mapping[int, Revision]
    rows: tuple[CandidateRow, ...]


@dataclass(frozen=True)
class RunDetail:
    """Everything stored about one run but its curve."""

    run: RunRow
    rungs: tuple[RungRow, ...]
    points: dict[str, PointRow]
    artefacts: tuple[ArtefactRow, ...]


@dataclass(frozen=True)
class TrialDetail:
    """One candidate in full."""

    trial: TrialRow
    runs: tuple[RunDetail, ...]
