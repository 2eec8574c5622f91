"""Real servers for tests: a PostgreSQL of our own on loopback, started as a user that it accepts."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg

PASSWORD = "let-me-in/please"
"""The server's password; the slash has to be escaped in a URL, as users' passwords do."""

START_ATTEMPTS = 5


def postgres_binaries() -> Path:
    """The folder with initdb and pg_ctl: on PATH, or the newest of /usr/lib/postgresql.

    Raises RuntimeError naming the package when there is none.
    """
    on_path = shutil.which("initdb")
    installed = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda p: int(p.parts[-3]))
    found = Path(on_path).resolve() if on_path else installed[-1] if installed else None
    if found is None or not (found.parent / "pg_ctl").exists():
        raise RuntimeError(
            "PostgreSQL's initdb and pg_ctl are neither on PATH nor in /usr/lib/postgresql; install the package "
            "postgresql."
        )
    return found.parent


@dataclass(frozen=True)
class PostgresServer:
    """A running server and the ways to it."""

    port: int
    data: Path
    binaries: Path
    user: str | None

    def url(self, database: str) -> str:
        password = PASSWORD.replace("/", "%2F")
        return f"postgresql://crossbreed:{password}@127.0.0.1:{self.port}/{database}"

    @contextmanager
    def fresh_database(self) -> Iterator[str]:
        """The URL of a new empty database, dropped afterwards whoever is still connected."""
        name = f"test_{uuid.uuid4().hex[:12]}"
        self._execute(f"CREATE DATABASE {name}")
        try:
            yield self.url(name)
        finally:
            self._execute(f"DROP DATABASE {name} WITH (FORCE)")

    def _execute(self, statement: str) -> None:
        with psycopg.connect(self.url("postgres"), autocommit=True) as connection:
            connection.execute(statement.encode())

    @contextmanager
    def restarted(self) -> Iterator[None]:
        """Stop the server, breaking every connection, and start it again on the same port afterwards."""
        self.control("stop", "-m", "fast")
        try:
            yield
        finally:
            self.start()

    def start(self) -> None:
        """Start on this port. Raises RuntimeError when the server does not come up."""
        folder = self.data.parent
        options = f"-p {self.port} -h 127.0.0.1 -k {folder} -F -c max_connections=50 -c shared_buffers=16MB"
        self.control("start", "-l", str(folder / "log"), "-o", options)

    def control(self, *arguments: str) -> None:
        """Run pg_ctl on this server, waiting until it is done."""
        _run(self.user, str(self.binaries / "pg_ctl"), "-D", str(self.data), "-w", *arguments)


@contextmanager
def postgres_server() -> Iterator[PostgresServer]:
    """A fresh server on a free loopback port, without fsync; stopped and removed at the end."""
    binaries = postgres_binaries()
    user = _other_user() if os.geteuid() == 0 else None
    folder = Path(tempfile.mkdtemp(prefix="crossbreed-postgres-"))
    try:
        secret = folder / "password"
        secret.write_text(PASSWORD)
        data = folder / "data"
        if user is not None:
            for path in (folder, secret):
                shutil.chown(path, user)
        initdb = (
            "--auth=scram-sha-256",
            "--username=crossbreed",
            f"--pwfile={secret}",
            "--no-sync",
            "-E",
            "UTF8",
        )
        _run(user, str(binaries / "initdb"), "-D", str(data), *initdb)
        server = _start(binaries, data, folder, user)
        try:
            yield server
        finally:
            server.control("stop", "-m", "immediate")
    finally:
        shutil.rmtree(folder)


def _start(binaries: Path, data: Path, folder: Path, user: str | None) -> PostgresServer:
    for attempt in range(START_ATTEMPTS):
        server = PostgresServer(_free_port(), data, binaries, user)
        try:
            server.start()
        except RuntimeError as error:
            # Somebody else may take the port between our look and the server's start.
            log = (folder / "log").read_text()
            if "Address already in use" not in log or attempt == START_ATTEMPTS - 1:
                raise RuntimeError(f"PostgreSQL does not start:\n{log}") from error
        else:
            return server
    raise AssertionError("unreachable")


def _other_user() -> str:
    """PostgreSQL refuses to run as root."""
    known = {entry.pw_name for entry in pwd.getpwall()}
    return "postgres" if "postgres" in known else "nobody"


def _run(user: str | None, *command: str) -> None:
    # The server keeps its output open, so it must not be a pipe of ours: that would never end.
    with tempfile.TemporaryFile("w+") as output:
        done = subprocess.run(
            command, user=user, group=None if user is None else pwd.getpwnam(user).pw_gid,
            extra_groups=None if user is None else [], cwd="/", stdin=subprocess.DEVNULL, stdout=output,
            stderr=subprocess.STDOUT, env={**os.environ, "LC_ALL": "C"}, check=False,
        )  # fmt: skip
        output.seek(0)
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)} failed ({done.returncode}):\n{output.read()}")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
