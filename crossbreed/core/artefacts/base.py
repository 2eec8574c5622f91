"""A place of artefacts: what a folder of this machine and a store elsewhere have in common."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import BinaryIO

from crossbreed.core.artefacts.names import split_url

LOCAL = ("file", "local")


class Artefacts(ABC):
    """Files by name below one place. A name is relative, its parts separated by ``/``; one that leads out is refused with
    ConfigError before anything is touched.

    What is written is there whole or not at all. A missing file is a FileNotFoundError. Of a folder other faults are the
    system's OSErrors; a store's are ArtefactsLost, with the host that met them and without secrets.

    place: what ``at`` makes the same place of again, on any machine that reaches it; safe to print and to store.
    """

    place: str

    @staticmethod
    def at(place: str | os.PathLike[str]) -> Artefacts:
        """The place at a path or a URL. Options of a store, credentials first, are fsspec's own: its configuration files and
        ``FSSPEC_*`` variables, or what its driver finds in the environment.

        Nothing is opened yet. Raises ConfigError for a URL that names a password, a chain, or no bucket.
        """
        from crossbreed.core.artefacts.folder import Folder
        from crossbreed.core.artefacts.objects import Objects

        url = split_url(os.fspath(place))
        if url is None or url[0] in LOCAL:
            return Folder(Path(place if url is None else url[1] or "/").expanduser().absolute())
        return Objects(*url)

    @staticmethod
    def file(place: str | os.PathLike[str]) -> tuple[Artefacts, str]:
        """The folder, or what stands for it, of a file that a path or a URL names, and its name there."""
        url = split_url(os.fspath(place))
        if url is None or url[0] in LOCAL:
            path = Path(place if url is None else url[1]).expanduser().absolute()
            return Artefacts.at(path.parent), path.name
        folder, _, name = url[1].rpartition("/")
        return Artefacts.at(f"{url[0]}://{folder}"), name

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.place!r})"

    def shown(self, name: str) -> str:
        """The full name of a file, for messages."""
        return f"{self.place.rstrip('/')}/{name}"

    @property
    def shared(self) -> bool:
        """Whether other processes can see it at all."""
        return True

    @property
    def whole(self) -> bool:
        """Whether a file that is there is surely all of what was written: not in every store, when its writer was killed."""
        return True

    @abstractmethod
    def under(self, name: str) -> Artefacts:
        """The place of that name inside this one."""

    # Whether it can be used

    @abstractmethod
    def check(self) -> None:
        """Write, read, list and remove a small file of a store, so that a session begins only where its workers can end.

        Raises ArtefactsLost with the reason, ConfigError when the store's driver is not installed. A folder is not touched.
        """

    @abstractmethod
    def reach(self) -> None:
        """Ask whether a store answers; it may be empty. Raises as ``check``."""

    # Files

    @abstractmethod
    def names(self) -> list[str]:
        """Files that lie directly here, in order; none where there is no such place. Drafts are not among them."""

    @abstractmethod
    def empty(self) -> bool:
        """Whether nothing lies here or below."""

    @abstractmethod
    def size(self, name: str) -> int:
        """Bytes of a file."""

    def exists(self, name: str) -> bool:
        try:
            self.size(name)
        except FileNotFoundError:
            return False
        return True

    @abstractmethod
    def read(self, name: str, start: int = 0, end: int | None = None) -> bytes:
        """The bytes of a file, or those from ``start`` up to ``end``."""

    @abstractmethod
    def local(self, name: str) -> AbstractContextManager[Path]:
        """A file of this machine with the content: the file itself, or a copy that goes at the end."""

    def write(self, name: str, data: bytes) -> None:
        """Put a whole file in place, or leave what was there."""
        with self.writing(name) as file:
            file.write(data)

    @abstractmethod
    def writing(self, name: str) -> AbstractContextManager[BinaryIO]:
        """As ``write``, in pieces: in place at the end of the block, unless it raises."""

    @abstractmethod
    def delete(self, name: str) -> None:
        """Remove a file, if there is one."""

    @abstractmethod
    def drop_drafts(self) -> None:
        """Remove what writers that were killed have left directly here. For the one holder of a place."""

    # Logs, which grow by appending

    @abstractmethod
    def append(self, name: str, data: bytes) -> None:
        """Add to the end of a log: all of it, or nothing and an OSError. One writer at a time."""

    @abstractmethod
    def log(self, name: str) -> bytes:
        """All that was appended; nothing where there is no such log."""

    @abstractmethod
    def logs(self, suffix: str) -> list[str]:
        """Names of logs directly here that end so, oldest first where the place knows."""

    @abstractmethod
    def drop_log(self, name: str) -> None:
        """Remove a log, if there is one."""


@contextmanager
def present(path: Path) -> Iterator[Path]:
    """``path`` while it is there. Raises FileNotFoundError."""
    path.stat()
    yield path
