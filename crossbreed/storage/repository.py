"""The repository: the only way anything reads or writes the tables. It returns plain frozen rows."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from crossbreed.core.artefacts import Artefacts
from crossbreed.storage.changes import Following
from crossbreed.storage.database import Database
from crossbreed.storage.drivers import Drivers
from crossbreed.storage.extremes import Extremes
from crossbreed.storage.health import Health
from crossbreed.storage.records import Records
from crossbreed.storage.studies import Studies


class Repository(Studies, Drivers, Records, Following, Extremes, Health):
    """All of storage over one open database. Safe to share between threads; each call is one transaction."""

    def __init__(self, database: Database) -> None:
        self.database = database

    @staticmethod
    def open(url: str, *, read_only: bool = False, create: bool = True) -> Repository:
        """Open the database at ``url`` (see ``Database.open``)."""
        return Repository(Database.open(url, read_only=read_only, create=create))

    @property
    def artefacts(self) -> Artefacts:
        """The place that artefact paths are relative to; a folder is made by whoever writes the first file."""
        return self.database.artefacts

    @contextlib.contextmanager
    def batch(self) -> Iterator[None]:
        """Put all calls of this thread inside the block into one transaction: all stored, or none."""
        with self.database.writing():
            yield

    def close(self) -> None:
        self.database.close()

    def __enter__(self) -> Repository:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()
