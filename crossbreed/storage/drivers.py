"""The driver lease: one process drives a study at a time.

A dead process on this host is taken over at once; on another host, where we cannot look, when its lease expires.
"""

from __future__ import annotations

import os
import socket
import uuid
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

import psutil
from sqlalchemy import delete, update
from sqlalchemy.orm import Session

from crossbreed.core.errors import StudyBusy
from crossbreed.storage import schema
from crossbreed.storage.database import Database
from crossbreed.storage.studies import locked_study, now
from crossbreed.storage.upsert import upsert

LEASE_SECONDS = 60.0
"""A driver's lease unless it says otherwise; it sends a heartbeat several times in that span."""


@dataclass(frozen=True)
class Driver:
    """A process on a host. Boot id and start time tell it from a later process with its number."""

    host: str
    boot: str
    pid: int
    started: float

    @staticmethod
    def here() -> Driver:
        """This process."""
        process = psutil.Process()
        return Driver(socket.gethostname(), _boot_id(), os.getpid(), process.create_time())

    def signature(self, role: str) -> str:
        """How this process signs the leases of runs that it holds as ``role``."""
        return f"{role} {self.host} {self.pid} {self.started:.2f} {self.boot}"

    @staticmethod
    def read(signature: str | None) -> tuple[str, Driver] | None:
        """Role and process of a signature; None for what is none."""
        parts = (signature or "").split(" ")
        if len(parts) != 5 or not parts[2].isdecimal():
            return None
        return parts[0], Driver(parts[1], parts[4], int(parts[2]), float(parts[3]))

    def certainly_dead(self) -> bool:
        """True when this host can tell that the process has ended; never for a process of another host."""
        if self.host != socket.gethostname():
            return False
        if self.boot != _boot_id():
            return True
        try:
            process = psutil.Process(self.pid)
            # The start time is kept in clock ticks, so two readings may differ by a rounding.
            same = abs(process.create_time() - self.started) < 1.0
            return not same or process.status() == psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return True


@dataclass(frozen=True)
class DriverHold:
    """A lease that was given: its token, and the driver it was taken over from, if any."""

    token: str
    previous: Driver | None


@dataclass(frozen=True)
class DriverRow:
    """Who holds a study's lease."""

    driver: Driver
    heartbeat_at: datetime
    expires_at: datetime


class Drivers:
    """The part of the repository about driver leases."""

    database: Database

    def acquire_driver_lease(
        self, study_id: int, driver: Driver | None = None, *, seconds: float = LEASE_SECONDS
    ) -> DriverHold:
        """Take the study's lease for ``driver`` (this process).

        Raises StudyBusy, naming host and process, while another driver holds it.
        """
        driver = driver or Driver.here()
        with self.database.writing() as session:
            study = locked_study(session, study_id)
            held = session.get(schema.DriverLease, study_id)
            previous = None
            if held is not None:
                previous = _driver(held)
                _check_free(study.name, previous, held.expires_at, driver)
            token, at = uuid.uuid4().hex, now()
            row = {
                "study_id": study_id,
                "token": token,
                "host": driver.host,
                "boot": driver.boot,
                "pid": driver.pid,
                "started": driver.started,
                "heartbeat_at": at,
                "expires_at": at + timedelta(seconds=seconds),
            }
            upsert(session, schema.DriverLease, [row], ["study_id"])
            return DriverHold(token, previous)

    def heartbeat(self, study_id: int, token: str, *, seconds: float = LEASE_SECONDS) -> bool:
        """Keep the lease for ``seconds`` more; False when it was lost to another driver, who is driving now."""
        at = now()
        with self.database.writing() as session:
            return _changed(
                session,
                update(schema.DriverLease)
                .where(schema.DriverLease.study_id == study_id, schema.DriverLease.token == token)
                .values(heartbeat_at=at, expires_at=at + timedelta(seconds=seconds)),
            )

    def release_driver_lease(self, study_id: int, token: str) -> bool:
        """Give the lease back; False when it was not held any more."""
        with self.database.writing() as session:
            return _changed(
                session,
                delete(schema.DriverLease).where(
                    schema.DriverLease.study_id == study_id, schema.DriverLease.token == token
                ),
            )

    def driver(self, study_id: int) -> DriverRow | None:
        """Who holds the lease, alive or not; None when nobody does."""
        with self.database.reading() as session:
            held = session.get(schema.DriverLease, study_id)
            return None if held is None else DriverRow(_driver(held), held.heartbeat_at, held.expires_at)


def _check_free(study: str, holder: Driver, expires_at: datetime, asker: Driver) -> None:
    if holder == asker or holder.certainly_dead():
        return
    if holder.host == asker.host:
        raise StudyBusy(
            f"study {study!r} is being driven by process {holder.pid} on this host ({holder.host}); help it with --join, or "
            f"stop it (kill -INT {holder.pid}) and run this again to go on."
        )
    left = (expires_at - now()).total_seconds()
    if left > 0:
        raise StudyBusy(
            f"study {study!r} is being driven by process {holder.pid} on host {holder.host!r}; help it with --join, stop it there, or wait: "
            f"without a sign of life its lease expires in {left:.0f} s."
        )


def _changed(session: Session, statement: object) -> bool:
    return session.connection().execute(statement).rowcount == 1  # type: ignore[call-overload, no-any-return]


def _driver(row: schema.DriverLease) -> Driver:
    return Driver(row.host, row.boot, row.pid, row.started)


def _boot_id() -> str:
    file = Path("/proc/sys/kernel/random/boot_id")
    return file.read_text().strip() if file.exists() else f"{psutil.boot_time():.0f}"
