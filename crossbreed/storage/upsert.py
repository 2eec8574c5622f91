"""Writes that may be repeated: the same key is stored once, by SQLite's and PostgreSQL's own upsert."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from sqlalchemy import Table, literal
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.orm import Session

from crossbreed.storage.schema import Base

Rows = Sequence[Mapping[str, Any]]


def insert_missing(session: Session, model: type[Base], row: Mapping[str, Any], key: Sequence[str]) -> bool:
    """Insert a row unless its ``key`` is there already; returns whether it was inserted."""
    statement = _insert(session, model).values(row).on_conflict_do_nothing(index_elements=list(key))
    # RETURNING gives a row only for what was inserted; row counts of such statements differ between drivers.
    return session.connection().execute(statement.returning(literal(1))).first() is not None


def upsert(session: Session, model: type[Base], rows: Rows, key: Sequence[str]) -> None:
    """Insert rows, or bring those already there level; all rows name the same columns."""
    if not rows:
        return
    statement = _insert(session, model)
    changed = {name: statement.excluded[name] for name in rows[0] if name not in key}
    if changed:
        statement = statement.on_conflict_do_update(index_elements=list(key), set_=changed)
    else:
        statement = statement.on_conflict_do_nothing(index_elements=list(key))
    session.connection().execute(statement, list(rows))


def _insert(session: Session, model: type[Base]) -> Any:
    table = cast(Table, model.__table__)
    postgres = session.get_bind().dialect.name == "postgresql"
    return postgresql.insert(table) if postgres else sqlite.insert(table)
