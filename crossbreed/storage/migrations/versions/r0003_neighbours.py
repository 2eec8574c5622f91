"""Other processes that were at work on the device while a measurement was made."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("measurement", sa.Column("neighbours", sa.Text(), nullable=True))


def downgrade() -> None:
    op.drop_column("measurement", "neighbours")
