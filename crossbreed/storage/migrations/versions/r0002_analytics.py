"""Router analytics of a run at an operating point."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "analytics",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("operating_point_id", sa.Integer(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("tokens", sa.BigInteger(), nullable=False),
        sa.Column("rows", sa.Integer(), nullable=False),
        sa.Column("payload", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("recorded_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["operating_point_id"],
            ["operating_point.id"],
            name="fk_analytics_operating_point_id_operating_point",
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name="pk_analytics"),
        sa.UniqueConstraint("operating_point_id", "kind", name="uq_analytics_operating_point_id_kind"),
    )


def downgrade() -> None:
    op.drop_table("analytics")
