"""Alembic's environment: runs on the connection given by ``Database.open``, inside its transaction.

From the command line (``alembic revision --autogenerate``, with the repository's alembic.ini) there is none, and the
URL of the configuration is used.
"""

from __future__ import annotations

from alembic import context
from sqlalchemy import Connection, create_engine

from crossbreed.storage.locations import parse_url
from crossbreed.storage.schema import VERSION_TABLE, Base


def run(connection: Connection) -> None:
    context.configure(
        connection=connection,
        target_metadata=Base.metadata,
        version_table=VERSION_TABLE,
        # SQLite changes a column by copying its table.
        render_as_batch=connection.dialect.name == "sqlite",
    )
    with context.begin_transaction():
        context.run_migrations()


given = context.config.attributes.get("connection")
if given is not None:
    run(given)
else:
    url = parse_url(context.config.get_main_option("sqlalchemy.url") or "")
    with create_engine(url).begin() as opened:
        run(opened)
