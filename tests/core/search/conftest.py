"""A registry of small parts and a database of its own for every test."""

from __future__ import annotations

from pathlib import Path

import pytest

from crossbreed.core.host import Registry
from tests.core.search.material import toy_registry


@pytest.fixture(scope="module")
def toys() -> Registry:
    return toy_registry()


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return tmp_path / "study.db"
