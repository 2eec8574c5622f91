"""A database of each kind for the tests of storage."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from crossbreed.storage import Repository


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty database of each supported kind."""
    if request.param == "postgresql":
        return str(request.getfixturevalue("postgres_url"))
    return f"sqlite:///{tmp_path / 'study.db'}"


@pytest.fixture
def repository(url: str) -> Iterator[Repository]:
    """An open repository on each kind of database."""
    with Repository.open(url) as opened:
        yield opened


@pytest.fixture
def sqlite_repository(tmp_path: Path) -> Iterator[Repository]:
    """An open repository in a SQLite file, for rules that do not depend on the database."""
    with Repository.open(str(tmp_path / "study.db")) as opened:
        yield opened
