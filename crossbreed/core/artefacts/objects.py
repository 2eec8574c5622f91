"""Artefacts in a store behind an fsspec URL: objects, which are put whole and have no folders, links or renames."""

from __future__ import annotations

import importlib
import os
import re
import socket
import tempfile
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, cast

from crossbreed.core.artefacts.base import Artefacts
from crossbreed.core.artefacts.names import HIDDEN, confined
from crossbreed.core.errors import ArtefactsLost, ConfigError, CrossbreedError

MEMORY = "memory"
"""The scheme of what lives in one process and ends with it."""
SHORTEST_SECRET = 4
"""Letters; what is shorter is everywhere in a sentence, and protects nothing."""
_PIECE = re.compile(r"(.+)\.\d{8}")
"""A log is kept as one object for each time that something was appended: stores cannot add to an object."""
_SECRET = re.compile(r"key|secret|token|pass|credential|sas|connection_string", re.IGNORECASE)


class Objects(Artefacts):
    """Objects below a URL. Names are given to the store as they are, never as patterns.

    A put is whole by itself where the store is one of objects. Where it is not (``sftp://``), a writer that is killed may
    leave the beginning of a file: what was put is measured, and readers check what they read.
    """

    def __init__(self, scheme: str, path: str) -> None:
        self.place = f"{scheme}://{path}"
        self._scheme = scheme
        self._next: dict[str, int] = {}
        self._opened: tuple[Any, str] | None = None
        if not path and scheme != MEMORY:
            raise ConfigError(
                f"artefacts {self.place!r} name no bucket or folder; write {scheme}://bucket/folder."
            )

    @property
    def whole(self) -> bool:
        return False

    @property
    def shared(self) -> bool:
        return self._scheme != MEMORY

    def under(self, name: str) -> Objects:
        return Objects(self._scheme, self.shown(confined(name)).partition("://")[2])

    def shown(self, name: str) -> str:
        return f"{self.place}{'' if self.place.endswith('://') else '/'}{name}"

    def check(self) -> None:
        name, data = f"{HIDDEN}reach-{uuid.uuid4().hex}", b"crossbreed"
        self._put(name, lambda store, path: store.pipe_file(path, data), len(data))
        try:
            with self._asked("read") as store:
                if store.cat_file(self._path(name)) != data:
                    raise OSError("it gives back other bytes than it was given")
            self._entries()
        finally:
            self._delete(name)

    def reach(self) -> None:
        with self._asked("read") as store, suppress(FileNotFoundError):
            store.invalidate_cache()
            store.info(self._root())

    def names(self) -> list[str]:
        names = (PurePosixPath(e["name"]).name for e in self._entries() if e["type"] == "file")
        return sorted(name for name in names if not name.startswith(HIDDEN) and not _PIECE.fullmatch(name))

    def empty(self) -> bool:
        return not self._entries()

    def size(self, name: str) -> int:
        return self._size(confined(name))

    def read(self, name: str, start: int = 0, end: int | None = None) -> bytes:
        path = self._path(confined(name))
        part = {} if (start, end) == (0, None) else {"start": start, "end": end}
        with self._asked("read") as store:
            return bytes(store.cat_file(path, **part))

    @contextmanager
    def local(self, name: str) -> Iterator[Path]:
        path, bytes = self._path(confined(name)), self.size(name)
        with tempfile.TemporaryDirectory(prefix="crossbreed-") as folder:
            copy = Path(folder) / PurePosixPath(path).name
            with self._asked("read") as store:
                store.get_file(path, str(copy))
                if copy.stat().st_size != bytes:
                    raise OSError(f"{copy.stat().st_size} of {bytes} bytes of {name!r} arrived")
            yield copy

    def write(self, name: str, data: bytes) -> None:
        self._put(confined(name), lambda store, path: store.pipe_file(path, data), len(data))

    @contextmanager
    def writing(self, name: str) -> Iterator[BinaryIO]:
        confined(name)
        with tempfile.NamedTemporaryFile(prefix="crossbreed-") as draft:
            yield cast(BinaryIO, draft)
            draft.flush()
            size = os.stat(draft.name).st_size
            self._put(name, lambda store, path: store.put_file(draft.name, path), size)

    def delete(self, name: str) -> None:
        self._delete(confined(name))

    def drop_drafts(self) -> None:
        for entry in self._entries():
            name = PurePosixPath(entry["name"]).name
            if entry["type"] == "file" and name.startswith(HIDDEN):
                self._delete(name)

    def append(self, name: str, data: bytes) -> None:
        if name not in self._next:
            pieces = self._pieces(name)
            self._next[name] = int(pieces[-1].rpartition(".")[2]) + 1 if pieces else 0
        self.write(f"{name}.{self._next[name]:08}", data)
        # Only now: a piece that was not taken is written again in its place.
        self._next[name] += 1

    def log(self, name: str) -> bytes:
        return b"".join(self.read(piece) for piece in self._pieces(name))

    def logs(self, suffix: str) -> list[str]:
        found = (_PIECE.fullmatch(PurePosixPath(e["name"]).name) for e in self._entries())
        return sorted({match[1] for match in found if match and match[1].endswith(suffix)})

    def drop_log(self, name: str) -> None:
        for piece in self._pieces(name):
            self._delete(piece)
        self._next.pop(name, None)

    def _pieces(self, name: str) -> list[str]:
        confined(name)
        names = (PurePosixPath(e["name"]).name for e in self._entries())
        return sorted(n for n in names if (match := _PIECE.fullmatch(n)) and match[1] == name)

    # The store

    def _open(self) -> tuple[Any, str]:
        """The fsspec file system and the path of this place in it, made once. Raises ConfigError and ArtefactsLost."""
        if self._opened is None:
            from fsspec.core import url_to_fs
            from fsspec.registry import get_filesystem_class

            try:
                get_filesystem_class(self._scheme)
            except (ImportError, ValueError) as error:
                raise ConfigError(self._no_driver(error)) from None
            try:
                store, root = url_to_fs(self.place)
            except Exception as error:
                raise ArtefactsLost(self._fault("opened", error)) from None
            self._opened = store, root.rstrip("/")
        return self._opened

    def _no_driver(self, error: Exception) -> str:
        from fsspec.registry import known_implementations

        known = known_implementations.get(self._scheme)
        if known is None:
            return (
                f"artefacts {self.place!r} have scheme {self._scheme!r}, which no installed driver serves; it must be one of "
                "fsspec's, such as s3, gs, az, sftp or file."
            )
        package = known["class"].partition(".")[0]
        fix = f"{error}." if package == "fsspec" else f"pip install {package}"
        return f"artefacts {self.place!r} need a driver for scheme {self._scheme!r}, which is not installed: {fix}"

    def _root(self) -> str:
        return self._open()[1]

    def _path(self, name: str) -> str:
        return f"{self._root()}/{name}"

    @contextmanager
    def _asked(self, verb: str) -> Iterator[Any]:
        """The store, whose faults become ArtefactsLost: drivers raise whatever their libraries do. What the driver said is in
        the sentence, and the rest of its error is dropped, which may name secrets. A missing file is none where one is read."""
        store, _ = self._open()
        try:
            yield store
        except CrossbreedError:
            raise
        except Exception as error:
            if verb == "read" and isinstance(error, FileNotFoundError):
                raise
            raise ArtefactsLost(self._fault(verb, error)) from None

    def _fault(self, verb: str, error: Exception) -> str:
        first = (str(error).strip().splitlines() or ["no message"])[0]
        why = f"{type(error).__name__}: {_without_secrets(first)}"
        return f"artefacts {self.place!r} cannot be {verb} from host {socket.gethostname()!r}: {why}"

    def _entries(self) -> list[dict[str, Any]]:
        """What lies directly here, the mark that some stores keep for an empty folder left out."""
        with self._asked("listed") as store:
            # Others write too, and a listing that is kept would hide it.
            store.invalidate_cache()
            try:
                found = store.ls(self._root(), detail=True)
            except FileNotFoundError:
                return []
        return [entry for entry in found if entry["name"].rstrip("/") != self._root()]

    def _size(self, name: str) -> int:
        with self._asked("read") as store:
            found = _info(store, self._path(name))
            if found is None or found["type"] != "file":
                raise FileNotFoundError(self.shown(name))
            return int(found["size"])

    def _put(self, name: str, put: Callable[[Any, str], None], size: int) -> None:
        path = self._path(name)
        with self._asked("written") as store:
            before = _info(store, path)
            try:
                try:
                    put(store, path)
                except FileNotFoundError as error:
                    _make_folders(store, path, error)
                    put(store, path)
                found = _info(store, path)
                if found is None or found["size"] != size:
                    arrived = 0 if found is None else found["size"]
                    raise OSError(f"{arrived} of {size} bytes of {name!r} arrived")
            except BaseException:
                # Half of an object is none, but what was there before is still good. The error that is raised counts, not another
                # one while this is cleaned up.
                with suppress(Exception):
                    left = _info(store, path)
                    if left is not None and left != before:
                        store.rm_file(path)
                raise

    def _delete(self, name: str) -> None:
        path = self._path(name)
        with self._asked("written") as store, suppress(FileNotFoundError):
            store.rm_file(path)


def _info(store: Any, path: str) -> dict[str, Any] | None:
    store.invalidate_cache()
    try:
        return dict(store.info(path))
    except FileNotFoundError:
        return None


def _make_folders(store: Any, path: str, error: FileNotFoundError) -> None:
    """Make the folders that a file is to lie in, where the store has such; its first one, a bucket, is the user's to make."""
    first = path.strip("/").partition("/")[0]
    top = f"/{first}" if path.startswith("/") else first
    if not store.exists(top):
        raise OSError(f"{top!r} does not exist; make it first") from error
    store.makedirs(path.rpartition("/")[0], exist_ok=True)


def _without_secrets(text: str) -> str:
    """``text`` without the values of fsspec's options that are secret by their names."""
    conf = importlib.import_module("fsspec.config").conf
    for secret in _secrets(conf):
        text = text.replace(secret, "***")
    return text


def _secrets(options: Any, secret: bool = False) -> Iterator[str]:
    if isinstance(options, dict):
        for name, value in options.items():
            yield from _secrets(value, secret or _SECRET.search(str(name)) is not None)
    elif secret and isinstance(options, str) and len(options) >= SHORTEST_SECRET:
        yield options
