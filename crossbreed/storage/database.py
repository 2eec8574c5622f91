"""Opening a database: SQLite by default, PostgreSQL by URL; created, migrated or refused, and then sessions.

SQLite runs in WAL mode, so that a reader never blocks the writer, and every write transaction takes its lock at once
(BEGIN IMMEDIATE): a deferred one that reads first fails with "database is locked" without waiting.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
import time
from collections.abc import Iterable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote

from sqlalchemy import URL, Connection, Engine, create_engine, event, inspect, text
from sqlalchemy.exc import (
    DBAPIError,
    IntegrityError,
    InterfaceError,
    NoSuchModuleError,
    OperationalError,
    SQLAlchemyError,
)
from sqlalchemy.orm import Session

from crossbreed.core.artefacts import Artefacts
from crossbreed.core.errors import DatabaseLost, StorageError
from crossbreed.storage import plain
from crossbreed.storage.locations import Mount, artefacts_of, network_filesystem, parse_url, redacted
from crossbreed.storage.schema import REVISION, VERSION_TABLE

BUSY_SECONDS = 30
"""How long a writer waits for another one before it gives up."""

_MIGRATION_LOCK = 0x63_72_6F_73  # an advisory lock number of our own on PostgreSQL
_in_process = threading.Lock()  # Alembic's environment is a module-level proxy, one at a time in a process

Standing = Literal["fresh", "older", "current"]


class Database:
    """An open database. ``with database.writing() as session`` is one transaction; nested ones join it."""

    def __init__(self, url: URL, engine: Engine, read_only: bool) -> None:
        self.url, self.read_only = url, read_only
        self.engine = engine
        self._writer = engine.execution_options(begin="IMMEDIATE")
        # One snapshot for a query of several statements: SQLite's read transactions are that already.
        snapshot = {} if self.is_sqlite else {"isolation_level": "REPEATABLE READ"}
        self._reader = engine.execution_options(**snapshot)
        self._local = threading.local()

    @staticmethod
    def open(
        url: str, *, read_only: bool = False, create: bool = True, mounts: Iterable[Mount] | None = None
    ) -> Database:
        """Open, create or migrate the database at ``url`` (a path is a SQLite file).

        ``read_only`` neither creates nor migrates and cannot write. ``mounts`` replaces the machine's mount table.
        Raises StorageError when the database is missing, from a newer version, not ours, on a network file system,
        or in a place that cannot be written.
        """
        parsed = parse_url(url)
        if parsed.get_backend_name() == "sqlite":
            _check_place(parsed, read_only, create, mounts)
        database = Database(parsed, _engine(parsed, read_only), read_only)
        try:
            database._prepare(create and not read_only)
        except BaseException:
            database.close()
            raise
        return database

    @cached_property
    def artefacts(self) -> Artefacts:
        """Where its files lie. Raises ConfigError for a place that cannot be one; who reads rows alone does not ask."""
        return artefacts_of(self.url)

    @property
    def is_sqlite(self) -> bool:
        return self.url.get_backend_name() == "sqlite"

    @property
    def shown(self) -> str:
        """The URL for messages, without its password."""
        return redacted(self.url)

    def close(self) -> None:
        self.engine.dispose()

    def __enter__(self) -> Database:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    @contextlib.contextmanager
    def writing(self) -> Iterator[Session]:
        """One write transaction, committed at the end and rolled back on an exception; nested calls join the outer.

        Raises StorageError when the database is read-only or full, DatabaseLost when it is gone or was locked for longer than
        BUSY_SECONDS.
        """
        if self.read_only:
            raise StorageError(f"database {self.shown} was opened read-only and cannot be written.")
        with self._session(self._writer, "written") as session:
            yield session

    @contextlib.contextmanager
    def reading(self) -> Iterator[Session]:
        """One consistent snapshot of the database, or the transaction being written by this thread."""
        with self._session(self._reader, "read") as session:
            yield session

    @contextlib.contextmanager
    def _session(self, engine: Engine, verb: str) -> Iterator[Session]:
        outer: tuple[Session, str] | None = getattr(self._local, "session", None)
        if outer is not None:
            if verb == "written" and outer[1] == "read":
                raise RuntimeError("a write transaction cannot start inside a reading one")
            yield outer[0]
            outer[0].flush()
            return
        with self._sentences(verb), Session(engine, expire_on_commit=False) as session, session.begin():
            self._local.session = (session, verb)
            try:
                yield session
                session.flush()
            finally:
                self._local.session = None

    @contextlib.contextmanager
    def _sentences(self, verb: str) -> Iterator[None]:
        """Turn failures of the place (not of our statements) into sentences."""
        try:
            yield
        except IntegrityError:
            raise
        except DBAPIError as error:
            reason = str(error.orig).strip().splitlines()[0]
            kind = DatabaseLost if _passes(error) else StorageError
            raise kind(f"database {self.shown} cannot be {verb}: {reason}.") from error
        except sqlite3.Error as error:  # raised by our own statements while a connection is set up
            raise StorageError(f"database {self.shown} cannot be {verb}: {error}.") from error

    def _prepare(self, may_migrate: bool) -> None:
        with self._sentences("opened"):
            with self.engine.connect() as connection:
                standing = self._standing(connection)
            if standing == "current":
                return
            if not may_migrate:
                raise StorageError(self._cannot_migrate(standing))
            if self.is_sqlite:
                self._use_wal()
            with _in_process, self._writer.begin() as connection:
                if not self.is_sqlite:
                    connection.execute(text("SELECT pg_advisory_xact_lock(:n)"), {"n": _MIGRATION_LOCK})
                # Another process may have been faster while we waited for the lock.
                if self._standing(connection) != "current":
                    migrate(connection)

    def _standing(self, connection: Connection) -> Standing:
        tables = set(inspect(connection).get_table_names())
        if VERSION_TABLE not in tables:
            if tables:
                shown = ", ".join(sorted(tables)[:3])
                raise StorageError(
                    f"database {self.shown} is not a crossbreed database (it holds {shown}); name another one."
                )
            return "fresh"
        found = connection.execute(text(f"SELECT version_num FROM {VERSION_TABLE}")).scalar()
        if found == REVISION:
            return "current"
        if found not in revisions():
            raise StorageError(
                f"database {self.shown} is at revision {found!r}, newer than this crossbreed, which knows revisions "
                f"up to {REVISION!r}; upgrade crossbreed to open it."
            )
        return "older"

    def _cannot_migrate(self, standing: Standing) -> str:
        if standing == "fresh":
            return f"database {self.shown} is empty; `crossbreed search` fills it."
        return (
            f"database {self.shown} is at an older revision than {REVISION!r} and was opened without leave to change "
            "it; any command that writes, such as `crossbreed search`, migrates it."
        )

    def _use_wal(self) -> None:
        """Switch the file to WAL, which lasts. SQLite does not wait here when others open the file too, so we do."""
        deadline = time.monotonic() + BUSY_SECONDS
        while True:
            try:
                with self.engine.connect() as connection:
                    dbapi: Any = connection.connection.driver_connection
                    mode = dbapi.execute("PRAGMA journal_mode=WAL").fetchone()[0]
            except sqlite3.OperationalError as error:
                if "locked" not in str(error) or time.monotonic() > deadline:
                    raise
                time.sleep(0.02)
                continue
            if mode != "wal":
                raise StorageError(
                    f"database {self.shown} stays in journal mode {mode!r}; SQLite needs WAL mode here, which this "
                    "file system does not offer. Name a local path, or a postgresql:// URL."
                )
            return


def _passes(error: DBAPIError) -> bool:
    """Whether what failed may work later: a server that is gone or starting, another's lock."""
    if isinstance(error.orig, sqlite3.Error):
        return "locked" in str(error.orig)
    return isinstance(error, OperationalError | InterfaceError)


def migrate(connection: Connection) -> None:
    """Bring the database to REVISION inside the connection's own transaction: all of it, or nothing."""
    from alembic import command

    config = alembic_config()
    config.attributes["connection"] = connection
    command.upgrade(config, "head")


def alembic_config() -> Any:
    """Alembic's configuration, made here so that an installed package needs no alembic.ini."""
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations").replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    return config


def revisions() -> set[str]:
    """Every revision this version of crossbreed can migrate from."""
    from alembic.script import ScriptDirectory

    return {script.revision for script in ScriptDirectory.from_config(alembic_config()).walk_revisions()}


def _check_place(url: URL, read_only: bool, create: bool, mounts: Iterable[Mount] | None) -> None:
    file = Path(str(url.database))
    if not file.exists() and (read_only or not create):
        raise StorageError(f"there is no database at {str(file)!r}; `crossbreed search` makes one.")
    if file.is_dir():
        raise StorageError(f"database {str(file)!r} is a folder; name a file in it, such as crossbreed.db.")
    if read_only:
        return
    kind = network_filesystem(file, mounts)
    if kind is not None:
        raise StorageError(
            f"database {str(file)!r} lies on a network file system ({kind}), where SQLite files get corrupted; name a "
            "path on a local disk, or a PostgreSQL server: --db postgresql://user@host/name."
        )
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(f"folder {str(file.parent)!r} cannot be made: {error.strerror}.") from error
    # WAL keeps two files beside the database, so the folder has to be writable too.
    for place in (file.parent, file):
        if place.exists() and not os.access(place, os.W_OK):
            raise StorageError(
                f"database {str(file)!r} cannot be written: {str(place)!r} is read-only for this user; name another "
                "place with --db."
            )


def _engine(url: URL, read_only: bool) -> Engine:
    if url.get_backend_name() == "sqlite":
        return _sqlite_engine(url, read_only)
    query = dict(url.query)
    if read_only:
        given = query.pop("options", "")
        query["options"] = f"{given} -c default_transaction_read_only=on".strip()
        url = url.set(query=query)
    try:
        return create_engine(
            url, pool_size=5, max_overflow=10, pool_pre_ping=True, json_serializer=plain.dumps
        )
    except (ImportError, NoSuchModuleError) as error:
        raise StorageError(
            f"database {redacted(url)} needs the psycopg driver: pip install 'crossbreed[postgres]' ({error})."
        ) from error
    except SQLAlchemyError as error:
        raise StorageError(f"database {redacted(url)} cannot be opened: {error}.") from error


def _sqlite_engine(url: URL, read_only: bool) -> Engine:
    file = Path(str(url.database))
    mode = _read_only_mode(file) if read_only else "mode=rwc"
    uri = f"file:{quote(str(file))}?{mode}"

    def connect() -> sqlite3.Connection:
        # isolation_level None: we send BEGIN ourselves, below, so that data definition is transactional too.
        connection = sqlite3.connect(
            uri, uri=True, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False
        )
        connection.execute("PRAGMA foreign_keys=ON")
        connection.execute("PRAGMA synchronous=NORMAL")
        return connection

    engine = create_engine(url, creator=connect, json_serializer=plain.dumps)

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        how = connection.get_execution_options().get("begin", "DEFERRED")
        connection.exec_driver_sql(f"BEGIN {how}")

    return engine


def _read_only_mode(file: Path) -> str:
    """Reading in WAL mode keeps an index beside the file; where the disk itself is read-only, nobody can be writing
    and the file can be read as it is."""
    flags = os.statvfs(file.parent).f_flag
    return "mode=ro&immutable=1" if flags & os.ST_RDONLY else "mode=ro"
