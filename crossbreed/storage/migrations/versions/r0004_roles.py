"""The role of a run: tuning chooses an architecture's setting, report runs give the numbers that are shown."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # A column with a default is added in place everywhere; rebuilding SQLite's table would cascade to its results.
    op.add_column("run", sa.Column("role", sa.String(8), nullable=False, server_default="tune"))
    # Until now a trial's first run decided whether it was run again, and every later one was a fresh seed.
    op.execute(
        "UPDATE run SET role = 'report' WHERE id NOT IN (SELECT first FROM "
        "(SELECT MIN(id) AS first FROM run GROUP BY trial_id) AS firsts)"
    )


def downgrade() -> None:
    op.drop_column("run", "role")
