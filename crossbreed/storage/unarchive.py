"""Taking a study in from an archive: every row checked before it is stored, all of it or nothing, and only once."""

from __future__ import annotations

import hashlib
import json
import zipfile
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path, PurePosixPath
from typing import Any

from sqlalchemy import JSON, Column, Table, insert, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from crossbreed.core.artefacts import Artefacts
from crossbreed.core.errors import ConfigError, CrossbreedError
from crossbreed.storage import archive
from crossbreed.storage.archive import (
    MANIFEST,
    PIECE,
    ROOT,
    SCHEMA,
    Contents,
    Note,
    Row,
    numbered,
    pointers,
    tables,
)
from crossbreed.storage.database import Database
from crossbreed.storage.schema import REVISION, UtcDateTime
from crossbreed.storage.studies import check_name

SHARED = {"architecture": "hash"}
"""Tables that studies share, with the column that says which row is meant."""
BATCH = 1000
LONGEST_LINE = 64 << 20
"""Bytes of one row; more is no row of ours, and would fill the memory."""


def read(database: Database, place: str | Path, note: Note = lambda name: None) -> tuple[Contents, bool]:
    """Store the study of an archive at a path or a URL, with its files; returns what it holds, and whether it was there already.

    Raises ConfigError for a file that is no archive, is damaged, comes from another revision, or would clash with what is
    stored. Nothing of it is run.
    """
    folder, name = Artefacts.file(place)
    try:
        with folder.local(name) as path, zipfile.ZipFile(path) as opened:
            return _Import(database, opened, str(place), note).run()
    except CrossbreedError:
        raise
    except FileNotFoundError:
        raise ConfigError(f"archive {str(place)!r} does not exist.") from None
    except (OSError, zipfile.BadZipFile, zipfile.LargeZipFile, EOFError) as error:
        raise ConfigError(f"archive {str(place)!r} cannot be read: {error}.") from error


class _Import:
    def __init__(self, database: Database, opened: zipfile.ZipFile, where: str, note: Note) -> None:
        self.database, self.opened, self.where, self.note = database, opened, where, note
        self.manifest = self._manifest()
        self.name = str(self.manifest["study"])
        self.created: list[str] = []

    def run(self) -> tuple[Contents, bool]:
        check_name(self.name)
        contents = Contents(self.name, self.manifest["rows"], self.manifest["files"], self.manifest["sha256"])
        if self._digest() != contents.sha256:
            raise ConfigError(
                f"archive {self.where!r} is damaged: its rows are not those it was written with."
            )
        try:
            with self.database.writing() as session:
                if self._is_there(session, contents.sha256):
                    return contents, True
                artefacts = self._store(session)
                self._place(artefacts)
        except IntegrityError as error:
            self._undo()
            raise ConfigError(
                f"archive {self.where!r} breaks a rule of the database: {error.orig}."
            ) from error
        except BaseException:
            self._undo()
            raise
        return contents, False

    def _undo(self) -> None:
        for name in self.created:
            self.database.artefacts.delete(name)

    def _manifest(self) -> dict[str, Any]:
        try:
            data = json.loads(self.opened.read(MANIFEST))
        except (KeyError, ValueError):
            data = None
        wanted = {"study": str, "revision": str, "rows": dict, "files": int, "sha256": str}
        ours = isinstance(data, dict) and data.get("schema") == SCHEMA
        if not ours or not all(isinstance(data.get(key), kind) for key, kind in wanted.items()):
            raise ConfigError(f"{self.where!r} is not an archive that `crossbreed study export` wrote.")
        if data["revision"] != REVISION:
            raise ConfigError(
                f"archive {self.where!r} is of revision {data['revision']!r}, and this crossbreed reads {REVISION!r}; export the "
                "study again with this version, whose commands migrate an older database."
            )
        return dict(data)

    def _lines(self, table: Table) -> Iterator[bytes]:
        try:
            member = self.opened.open(f"tables/{table.name}.jsonl")
        except KeyError:
            raise ConfigError(f"archive {self.where!r} is damaged: it lacks table {table.name!r}.") from None
        with member as file:
            while text := file.readline(LONGEST_LINE):
                yield text

    def _digest(self) -> str:
        digest = hashlib.sha256()
        for table in tables():
            for text in self._lines(table):
                digest.update(table.name.encode() + b" " + text)
        return digest.hexdigest()

    def _is_there(self, session: Session, sha256: str) -> bool:
        study = next(t for t in tables() if t.name == ROOT)
        found = session.execute(select(study.c.id).where(study.c.name == self.name)).scalar_one_or_none()
        if found is None:
            return False
        if archive.fingerprint(session, found) != sha256:
            raise ConfigError(
                f"study {self.name!r} is in database {self.database.shown} already, and is not the one in {self.where!r}; "
                "import it into another database."
            )
        return True

    # Rows

    def _store(self, session: Session) -> list[Row]:
        ids: dict[str, dict[int, int]] = {}
        artefacts: list[Row] = []
        for table in tables():
            self.note(table.name)
            mine = ids.setdefault(table.name, {})
            batch: list[Row] = []
            for text in self._lines(table):
                row = self._checked(table, text, ids)
                if table.name == "artefact":
                    artefacts.append(row)
                batch.append(row)
                if len(batch) == BATCH:
                    _insert(session, table, batch, mine)
                    batch = []
            _insert(session, table, batch, mine)
        if len(ids[ROOT]) != 1:
            raise ConfigError(f"archive {self.where!r} holds {len(ids[ROOT])} studies; it must hold one.")
        return artefacts

    def _checked(self, table: Table, text: bytes, ids: dict[str, dict[int, int]]) -> Row:
        """A row with values of its columns' types, pointing to rows of this import."""
        try:
            row = json.loads(text)
        except ValueError:
            row = None
        if not isinstance(row, dict) or row.keys() != set(table.c.keys()):
            raise ConfigError(
                f"archive {self.where!r} has a row of table {table.name!r} that is not one of ours."
            )
        row = {name: self._value(table, table.c[name], value) for name, value in row.items()}
        for column, (target, _) in pointers(table).items():
            if row[column] not in ids[target]:
                raise ConfigError(
                    f"archive {self.where!r} has a row of table {table.name!r} that points to {target} {row[column]!r}, which it "
                    "does not hold."
                )
            row[column] = ids[target][row[column]]
        if table.name == ROOT and row["name"] != self.name:
            raise ConfigError(
                f"archive {self.where!r} says it holds {self.name!r}, but holds {row['name']!r}."
            )
        for path in (row.get("checkpoint"), row["path"] if table.name == "artefact" else None):
            if path is not None:
                self._check_path(path)
        return row

    def _value(self, table: Table, column: Column[Any], value: Any) -> Any:
        if value is None and column.nullable:
            return None
        if isinstance(column.type, UtcDateTime):
            kind: type = datetime
            try:
                value = datetime.fromisoformat(value)
            except (TypeError, ValueError):
                value = None
        elif isinstance(column.type, JSON):
            kind = dict
        else:
            kind = column.type.python_type
        whole = isinstance(value, int) and not isinstance(value, bool)
        if isinstance(value, kind) and (kind is not int or whole):
            return value
        if kind is float and whole:
            return float(value)
        raise ConfigError(
            f"archive {self.where!r} has {table.name}.{column.name} {str(value)[:40]!r}; it must be {_KINDS[kind]}."
        )

    def _check_path(self, path: str) -> None:
        parts = PurePosixPath(path).parts
        inside = len(parts) > 1 and parts[0] == self.name and ".." not in parts and "\\" not in path
        if not inside or "\0" in path or str(PurePosixPath(path)) != path:
            raise ConfigError(
                f"archive {self.where!r} has the path {path!r}; files of its runs must lie in {self.name + '/'!r}."
            )

    # Files

    def _place(self, artefacts: list[Row]) -> None:
        if not self.manifest["files"]:
            return
        members = set(self.opened.namelist())
        for row in artefacts:
            member = f"artefacts/{row['path']}"
            if member not in members:
                raise ConfigError(f"archive {self.where!r} is damaged: it lacks file {row['path']!r}.")
            self.note(row["path"])
            self._place_file(member, row)

    def _place_file(self, member: str, row: Row) -> None:
        artefacts, name = self.database.artefacts, str(row["path"])
        if artefacts.exists(name):
            with artefacts.local(name) as path, path.open("rb") as file:
                same = hashlib.file_digest(file, "sha256").hexdigest() == row["sha256"]
            if not same:
                raise ConfigError(
                    f"file {artefacts.shown(name)!r} exists already and is another one than in {self.where!r}."
                )
            return
        digest, size = hashlib.sha256(), 0
        with self.opened.open(member) as source, artefacts.writing(name) as out:
            # No more than was said: a small archive may unpack to more than a disk holds.
            while size <= row["bytes"] and (piece := source.read(PIECE)):
                digest.update(piece)
                size += len(piece)
                out.write(piece)
            if size != row["bytes"] or digest.hexdigest() != row["sha256"]:
                raise ConfigError(
                    f"archive {self.where!r} is damaged: file {name!r} is not the one it was written with."
                )
        self.created.append(name)


_KINDS = {
    int: "a whole number",
    float: "a number",
    str: "text",
    bool: "true or false",
    datetime: "a time",
    dict: "an object",
}


def _insert(session: Session, table: Table, rows: list[Row], ids: dict[int, int]) -> None:
    """Store rows and learn the ids they got here."""
    if not rows:
        return
    if not numbered(table):
        session.execute(insert(table), rows)
        return
    old = [row["id"] for row in rows]
    rows = [{k: v for k, v in row.items() if k != "id"} for row in rows]
    if table.name in SHARED:
        new = [_shared(session, table, SHARED[table.name], row) for row in rows]
    else:
        statement = insert(table).returning(table.c.id, sort_by_parameter_order=True)
        new = list(session.execute(statement, rows).scalars())
    ids.update(zip(old, new, strict=True))


def _shared(session: Session, table: Table, key: str, row: Row) -> int:
    """The id of a row that other studies may have stored already."""
    found = session.execute(select(table).where(table.c[key] == row[key])).one_or_none()
    if found is None:
        return int(session.execute(insert(table).returning(table.c.id), row).scalar_one())
    stored = dict(found._mapping)
    if any(stored[name] != value for name, value in row.items()):
        raise ConfigError(
            f"{table.name} {row[key][:12]!r} is stored already, and is another one than in the archive."
        )
    return int(stored["id"])
