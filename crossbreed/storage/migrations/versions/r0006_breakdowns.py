"""Breakdowns: an evaluation's losses by class of positions and along the text."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("evaluation", sa.Column("breakdown", sa.JSON(), nullable=True))


def downgrade() -> None:
    op.drop_column("evaluation", "breakdown")
