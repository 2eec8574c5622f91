"""Studies, their plugin files and their events."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from crossbreed.core.errors import ConfigError, StorageError, UnknownName
from crossbreed.storage import plain, schema
from crossbreed.storage.database import Database
from crossbreed.storage.rows import EventRow, PluginText, StudyRow
from crossbreed.storage.upsert import insert_missing, upsert

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


def now() -> datetime:
    """The time that is stored: aware, UTC."""
    return datetime.now(UTC)


def locked_study(session: Session, study_id: int) -> schema.Study:
    """The study's row, locked until the transaction ends, so that numbers and leases are given one at a time."""
    study = session.get(schema.Study, study_id, with_for_update=True)
    if study is None:
        raise StorageError(f"there is no study with id {study_id}.")
    return study


def check_name(name: str) -> None:
    """Raise ConfigError for what cannot be a study's name."""
    if not _NAME.fullmatch(name):
        raise ConfigError(
            f"study name {name!r} breaks the rule: a letter or digit, then up to 99 letters, digits, '.', '_', '-'."
        )


class Studies:
    """The part of the repository about studies."""

    database: Database

    def create_study(self, name: str, spec: Mapping[str, Any]) -> StudyRow:
        """Add a study; ``spec`` is its study file as data. Raises ConfigError for a bad or taken name."""
        check_name(name)
        with self.database.writing() as session:
            row = {"name": name, "spec": plain.plain(spec), "created_at": now()}
            if not insert_missing(session, schema.Study, row, ["name"]):
                raise ConfigError(f"study {name!r} is already in database {self.database.shown}.")
            return _study(session.scalars(select(schema.Study).where(schema.Study.name == name)).one())

    def find_study(self, name: str) -> StudyRow | None:
        with self.database.reading() as session:
            row = session.scalars(select(schema.Study).where(schema.Study.name == name)).one_or_none()
            return None if row is None else _study(row)

    def open_study(self, name: str) -> StudyRow:
        """The study of that name. Raises UnknownName with the nearest one."""
        found = self.find_study(name)
        if found is None:
            raise UnknownName("study", name, [s.name for s in self.list_studies()])
        return found

    def list_studies(self) -> list[StudyRow]:
        """All studies, oldest first."""
        with self.database.reading() as session:
            return [_study(s) for s in session.scalars(select(schema.Study).order_by(schema.Study.id))]

    def set_spec(self, study_id: int, spec: Mapping[str, Any]) -> None:
        """Replace the stored study file, as when a study goes on with more trials."""
        with self.database.writing() as session:
            locked_study(session, study_id).spec = plain.plain(spec)

    def fix_reference_point(self, study_id: int, point: Mapping[str, float]) -> dict[str, float]:
        """Store where hypervolume is measured from, unless it is stored already; returns the stored one."""
        with self.database.writing() as session:
            study = locked_study(session, study_id)
            if study.reference_point is None:
                study.reference_point = plain.plain(point)
            return dict(study.reference_point or {})

    def add_plugin_file(self, study_id: int, path: str, sha256: str, text: str) -> None:
        """Keep a plugin file that is used now with its study; the same content under the same path is kept once."""
        row = {"study_id": study_id, "path": path, "sha256": sha256, "text": text, "added_at": now()}
        with self.database.writing() as session:
            upsert(session, schema.PluginFileRow, [row], ["study_id", "path", "sha256"])

    def plugin_files(self, study_id: int) -> list[PluginText]:
        """Every plugin file a study used, the one used last at the end; one that was edited stands once for each content."""
        table = schema.PluginFileRow
        query = select(table).where(table.study_id == study_id).order_by(table.added_at, table.id)
        with self.database.reading() as session:
            rows = session.scalars(query)
            return [PluginText(r.path, r.sha256, r.text) for r in rows]

    def add_event(self, study_id: int, kind: str, payload: Mapping[str, Any] | None = None) -> int:
        """Note that something happened now; returns the event's id."""
        with self.database.writing() as session:
            event = schema.Event(study_id=study_id, at=now(), kind=kind, payload=plain.plain(payload or {}))
            session.add(event)
            session.flush()
            return event.id

    def first_event(self, study_id: int, kind: str) -> EventRow | None:
        """The oldest event of a kind, or None."""
        table = schema.Event
        query = (
            select(table).where(table.study_id == study_id, table.kind == kind).order_by(table.id).limit(1)
        )
        with self.database.reading() as session:
            found = session.scalars(query).first()
            return None if found is None else EventRow(found.id, found.at, found.kind, found.payload)

    def last_event(self, study_id: int, kind: str, *, after: int = 0) -> EventRow | None:
        """The newest event of a kind with an id above ``after``, or None."""
        table = schema.Event
        query = select(table).where(table.study_id == study_id, table.kind == kind, table.id > after)
        with self.database.reading() as session:
            found = session.scalars(query.order_by(table.id.desc()).limit(1)).first()
            return None if found is None else EventRow(found.id, found.at, found.kind, found.payload)

    def events_of(self, study_id: int, kind: str, *, after: int = 0) -> list[EventRow]:
        """All events of a kind with an id above ``after``, oldest first."""
        table = schema.Event
        query = select(table).where(table.study_id == study_id, table.kind == kind, table.id > after)
        query = query.order_by(table.id)
        with self.database.reading() as session:
            return [EventRow(r.id, r.at, r.kind, r.payload) for r in session.scalars(query)]

    def events(self, study_id: int, after: int = 0, limit: int = 1000) -> list[EventRow]:
        """Events with an id above ``after``, oldest first; of more than ``limit`` only the last ones."""
        table = schema.Event
        query = select(table).where(table.study_id == study_id, table.id > after)
        with self.database.reading() as session:
            rows = session.scalars(query.order_by(table.id.desc()).limit(limit)).all()
            return [EventRow(r.id, r.at, r.kind, r.payload) for r in reversed(rows)]


def _study(row: schema.Study) -> StudyRow:
    return StudyRow(row.id, row.name, row.spec, row.reference_point, row.created_at)
