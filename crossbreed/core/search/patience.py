"""Going on after the database or the artefacts were away: as a driver that died is replaced, only without the user."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from crossbreed.core.errors import ArtefactsLost, DatabaseLost
from crossbreed.core.search.driver import Driver, End
from crossbreed.storage import Repository

PATIENCE_S = 600.0
"""Longest wait for a database or a store that has gone: a server that restarts, a network that comes back."""
RETRY_S = 2.0

_log = logging.getLogger("crossbreed.search")


def drive(repository: Repository, driver: Callable[[], Driver]) -> tuple[Driver, End]:
    """Run a driver to its end; after the database or the artefacts were lost, another one takes the study up from its tables and spool.

    Raises what was lost when it stays away for longer than PATIENCE_S, or when the search was asked to stop meanwhile.
    """
    current = driver()
    while True:
        try:
            return current, current.run()
        except (DatabaseLost, ArtefactsLost) as error:
            if current.interrupted:
                raise
            what = "database" if isinstance(error, DatabaseLost) else "store"
            _log.warning("%s The search's workers have stopped; waiting for the %s.", error, what)
            _wait(repository)
        begun, current = current.jobs.pace.begun, driver()
        # Limits of time are the session's, however many drivers it takes.
        current.jobs.pace.begun = begun


def _wait(repository: Repository) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            repository.list_studies()
            repository.artefacts.check()
        except (DatabaseLost, ArtefactsLost):
            if time.monotonic() > deadline:
                raise
            time.sleep(RETRY_S)
        else:
            return
