"""The tables. Study -> Trial (one candidate) -> Run (one seed) -> rungs, curve points and operating points.

These tables are the only truth of a search: samplers, fronts and charts are rebuilt from them. Change them together
with a new file in ``migrations/versions`` and ``REVISION``; a test compares both on SQLite and PostgreSQL.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, ClassVar

from sqlalchemy import (
    JSON,
    BigInteger,
    CheckConstraint,
    DateTime,
    Dialect,
    ForeignKey,
    Index,
    MetaData,
    String,
    Text,
    UniqueConstraint,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column
from sqlalchemy.types import TypeDecorator

from crossbreed.storage.states import STATES

REVISION = "0007"
"""The Alembic revision these models describe; a database at any other is migrated, or refused when it is newer."""

VERSION_TABLE = "crossbreed_version"
"""Our own name for Alembic's table: a database of another project that uses Alembic is not taken for ours."""

Data = dict[str, Any]


class UtcDateTime(TypeDecorator[datetime]):
    """An aware UTC time on every database; SQLite keeps no zone, so it is taken off and put back."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError(f"time {value} has no zone; stored times are UTC")
        value = value.astimezone(UTC)
        return value.replace(tzinfo=None) if dialect.name == "sqlite" else value

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


class Base(DeclarativeBase):
    """Deterministic constraint names, so that later migrations can name what they change."""

    metadata = MetaData(
        naming_convention={
            "ix": "ix_%(column_0_N_label)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
            "ck": "ck_%(table_name)s_%(constraint_name)s",
            "fk": "fk_%(table_name)s_%(column_0_N_name)s_%(referred_table_name)s",
            "pk": "pk_%(table_name)s",
        }
    )
    type_annotation_map: ClassVar = {
        dict[str, Any]: JSON(none_as_null=True),
        datetime: UtcDateTime(),
        str: String(),
    }


def _state_check() -> CheckConstraint:
    return CheckConstraint(f"state IN ({', '.join(repr(s) for s in STATES)})", name="state")


class Study(Base):
    """One search under one budget; ``spec`` is its study file as data."""

    __tablename__ = "study"

    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(unique=True)
    spec: Mapped[Data]
    reference_point: Mapped[
        Data | None
    ]  # objective -> value; hypervolume is measured from here, fixed once set
    created_at: Mapped[datetime]


class DriverLease(Base):
    """Who drives a study now. ``boot`` and ``started`` tell a reused process id from the same process."""

    __tablename__ = "driver_lease"

    study_id: Mapped[int] = mapped_column(ForeignKey("study.id", ondelete="CASCADE"), primary_key=True)
    token: Mapped[str]
    host: Mapped[str]
    boot: Mapped[str]
    pid: Mapped[int]
    started: Mapped[float]  # process creation, seconds since the epoch
    heartbeat_at: Mapped[datetime]
    expires_at: Mapped[datetime]


class PluginFileRow(Base):
    """A plugin given as a file, stored by content; every version a study ever used is kept."""

    __tablename__ = "plugin_file"
    __table_args__ = (UniqueConstraint("study_id", "path", "sha256"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    study_id: Mapped[int] = mapped_column(ForeignKey("study.id", ondelete="CASCADE"))
    path: Mapped[str]
    sha256: Mapped[str] = mapped_column(String(64))
    text: Mapped[str] = mapped_column(Text)
    added_at: Mapped[datetime]


class Architecture(Base):
    """A canonical genome: the same architecture is one row, however written, in whichever study."""

    __tablename__ = "architecture"

    id: Mapped[int] = mapped_column(primary_key=True)
    hash: Mapped[str] = mapped_column(String(64), unique=True)
    genome: Mapped[Data]


class Trial(Base):
    """One candidate of a study: what was drawn, what it became after matching, and its nominal cost.

    ``revision`` counts changes of the trial itself; what its runs do to it is counted by theirs.
    """

    __tablename__ = "trial"
    __table_args__ = (
        UniqueConstraint("study_id", "number"),
        # Readers ask what changed; they must not pass through certificates and ledgers to find out.
        Index(None, "study_id", "number", "revision"),
        _state_check(),
    )

    id: Mapped[int] = mapped_column(primary_key=True)
    study_id: Mapped[int] = mapped_column(ForeignKey("study.id", ondelete="CASCADE"))
    number: Mapped[int]
    architecture_id: Mapped[int] = mapped_column(ForeignKey("architecture.id"), index=True)
    family: Mapped[str]
    origin: Mapped[str]  # reference | start | sampler | named ...
    draws: Mapped[Data]
    state: Mapped[str] = mapped_column(String(16))
    cause: Mapped[str | None] = mapped_column(Text)
    certificate: Mapped[Data | None]
    ledger: Mapped[Data | None]
    created_at: Mapped[datetime]
    revision: Mapped[int] = mapped_column(server_default="1")


class Run(Base):
    """One seed of a trial. ``lease`` is the token of the worker whose records are accepted.

    ``revision`` counts what was recorded about the run: it says what changed where a clock, which may stand still or step
    back, cannot.
    """

    __tablename__ = "run"
    __table_args__ = (
        UniqueConstraint("trial_id", "seed"),
        Index(None, "trial_id", "state"),
        Index(None, "trial_id", "revision", "updated_at"),
        _state_check(),
    )

    id: Mapped[int] = mapped_column(primary_key=True)
    trial_id: Mapped[int] = mapped_column(ForeignKey("trial.id", ondelete="CASCADE"))
    seed: Mapped[int]
    role: Mapped[str] = mapped_column(String(8), server_default="tune")  # tune | report
    state: Mapped[str] = mapped_column(String(16))
    cause: Mapped[str | None] = mapped_column(Text)
    traceback: Mapped[str | None] = mapped_column(Text)
    attempts: Mapped[int] = mapped_column(default=0)  # leases since the run last ended or gave its lease back
    lease: Mapped[str | None] = mapped_column(String(32))
    worker: Mapped[str | None]
    lease_expires_at: Mapped[datetime | None]
    rungs_done: Mapped[int] = mapped_column(default=0)
    recipe: Mapped[Data]
    identities: Mapped[Data]
    environment: Mapped[Data | None]
    created_at: Mapped[datetime]
    started_at: Mapped[datetime | None]
    finished_at: Mapped[datetime | None]
    updated_at: Mapped[datetime]
    revision: Mapped[int] = mapped_column(server_default="1")


class Rung(Base):
    """A finished rung; recorded again only under a newer lease (its checkpoint was lost with the worker)."""

    __tablename__ = "rung"

    run_id: Mapped[int] = mapped_column(ForeignKey("run.id", ondelete="CASCADE"), primary_key=True)
    rung: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    lease: Mapped[str] = mapped_column(String(32))
    tokens: Mapped[int] = mapped_column(BigInteger)
    metrics: Mapped[Data]
    checkpoint: Mapped[str | None]
    sha256: Mapped[str | None] = mapped_column(String(64))
    recorded_at: Mapped[datetime]


class CurvePoint(Base):
    """One point of a training curve; a loss or norm that was not finite is null."""

    __tablename__ = "curve_point"
    __table_args__ = ({"sqlite_with_rowid": False},)

    run_id: Mapped[int] = mapped_column(ForeignKey("run.id", ondelete="CASCADE"), primary_key=True)
    step: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    tokens: Mapped[int] = mapped_column(BigInteger)
    loss_nats: Mapped[float | None]
    lr: Mapped[float | None]
    grad_norm: Mapped[float | None]
    aux: Mapped[Data | None]


class OperatingPoint(Base):
    """How a trained run is used: at its own decisions, at forced rates, under a schedule."""

    __tablename__ = "operating_point"
    __table_args__ = (UniqueConstraint("run_id", "name"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    run_id: Mapped[int] = mapped_column(ForeignKey("run.id", ondelete="CASCADE"))
    name: Mapped[str]
    settings: Mapped[Data | None]
    rates: Mapped[Data | None]  # realised, as are the ledger and the certificate
    ledger: Mapped[Data | None]
    certificate: Mapped[Data | None]


class Measurement(Base):
    """One profiled metric under one full key; numbers of different keys are never compared."""

    __tablename__ = "measurement"
    __table_args__ = (
        UniqueConstraint(
            "operating_point_id",
            "metric",
            "phase",
            "batch",
            "tokens",
            "dtype",
            "device",
            "policy",
            "compiled",
            name="uq_measurement_key",  # PostgreSQL cuts names at 63 characters
        ),
    )

    id: Mapped[int] = mapped_column(primary_key=True)
    operating_point_id: Mapped[int] = mapped_column(ForeignKey("operating_point.id", ondelete="CASCADE"))
    metric: Mapped[str]
    phase: Mapped[str]
    batch: Mapped[int]
    tokens: Mapped[int]
    dtype: Mapped[str]
    device: Mapped[str]
    policy: Mapped[str]
    compiled: Mapped[bool]
    median: Mapped[float]
    q1: Mapped[float]
    q3: Mapped[float]
    repeats: Mapped[int]
    stable: Mapped[bool]  # the warm-up settled before its bound
    threads: Mapped[int]
    unit: Mapped[str]
    backends: Mapped[Data]
    # Other processes at work on the device meanwhile, in words; empty: none; null: nobody looked.
    neighbours: Mapped[str | None] = mapped_column(Text)


class Evaluation(Base):
    """The task's metrics of one operating point at one length; ``breakdown`` says where its loss comes from."""

    __tablename__ = "evaluation"
    __table_args__ = (UniqueConstraint("operating_point_id", "tokens"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    operating_point_id: Mapped[int] = mapped_column(ForeignKey("operating_point.id", ondelete="CASCADE"))
    tokens: Mapped[int]
    metrics: Mapped[Data]
    score: Mapped[float | None]
    rows: Mapped[int]
    unscored_rows: Mapped[int]
    # How far the score may move with the batch size, relative to the larger of itself and 1; null: stored before it was kept.
    tolerance: Mapped[float | None]
    breakdown: Mapped[
        Data | None
    ]  # by class of positions and along the text; null: stored before it was kept


class Analytics(Base):
    """One kind of finding of router analytics at an operating point.

    ``version`` is that of the payload's form; ``tokens`` those the model had been trained on, ``rows`` the evaluation rows
    looked at.
    """

    __tablename__ = "analytics"
    __table_args__ = (UniqueConstraint("operating_point_id", "kind"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    operating_point_id: Mapped[int] = mapped_column(ForeignKey("operating_point.id", ondelete="CASCADE"))
    kind: Mapped[str]
    version: Mapped[int]
    tokens: Mapped[int] = mapped_column(BigInteger)
    rows: Mapped[int]
    payload: Mapped[Data]
    recorded_at: Mapped[datetime]


class Artefact(Base):
    """A file of a run; ``path`` is relative to the database's artefact folder."""

    __tablename__ = "artefact"
    __table_args__ = (UniqueConstraint("run_id", "path"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    run_id: Mapped[int] = mapped_column(ForeignKey("run.id", ondelete="CASCADE"))
    kind: Mapped[str]
    path: Mapped[str]
    sha256: Mapped[str] = mapped_column(String(64))
    bytes: Mapped[int] = mapped_column(BigInteger)


class Event(Base):
    """What happened in a study, in order, for live views and for reading afterwards."""

    __tablename__ = "event"
    __table_args__ = (Index(None, "study_id", "id"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    study_id: Mapped[int] = mapped_column(ForeignKey("study.id", ondelete="CASCADE"))
    at: Mapped[datetime]
    kind: Mapped[str]
    payload: Mapped[Data]
