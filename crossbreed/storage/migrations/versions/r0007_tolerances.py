"""Tolerances: how far an evaluation's score may move with the batch size."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("evaluation", sa.Column("tolerance", sa.Double(), nullable=True))


def downgrade() -> None:
    op.drop_column("evaluation", "tolerance")
