"""A store of objects for tests, which several processes see: no folders, no links, no renames, no appending; faults to order.

Objects lie in one folder, each a file whose name is its whole key, escaped. The folder is an option of fsspec's, as a real
store's credentials are.
"""

from __future__ import annotations

import io
import json
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import fsspec
import fsspec.config
from fsspec import AbstractFileSystem

SECRET = "a-secret-of-the-store"
FAULTS = "faults.json"
AWAY = "away"
"""A file of this name beside the buckets: the store does not answer."""


class Buckets(AbstractFileSystem):
    """``bucket://NAME/KEY``. A bucket is a folder that must be there; ``faults.json`` beside the buckets says which puts fail."""

    protocol = "bucket"
    cachable = False

    def __init__(self, folder: str, secret: str = "", **options: Any) -> None:
        super().__init__(**options)
        if secret != SECRET:
            raise PermissionError(f"secret {secret!r} is not the store's")
        self.folder = Path(folder)

    def info(self, path: str, **_: Any) -> dict[str, Any]:
        bucket, _, key = self._strip_protocol(path).partition("/")
        file = self._file(path)
        if key and file.is_file():
            found = file.stat()
            return {"name": f"{bucket}/{key}", "size": found.st_size, "type": "file", "etag": found.st_ino}
        if (not key and file.is_dir()) or any(self._keys(bucket, f"{key}/")):
            return {"name": f"{bucket}/{key}".rstrip("/"), "size": 0, "type": "directory"}
        raise FileNotFoundError(path)

    def ls(self, path: str, detail: bool = True, **_: Any) -> list[Any]:
        bucket, _, key = self._strip_protocol(path).partition("/")
        prefix = f"{key}/" if key else ""
        heads = {prefix + rest.partition("/")[0] for rest in self._keys(bucket, prefix)}
        found = [self.info(f"{bucket}/{head}") for head in sorted(heads)]
        if not found:
            raise FileNotFoundError(path)
        return found if detail else [entry["name"] for entry in found]

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **_: Any) -> None:
        file = self._file(path)
        if not file.parent.is_dir():
            raise FileNotFoundError(f"no such bucket: {path}")
        after = self._fault(path)
        if after is None:
            draft = self.folder / f"{uuid.uuid4().hex}.put"
            draft.write_bytes(value)
            draft.replace(file)
            return
        if after > 0:
            file.write_bytes(value[:after])
        # As drivers do: an error of their libraries', with what they know.
        raise RuntimeError(f"the connection to {path} with secret {SECRET} was reset")

    def put_file(self, lpath: str, rpath: str, *_: Any, **__: Any) -> None:
        self.pipe_file(rpath, Path(lpath).read_bytes())

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **_: Any) -> bytes:
        return self._file(path).read_bytes()[start:end]

    def rm_file(self, path: str) -> None:
        self._file(path).unlink()

    def _open(self, path: str, mode: str = "rb", **_: Any) -> Any:
        if mode != "rb":
            raise NotImplementedError("objects are put, not opened to be written")
        return io.BytesIO(self.cat_file(path))

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        """There are no folders."""

    def _file(self, path: str) -> Path:
        if (self.folder / AWAY).exists():
            raise ConnectionError("the store does not answer")
        bucket, _, key = self._strip_protocol(path).partition("/")
        folder = self.folder / bucket
        return folder / quote(key, safe="") if key else folder

    def _keys(self, bucket: str, prefix: str) -> Iterator[str]:
        """What follows ``prefix`` in the keys that begin with it."""
        folder = self._file(bucket)
        for name in os.listdir(folder) if folder.is_dir() else ():
            key = unquote(name)
            if key.startswith(prefix):
                yield key.removeprefix(prefix)

    def _fault(self, path: str) -> int | None:
        """How many bytes of a put arrive before it fails; None when it does not."""
        file = self.folder / FAULTS
        for fault in json.loads(file.read_text()) if file.exists() else ():
            # One byte a failure, so that several processes count together.
            count = self.folder / f"{fault['name']}.count"
            if fault["part"] in path and (count.stat().st_size if count.exists() else 0) < fault["times"]:
                with count.open("ab") as out:
                    out.write(b".")
                return int(fault["after"])
        return None


def order(folder: Path, *faults: dict[str, Any]) -> None:
    """Let the first ``times`` puts whose path has ``part`` in it fail after so many bytes have arrived."""
    whole = [{"name": uuid.uuid4().hex, "times": 1, "after": 0, **fault} for fault in faults]
    (folder / FAULTS).write_text(json.dumps(whole))


@contextmanager
def store(folder: Path, monkeypatch: Any, *buckets: str) -> Iterator[Path]:
    """The store's folder, its options given to fsspec in this process, and a distribution for others to find its driver."""
    for bucket in buckets:
        (folder / bucket).mkdir(parents=True)
    options = {"folder": str(folder), "secret": SECRET}
    fsspec.register_implementation("bucket", Buckets, clobber=True)
    monkeypatch.setitem(fsspec.config.conf, "bucket", options)
    monkeypatch.setenv("FSSPEC_BUCKET", json.dumps(options))
    site = folder / "site"
    info = site / "test_buckets-1.0.dist-info"
    info.mkdir(parents=True)
    (site / "test_buckets.py").write_text(Path(__file__).read_text())
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: test-buckets\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[fsspec.specs]\nbucket = test_buckets:Buckets\n")
    path = os.pathsep.join(filter(None, (str(site), os.environ.get("PYTHONPATH"))))
    monkeypatch.setenv("PYTHONPATH", path)
    yield folder
