"""Writes that may be repeated: the same key is stored once, by SQLite's and PostgreSQL's own upsert."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Literal, cast

from sqlalchemy import Table, bindparam, literal
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.orm import Session

from crossbreed.storage.schema import Base

Rows = Sequence[Mapping[str, Any]]


def insert_missing(session: Session, model: type[Base], row: Mapping[str, Any], key: Sequence[str]) -> bool:
    """Insert a row unless its ``key`` is there already; returns whether it was inserted."""
    statement = _statement(session.get_bind().dialect.name, model, tuple(row), tuple(key), "keep")
    return session.connection().execute(statement, row).first() is not None


def upsert(session: Session, model: type[Base], rows: Rows, key: Sequence[str]) -> None:
    """Insert rows, or bring those already there level; all rows name the same columns."""
    if rows:
        statement = _statement(session.get_bind().dialect.name, model, tuple(rows[0]), tuple(key), "replace")
        session.connection().execute(statement, list(rows))


def upsert_id(session: Session, model: type[Base], row: Mapping[str, Any], key: Sequence[str]) -> int:
    """``upsert`` of one row of a numbered table; its id."""
    statement = _statement(session.get_bind().dialect.name, model, tuple(row), tuple(key), "number")
    return int(session.connection().execute(statement, row).scalar_one())


@lru_cache(maxsize=256)
def _statement(
    dialect: str,
    model: type[Base],
    columns: tuple[str, ...],
    key: tuple[str, ...],
    how: Literal["keep", "replace", "number"],
) -> Any:
    """The statement for rows of these columns, put together once: that takes longer than SQLite needs to run it."""
    table = cast(Table, model.__table__)
    insert = postgresql.insert(table) if dialect == "postgresql" else sqlite.insert(table)
    statement = insert.values({name: bindparam(name) for name in columns})
    if how == "keep":
        # RETURNING gives a row only for what was inserted; row counts of such statements differ between drivers.
        return statement.on_conflict_do_nothing(index_elements=key).returning(literal(1))
    changed = {name: statement.excluded[name] for name in columns if name not in key}
    if how == "replace":
        if changed:
            return statement.on_conflict_do_update(index_elements=key, set_=changed)
        return statement.on_conflict_do_nothing(index_elements=key)
    # A row that is there is named only by a statement that changes something of it.
    same = {name: statement.excluded[name] for name in key}
    return statement.on_conflict_do_update(index_elements=key, set_=changed or same).returning(table.c.id)
