"""A database of each kind for the tests of storage."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import text

from crossbreed.storage import Repository
from crossbreed.storage.schema import Base
from tests.services import PostgresServer

KINDS = ["sqlite", "postgresql"]


@pytest.fixture(params=KINDS)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty database of each supported kind."""
    if request.param == "postgresql":
        return str(request.getfixturevalue("postgres_url"))
    return f"sqlite:///{tmp_path / 'study.db'}"


@pytest.fixture(scope="session")
def migrated_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A SQLite database with its tables, to copy: quicker than migrating for each test."""
    path = tmp_path_factory.mktemp("template") / "study.db"
    Repository.open(str(path)).close()
    return path


@pytest.fixture(scope="session")
def migrated_postgres(postgres: PostgresServer) -> Iterator[str]:
    """A PostgreSQL database with its tables, emptied before each test that uses it."""
    with postgres.fresh_database() as url:
        Repository.open(url).close()
        yield url


@pytest.fixture(params=KINDS)
def repository(request: pytest.FixtureRequest, migrated_file: Path, tmp_path: Path) -> Iterator[Repository]:
    """An open repository on each kind of database, without rows."""
    if request.param == "postgresql":
        with Repository.open(str(request.getfixturevalue("migrated_postgres"))) as opened:
            names = ", ".join(table.name for table in Base.metadata.sorted_tables)
            with opened.database.writing() as session:
                session.execute(text(f"TRUNCATE {names} RESTART IDENTITY CASCADE"))
            yield opened
    else:
        with Repository.open(shutil.copy(migrated_file, tmp_path)) as opened:
            yield opened


@pytest.fixture
def sqlite_repository(migrated_file: Path, tmp_path: Path) -> Iterator[Repository]:
    """An open repository in a SQLite file, for rules that do not depend on the database."""
    with Repository.open(shutil.copy(migrated_file, tmp_path)) as opened:
        yield opened
