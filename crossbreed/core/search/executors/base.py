"""What the driver asks of an executor, and the spool that keeps a worker's records until the driver has stored them."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal, Protocol

from crossbreed.core.artefacts import Artefacts
from crossbreed.core.errors import ArtefactsLost
from crossbreed.core.lab import records
from crossbreed.core.lab.job import Job
from crossbreed.core.lab.records import Record

LOG = ".jsonl"
MARK = "driver"
"""The file that says to a worker that it sees what the driver sees."""


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
    """One log of JSON lines per lease. A worker writes before it sends; the driver discards when stored.

    It lies among the study's artefacts, which all workers and the driver see as one place. A line cut off by a crash is
    ignored: its record was never sent.
    """

    def __init__(self, place: Artefacts) -> None:
        self.place = place

    @staticmethod
    def of(artefacts: Artefacts, study: str) -> Spool:
        """The spool of a study."""
        return Spool(artefacts.under(f"spool/{study}"))

    def mark(self) -> None:
        """Leave a word for workers, who look for it before they take a job."""
        if not self.place.exists(MARK):
            self.place.write(MARK, b"The driver of a search keeps its workers' records here.\n")

    def unmark(self) -> None:
        """Take that word away again, once no worker will look for it."""
        self.place.delete(MARK)

    def check_marked(self) -> None:
        """Raise ArtefactsLost, with the reason, where the driver's mark is not seen: what is written here would be lost to it."""
        if not self.place.exists(MARK):
            raise ArtefactsLost(
                f"artefacts {self.place.place!r} are another place on host {socket.gethostname()!r} than the driver's: file {MARK!r}, which it "
                "has left there, is not found; every node must see one place, a mounted folder or a store by its URL"
            )

    def append(self, lease: str, record: Record) -> None:
        """Keep a record: all of it, or nothing and the OSError."""
        self.place.append(_log(lease), (json.dumps(records.to_json(record)) + "\n").encode())

    def discard(self, lease: str) -> None:
        self.place.drop_log(_log(lease))

    def leases(self) -> list[str]:
        """Leases with records that were not acknowledged, oldest first where the place knows."""
        return [name.removesuffix(LOG) for name in self.place.logs(LOG)]

    def read(self, lease: str) -> Iterator[Record]:
        """The records of a lease in order."""
        for line in self.place.log(_log(lease)).splitlines(keepends=True):
            if line.endswith(b"\n"):
                yield records.from_json(json.loads(line))


def _log(lease: str) -> str:
    return f"{lease}{LOG}"
