"""Leases kept alive by heartbeats from a thread of their own: a driver's hold on its study, and those of anybody's jobs."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from crossbreed.core.errors import DatabaseLost, StudyBusy
from crossbreed.storage import Repository

HEARTBEAT_S = 15.0
RUN_LEASE_S = 600.0


@dataclass
class Pulse:
    """Keeps the leases of jobs while the ``with`` block runs.

    leases:   run id and lease of every job with a worker, asked for at each heartbeat.
    on_fault: called once, from the heart's thread, when a lease was lost or the database cannot be written; ``fault`` is
              then to be raised by the thread that can end the search.
    """

    repository: Repository
    study_id: int
    name: str
    leases: Callable[[], Iterable[tuple[int, str]]]
    on_fault: Callable[[], None]
    fault: BaseException | None = None
    _over: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> Pulse:
        self._heart = threading.Thread(target=self._beat, daemon=True)
        self._heart.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._over.set()
        self._heart.join()

    def _beat(self) -> None:
        """Also while an inline job holds the main thread."""
        while not self._over.wait(HEARTBEAT_S):
            try:
                self._once()
            # Raised again by the loop, in the thread that can end the search.
            except Exception as error:
                self.fault = error
                self.on_fault()
                return

    def _once(self) -> None:
        for run_id, lease in self.leases():
            self.repository.renew_lease(run_id, lease, seconds=RUN_LEASE_S)


class Hold(Pulse):
    """Keeps the driver's lease too; entering raises StudyBusy when another driver holds the study."""

    def __enter__(self) -> Hold:
        self._token = self.repository.acquire_driver_lease(self.study_id).token
        super().__enter__()
        return self

    def __exit__(self, *exception: object) -> None:
        super().__exit__(*exception)
        # A lease that cannot be given back is taken over from a dead process, or expires.
        with contextlib.suppress(DatabaseLost):
            self.repository.release_driver_lease(self.study_id, self._token)

    def _once(self) -> None:
        if not self.repository.heartbeat(self.study_id, self._token):
            raise StudyBusy(
                f"study {self.name!r} was taken over by another driver while this one was silent; it goes on there."
            )
        super()._once()
