"""Artefacts in a folder of this machine, or of one mounted here."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import BinaryIO

from crossbreed.core.artefacts.base import Artefacts, present
from crossbreed.core.artefacts.names import HIDDEN, confined
from crossbreed.core.errors import ConfigError

_DRAFT = re.compile(rf"{re.escape(HIDDEN)}.+\.\d+")
"""A file that is still to be renamed: hidden, and ending in its writer's process id, which keeps two writers apart."""


class Folder(Artefacts):
    """A folder. Files are written beside their places, flushed to the disk and renamed, and read where they lie.

    path: absolute. top: the place that no link may lead out of; default: the folder.
    """

    def __init__(self, path: Path, top: Path | None = None) -> None:
        self.path, self.place = path, str(path)
        self._top = top or path

    def under(self, name: str) -> Folder:
        return Folder(self.path / confined(name), self._top)

    def check(self) -> None:
        """Nothing: a folder is made by whoever writes the first file."""

    def reach(self) -> None:
        """Nothing, as ``check``."""

    def names(self) -> list[str]:
        if not self.path.is_dir():
            return []
        found = [p.name for p in self.path.iterdir() if p.is_file() and not p.name.startswith(HIDDEN)]
        return sorted(found)

    def empty(self) -> bool:
        return not self.path.is_dir() or not any(self.path.iterdir())

    def size(self, name: str) -> int:
        return self._file(name).stat().st_size

    def read(self, name: str, start: int = 0, end: int | None = None) -> bytes:
        with self._file(name).open("rb") as file:
            file.seek(start)
            return file.read() if end is None else file.read(end - start)

    def local(self, name: str) -> AbstractContextManager[Path]:
        return present(self._file(name))

    @contextmanager
    def writing(self, name: str) -> Iterator[BinaryIO]:
        path = self._file(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_name(f"{HIDDEN}{path.name}.{os.getpid()}")
        try:
            with draft.open("wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            draft.replace(path)
        finally:
            draft.unlink(missing_ok=True)
        _sync(path.parent)

    def delete(self, name: str) -> None:
        self._file(name).unlink(missing_ok=True)

    def drop_drafts(self) -> None:
        for file in self.path.iterdir() if self.path.is_dir() else ():
            if _DRAFT.fullmatch(file.name):
                file.unlink(missing_ok=True)

    def append(self, name: str, data: bytes) -> None:
        path = self._file(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab", buffering=0) as file:
            before = file.tell()
            try:
                while data:
                    data = data[file.write(data) :]
            except OSError:
                # Half of it before another would spoil both.
                file.truncate(before)
                raise

    def log(self, name: str) -> bytes:
        return self.read(name) if self.exists(name) else b""

    def logs(self, suffix: str) -> list[str]:
        files = [self.path / name for name in self.names() if name.endswith(suffix)]
        return [file.name for file in sorted(files, key=lambda f: (f.stat().st_mtime_ns, f.name))]

    def drop_log(self, name: str) -> None:
        self.delete(name)

    def _file(self, name: str) -> Path:
        path = self.path / confined(name)
        if not path.resolve().is_relative_to(self._top.resolve()):
            raise ConfigError(
                f"{str(path)!r} leads out of the artefact folder {str(self._top)!r}; a link must stay inside it."
            )
        return path


def _sync(folder: Path) -> None:
    """Make a rename survive a power cut."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
