"""A registry of small parts and a database of its own for every test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from crossbreed.core.host import Registry
from tests.core.search.material import toy_registry
from tests.core.search.sessions import Begin, sessions


@pytest.fixture(scope="module", autouse=True)
def _brief_timing(brief_timing: None) -> None:
    """Real searches are made here for what becomes of their candidates."""


@pytest.fixture(scope="module")
def toys() -> Registry:
    return toy_registry()


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The URL of an empty database of each supported kind, with its artefacts in a folder of the test's own."""
    if request.param == "postgresql":
        monkeypatch.setenv("CROSSBREED_ARTEFACTS", str(tmp_path / "artefacts"))
        return str(request.getfixturevalue("postgres_url"))
    return str(tmp_path / "study.db")


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return tmp_path / "study.db"


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Begin]:
    """``begin(url, file, how)`` starts a search in a process of its own."""
    with sessions(tmp_path) as begin:
        yield begin
