from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from crossbreed.core.artefacts import Artefacts
from tests.support import buckets


@pytest.fixture
def bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A store of objects with one bucket, ``b``; the folder that faults are ordered in."""
    with buckets.store(tmp_path / "store", monkeypatch, "b") as folder:
        yield folder


@pytest.fixture(params=["folder", "file-url", "memory", "bucket"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A place of each kind, of this test's own."""
    if request.param == "bucket":
        request.getfixturevalue("bucket")
    return {
        "folder": str(tmp_path / "there" / "files"),
        "file-url": f"file://{tmp_path}/there/files",
        "memory": f"memory://{uuid.uuid4().hex}/files",
        "bucket": "bucket://b/there/files",
    }[request.param]


@pytest.fixture
def artefacts(place: str) -> Artefacts:
    return Artefacts.at(place)
