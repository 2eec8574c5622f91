"""Fixtures that tests all over the tree share."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from crossbreed.core.host import Host, Registry
from crossbreed.core.lab import lease

if TYPE_CHECKING:
    from tests.dashboard.browser import Chromium
    from tests.services import PostgresServer


@pytest.fixture(scope="session", autouse=True)
def _leases_of_this_session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Timing in a test waits for no timing outside of it."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv(lease.FOLDER, str(tmp_path_factory.mktemp("leases")))
        yield


@pytest.fixture(scope="session", autouse=True)
def _cache_of_this_session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What tests tokenise is not kept beyond them."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("CROSSBREED_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="session")
def registry() -> Registry:
    """The built-in plugins, without any that happen to be installed beside them."""
    return Host.load(third_party=False)


@pytest.fixture(scope="module")
def brief_timing() -> Iterator[None]:
    """Runs in this process are timed on few tokens, where it is no matter how fast they are."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("crossbreed.core.lab.profile.DECODE_STEPS", 5)
        patched.setattr("crossbreed.core.lab.profile.PREFILL_TOKENS", 32)
        yield


@pytest.fixture(scope="session")
def trained_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The database with the trained runs ``symbols/0/0`` and ``letters/0/0`` (see ``support.trained``); no test may change it."""
    from tests.support.trained import train

    return train(tmp_path_factory.mktemp("trained"))


@pytest.fixture
def trained_runs(trained_once: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    shutil.copytree(trained_once.parent, tmp_path / "trained")
    return tmp_path / "trained" / trained_once.name


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A real PostgreSQL server, started when the first test asks for it."""
    # Late, so that tests which need no database (on a GPU machine, say) run without its driver.
    from tests.services import postgres_server

    with postgres_server() as server:
        yield server


@pytest.fixture(scope="session")
def browser() -> Iterator[Chromium]:
    """One Chromium for all tests of a process: a second would need an event loop of its own."""
    from tests.dashboard.browser import browsing

    with browsing() as running:
        yield running


@pytest.fixture
def postgres_url(postgres: PostgresServer) -> Iterator[str]:
    """The URL, with a password, of an empty PostgreSQL database of this test's own."""
    with postgres.fresh_database() as url:
        yield url
