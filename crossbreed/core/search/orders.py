"""Orders to a running driver from other processes: pause, resume and stop, left in the database and heard within seconds."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, cast, get_args

from crossbreed.core.errors import ConfigError, StorageError
from crossbreed.storage import Repository
from crossbreed.storage.drivers import DriverRow
from crossbreed.storage.studies import now

LISTEN_S = 1.0
"""How often a driver looks for orders."""
ANSWER_S = 30.0
"""Longest wait of a command for the driver's answer."""

Order = Literal["pause", "resume", "stop"]
GIVEN, HEARD = "order", "order_heard"
"""Kinds of the events that carry an order, and a driver's answer to it."""


@dataclass
class Orders:
    """Listens while the ``with`` block runs, from a thread of its own, so that a job in the driver's thread delays nothing.

    obey: called in that thread with each order given since the block was entered.
    """

    repository: Repository
    study_id: int
    obey: Callable[[Order], None]
    _over: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> Orders:
        last = self.repository.last_event(self.study_id, GIVEN)
        self._seen = 0 if last is None else last.id
        self._ear = threading.Thread(target=self._listen, name="orders", daemon=True)
        self._ear.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._over.set()
        self._ear.join()

    def _listen(self) -> None:
        while not self._over.wait(LISTEN_S):
            # What an unreachable database means for the search is for the driver's heartbeat to say.
            with contextlib.suppress(StorageError):
                self._look()

    def _look(self) -> None:
        """Of several orders since the last look only the newest counts."""
        found = self.repository.last_event(self.study_id, GIVEN, after=self._seen)
        if found is None:
            return
        order = cast(Order, found.payload["order"])
        self.obey(order)
        self.repository.add_event(self.study_id, HEARD, {"order": order, "event": found.id})
        self._seen = found.id


def give(repository: Repository, name: str, order: Order, wait_s: float = ANSWER_S) -> tuple[DriverRow, bool]:
    """Leave an order for whoever drives a study, and wait for the answer: the driver, and whether it has heard.

    Raises ConfigError when nobody drives the study.
    """
    if order not in get_args(Order):
        raise ValueError(f"unknown order {order!r}")
    study = repository.open_study(name)
    driver = repository.driver(study.id)
    if driver is None or driver.driver.certainly_dead() or driver.expires_at < now():
        raise ConfigError(
            f"nobody drives study {name!r}, so there is nothing to {order}; `crossbreed search` with its study file drives it."
        )
    given = repository.add_event(study.id, GIVEN, {"order": order})
    deadline = time.monotonic() + wait_s
    while time.monotonic() < deadline:
        answer = repository.last_event(study.id, HEARD, after=given)
        if answer is not None and answer.payload["event"] >= given:
            return driver, True
        time.sleep(0.1)
    return driver, False


def paused(repository: Repository, study_id: int, driver: DriverRow) -> bool:
    """Whether the driver of a study was paused and not resumed since."""
    last = repository.last_event(study_id, HEARD)
    if last is None or last.at.timestamp() < driver.driver.started:
        return False
    return bool(last.payload["order"] == "pause")
