"""Revisions: counters by which readers find what has changed."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

_TRIAL = "ix_trial_study_id_trial_number_trial_revision"
_RUN = "ix_run_trial_id_run_revision_run_updated_at"


def upgrade() -> None:
    for table in ("trial", "run"):
        op.add_column(table, sa.Column("revision", sa.Integer(), nullable=False, server_default="1"))
    op.create_index(_TRIAL, "trial", ["study_id", "number", "revision"])
    op.create_index(_RUN, "run", ["trial_id", "revision", "updated_at"])
    # It was there for the question that revisions answer.
    op.drop_index("ix_run_updated_at", "run")


def downgrade() -> None:
    op.create_index("ix_run_updated_at", "run", ["updated_at"])
    op.drop_index(_RUN, "run")
    op.drop_index(_TRIAL, "trial")
    for table in ("run", "trial"):
        op.drop_column(table, "revision")
