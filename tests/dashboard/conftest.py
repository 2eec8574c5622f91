"""One server over one study for all tests of a module."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.dashboard.browser import Server, serving
from tests.dashboard.material import store


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("dashboard") / "results.db"
    store(path)
    return path


@pytest.fixture(scope="module")
def server(database: Path) -> Iterator[Server]:
    with serving(str(database), database.parent) as running:
        yield running
