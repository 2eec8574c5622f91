"""What the driver asks of an executor, and the spool that keeps a worker's records until the driver has stored them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from crossbreed.core.lab import records
from crossbreed.core.lab.job import Job
from crossbreed.core.lab.records import Record


@dataclass(frozen=True)
class Lost:
    """The worker of a job died or left without a last record; ``cause`` is a sentence.

    how: it was killed because its host ran ``out_of_memory``, its node was taken back by the cluster (``preempted``), or it is
    just ``lost``.
    """

    cause: str
    how: Literal["lost", "out_of_memory", "preempted"] = "lost"


@dataclass(frozen=True)
class Taken:
    """A worker has begun with a job that may have waited for one."""


Report = Record | Taken | Lost
Deliver = Callable[[str, Report], None]
"""(lease, report): called by an executor for everything a job says, ``Finished`` or ``Lost`` last, once a job; ``Taken`` comes
first from executors whose jobs can hang without the search."""


class Executor(Protocol):
    """Runs jobs. ``slots``: how many at once. All methods are called from the driver's thread."""

    slots: int

    @property
    def running(self) -> int:
        """Jobs submitted and not ended."""
        ...

    def start(self) -> None:
        """Make workers ready, unless they are; called before a run is leased, so that a failure costs no attempt."""
        ...

    def submit(self, job: Job) -> None:
        """Start a job; call it only while ``running < slots``."""
        ...

    def work(self, deliver: Deliver, timeout: float) -> None:
        """Deliver what jobs report; returns after the first reports, or after ``timeout`` seconds without any."""
        ...

    def kill(self, lease: str) -> None:
        """End one job now, with its worker; nothing more is delivered of it."""
        ...

    def refuse(self, lease: str, why: str) -> None:
        """Tell one job's worker that its records are no longer taken, and to stop at its next step.

        ``why`` is a sentence for the worker's log; the job still ends with a last report.
        """
        ...

    def stop(self) -> None:
        """Ask every running job to stop at its next step, leaving a checkpoint. Safe in a signal handler."""
        ...

    def resume(self) -> None:
        """Take jobs again after ``stop``."""
        ...

    def shutdown(self) -> None:
        """End now: no worker of this executor is alive afterwards."""
        ...


class Spool:
    """One append-only file of JSON lines per lease. A worker writes before it sends; the driver discards when stored.

    The folder lies among the study's artefacts, which all workers and the driver see under one path. A line cut off by a
    crash is ignored: its record was never sent.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def append(self, lease: str, record: Record) -> None:
        """Keep a record: all of it, or nothing and the OSError."""
        self.folder.mkdir(parents=True, exist_ok=True)
        line = (json.dumps(records.to_json(record)) + "\n").encode()
        with self._file(lease).open("ab", buffering=0) as file:
            before = file.tell()
            try:
                while line:
                    line = line[file.write(line) :]
            except OSError:
                # Half a line before another would spoil both.
                file.truncate(before)
                raise

    def discard(self, lease: str) -> None:
        self._file(lease).unlink(missing_ok=True)

    def leases(self) -> list[str]:
        """Leases with records that were not acknowledged, oldest first."""
        files = sorted(self.folder.glob("*.jsonl"), key=lambda f: (f.stat().st_mtime_ns, f.name))
        return [file.stem for file in files]

    def read(self, lease: str) -> Iterator[Record]:
        """The records of a lease in order."""
        file = self._file(lease)
        text = file.read_text(encoding="utf-8") if file.exists() else ""
        for line in text.splitlines(keepends=True):
            if line.endswith("\n"):
                yield records.from_json(json.loads(line))

    def _file(self, lease: str) -> Path:
        return self.folder / f"{lease}.jsonl"
