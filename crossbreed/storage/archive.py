"""A study as one file: a zip of its rows as JSON lines, its plugin files, and, if asked for, the files of its runs.

Rows are found by following foreign keys from the study, so a table added later is taken along. Ids are numbered anew from 1,
which makes the same study the same bytes, whichever database it comes from: that is how a second import is recognised.
"""

from __future__ import annotations

import hashlib
import json
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path, PurePosixPath
from typing import Any

from sqlalchemy import Select, Table, select
from sqlalchemy.orm import Session

from crossbreed.core.artefacts import Artefacts
from crossbreed.core.errors import ConfigError, CrossbreedError
from crossbreed.storage.database import Database
from crossbreed.storage.runs import HELD
from crossbreed.storage.schema import REVISION, Base

SCHEMA = "crossbreed/study_archive/1"
MANIFEST = "manifest.json"
ROOT = "study"
LEFT_OUT = ("driver_lease",)
"""Who drives the study here and now says nothing elsewhere."""
EPOCH = (1980, 1, 1, 0, 0, 0)
"""The time of all members: equal studies make equal files."""
PIECE = 1 << 20

Row = dict[str, Any]
Note = Callable[[str], None]
"""Told the name of each table or file as it begins."""


@dataclass(frozen=True)
class Contents:
    """What an archive holds: rows by table, files of runs, and the SHA-256 of the rows."""

    study: str
    rows: Mapping[str, int]
    files: int
    sha256: str


def tables() -> list[Table]:
    """The tables of a study, each after those its rows point to."""
    owned = {ROOT}
    found = [t for t in Base.metadata.sorted_tables if t.name not in LEFT_OUT]
    for table in found:
        if any(target in owned for target, _ in pointers(table, owning=True).values()):
            owned.add(table.name)
    needed = {target for t in found if t.name in owned for target, _ in pointers(t).values()}
    return [t for t in found if t.name in owned | needed]


def pointers(table: Table, *, owning: bool = False) -> dict[str, tuple[str, str]]:
    """Foreign keys: column -> (table, column). ``owning``: only of rows that go when what they point to goes."""
    found = {}
    for key in table.foreign_keys:
        if not owning or key.ondelete == "CASCADE":
            found[key.parent.name] = (key.column.table.name, key.column.name)
    return found


def numbered(table: Table) -> bool:
    """Whether rows have an id of their own that other rows may point to."""
    return [c.name for c in table.primary_key] == ["id"]


def study_rows(
    session: Session, study_id: int, note: Note = lambda name: None
) -> Iterator[tuple[Table, Row]]:
    """Every row of a study as plain data, tables in order, with ids numbered from 1 in each."""
    ids: dict[str, dict[int, int]] = {}
    for table in tables():
        note(table.name)
        mine = ids.setdefault(table.name, {})
        keys = pointers(table)
        for found in session.execute(_chosen(table, study_id), execution_options={"yield_per": 1000}):
            row = dict(found._mapping)
            if numbered(table):
                row["id"] = mine.setdefault(row["id"], len(mine) + 1)
            for column, (target, _) in keys.items():
                row[column] = ids[target][row[column]]
            yield table, {name: _plain(value) for name, value in _at_rest(row).items()}


def _chosen(table: Table, study_id: int) -> Select[Any]:
    """The rows of one study in an order that does not depend on the database."""
    parent = next(iter(pointers(table, owning=True).items()), None)
    query = select(table)
    if table.name == ROOT:
        return query.where(table.c.id == study_id)
    if parent is None:
        return query.where(table.c.id.in_(_pointed_at(table, study_id))).order_by(table.c.hash)
    return _joined(query, table, study_id).order_by(*table.primary_key)


def _joined(query: Select[Any], table: Table, study_id: int) -> Select[Any]:
    """``query`` over the tables that lead from ``table`` to its study."""
    at = table
    while at.name != ROOT:
        column, (target, key) = next(iter(pointers(at, owning=True).items()))
        above = Base.metadata.tables[target]
        query = query.join(above, at.c[column] == above.c[key])
        at = above
    return query.where(at.c.id == study_id)


def _pointed_at(table: Table, study_id: int) -> Select[Any]:
    """The ids that the study's rows point to in a table they share with other studies."""
    (user, column) = next(
        (t, c) for t in tables() for c, (target, _) in pointers(t).items() if target == table.name
    )
    return _joined(select(user.c[column]).select_from(user), user, study_id)


def _at_rest(row: Row) -> Row:
    """A run that is with a worker waits in the copy: the worker belongs to the original."""
    if row.get("state") not in HELD:
        return row
    free: Row = {name: None for name in ("lease", "worker", "lease_expires_at") if name in row}
    return {**row, "state": "queued", **free}


def _plain(value: Any) -> Any:
    return value.isoformat() if isinstance(value, datetime) else value


def line(row: Row) -> bytes:
    """One row as a line of JSON."""
    return (json.dumps(row, ensure_ascii=False, separators=(",", ":"), allow_nan=False) + "\n").encode()


def fingerprint(session: Session, study_id: int) -> str:
    """The SHA-256 that an archive of the study would have."""
    digest = hashlib.sha256()
    for table, row in study_rows(session, study_id):
        digest.update(table.name.encode() + b" " + line(row))
    return digest.hexdigest()


def write(
    database: Database,
    name: str,
    place: str | Path,
    *,
    files: bool = False,
    note: Note = lambda name: None,
) -> Contents:
    """Write the archive of a study to a path or a URL; ``files`` takes checkpoints and other files of runs along.

    Raises ConfigError for an unknown study, a place that is taken or cannot be written, and a file that is missing or was
    changed.
    """
    folder, file = Artefacts.file(place)
    if folder.exists(file):
        raise ConfigError(f"{str(place)!r} exists already; name another file, or remove it.")
    study = Base.metadata.tables[ROOT]
    artefacts = database.artefacts if files else None
    try:
        with (
            folder.writing(file) as out,
            database.reading() as session,
            zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive,
        ):
            study_id = session.execute(select(study.c.id).where(study.c.name == name)).scalar_one()
            return _write_all(session, study_id, name, archive, artefacts, note)
    except CrossbreedError:
        raise
    except OSError as error:
        raise ConfigError(f"archive {str(place)!r} cannot be written: {error.strerror or error}.") from error


def _write_all(
    session: Session,
    study_id: int,
    name: str,
    archive: zipfile.ZipFile,
    files: Artefacts | None,
    note: Note,
) -> Contents:
    digest, counts = hashlib.sha256(), dict.fromkeys((t.name for t in tables()), 0)
    artefacts: list[Row] = []
    plugins: list[Row] = []
    rows = study_rows(session, study_id, note)
    following = next(rows, None)
    for table in tables():
        with archive.open(_member(f"tables/{table.name}.jsonl"), "w") as out:
            while following is not None and following[0] is table:
                row = following[1]
                out.write(line(row))
                digest.update(table.name.encode() + b" " + line(row))
                counts[table.name] += 1
                if table.name == "artefact":
                    artefacts.append(row)
                elif table.name == "plugin_file":
                    plugins.append(row)
                following = next(rows, None)
    for row in plugins:
        # To be read by people; an import takes them from the rows.
        file = f"plugins/{row['sha256'][:12]}-{PurePosixPath(row['path']).name}"
        archive.writestr(_member(file), row["text"])
    if files is not None:
        for row in artefacts:
            note(row["path"])
            _write_file(archive, files, row)
    kept = len(artefacts) if files is not None else 0
    contents = Contents(name, counts, kept, digest.hexdigest())
    manifest = {"schema": SCHEMA, "revision": REVISION, "study": name, "rows": counts, "files": kept}
    archive.writestr(_member(MANIFEST), json.dumps({**manifest, "sha256": contents.sha256}, indent=2))
    return contents


def _write_file(archive: zipfile.ZipFile, artefacts: Artefacts, row: Row) -> None:
    source, digest = artefacts.shown(row["path"]), hashlib.sha256()
    with ExitStack() as held:
        try:
            path = held.enter_context(artefacts.local(row["path"]))
        except FileNotFoundError:
            raise ConfigError(f"file {source!r} of the study is missing; export without files.") from None
        file = held.enter_context(path.open("rb"))
        member = _member(f"artefacts/{row['path']}")
        out = held.enter_context(archive.open(member, "w", force_zip64=True))
        while piece := file.read(PIECE):
            digest.update(piece)
            out.write(piece)
    if digest.hexdigest() != row["sha256"]:
        raise ConfigError(
            f"file {source!r} has SHA-256 {digest.hexdigest()[:12]}, but {row['sha256'][:12]} was stored; it was changed."
        )


def _member(name: str) -> zipfile.ZipInfo:
    member = zipfile.ZipInfo(name, EPOCH)
    member.compress_type = zipfile.ZIP_DEFLATED
    return member
