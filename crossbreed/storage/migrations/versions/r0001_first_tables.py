"""The first tables."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

STATE_CHECK = (
    "state IN ('queued', 'leased', 'running', 'done', 'off_budget', 'infeasible', 'out_of_memory', "
    "'diverged', 'failed', 'preempted', 'lost', 'pruned')"
)


def upgrade() -> None:
    op.create_table(
        "architecture",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("hash", sa.String(length=64), nullable=False),
        sa.Column("genome", sa.JSON(none_as_null=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_architecture"),
        sa.UniqueConstraint("hash", name="uq_architecture_hash"),
    )
    op.create_table(
        "study",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("spec", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("reference_point", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_study"),
        sa.UniqueConstraint("name", name="uq_study_name"),
    )
    op.create_table(
        "driver_lease",
        sa.Column("study_id", sa.Integer(), nullable=False),
        sa.Column("token", sa.String(), nullable=False),
        sa.Column("host", sa.String(), nullable=False),
        sa.Column("boot", sa.String(), nullable=False),
        sa.Column("pid", sa.Integer(), nullable=False),
        sa.Column("started", sa.Double(), nullable=False),
        sa.Column("heartbeat_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["study_id"], ["study.id"], name="fk_driver_lease_study_id_study", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("study_id", name="pk_driver_lease"),
    )
    op.create_table(
        "event",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("study_id", sa.Integer(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("payload", sa.JSON(none_as_null=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["study_id"], ["study.id"], name="fk_event_study_id_study", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_event"),
    )
    op.create_index("ix_event_study_id_event_id", "event", ["study_id", "id"])
    op.create_table(
        "plugin_file",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("study_id", sa.Integer(), nullable=False),
        sa.Column("path", sa.String(), nullable=False),
        sa.Column("sha256", sa.String(length=64), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("added_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["study_id"], ["study.id"], name="fk_plugin_file_study_id_study", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_plugin_file"),
        sa.UniqueConstraint("study_id", "path", "sha256", name="uq_plugin_file_study_id_path_sha256"),
    )
    op.create_table(
        "trial",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("study_id", sa.Integer(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("architecture_id", sa.Integer(), nullable=False),
        sa.Column("family", sa.String(), nullable=False),
        sa.Column("origin", sa.String(), nullable=False),
        sa.Column("draws", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("cause", sa.Text(), nullable=True),
        sa.Column("certificate", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("ledger", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.CheckConstraint(STATE_CHECK, name=op.f("ck_trial_state")),
        sa.ForeignKeyConstraint(
            ["architecture_id"], ["architecture.id"], name="fk_trial_architecture_id_architecture"
        ),
        sa.ForeignKeyConstraint(
            ["study_id"], ["study.id"], name="fk_trial_study_id_study", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_trial"),
        sa.UniqueConstraint("study_id", "number", name="uq_trial_study_id_number"),
    )
    op.create_index("ix_trial_architecture_id", "trial", ["architecture_id"])
    op.create_table(
        "run",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("trial_id", sa.Integer(), nullable=False),
        sa.Column("seed", sa.Integer(), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("cause", sa.Text(), nullable=True),
        sa.Column("traceback", sa.Text(), nullable=True),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("lease", sa.String(length=32), nullable=True),
        sa.Column("worker", sa.String(), nullable=True),
        sa.Column("lease_expires_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("rungs_done", sa.Integer(), nullable=False),
        sa.Column("recipe", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("identities", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("environment", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False),
        sa.CheckConstraint(STATE_CHECK, name=op.f("ck_run_state")),
        sa.ForeignKeyConstraint(["trial_id"], ["trial.id"], name="fk_run_trial_id_trial", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name="pk_run"),
        sa.UniqueConstraint("trial_id", "seed", name="uq_run_trial_id_seed"),
    )
    op.create_index("ix_run_trial_id_run_state", "run", ["trial_id", "state"])
    op.create_index("ix_run_updated_at", "run", ["updated_at"])
    op.create_table(
        "artefact",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("run_id", sa.Integer(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("path", sa.String(), nullable=False),
        sa.Column("sha256", sa.String(length=64), nullable=False),
        sa.Column("bytes", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["run.id"], name="fk_artefact_run_id_run", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name="pk_artefact"),
        sa.UniqueConstraint("run_id", "path", name="uq_artefact_run_id_path"),
    )
    op.create_table(
        "curve_point",
        sa.Column("run_id", sa.Integer(), nullable=False),
        sa.Column("step", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("tokens", sa.BigInteger(), nullable=False),
        sa.Column("loss_nats", sa.Double(), nullable=True),
        sa.Column("lr", sa.Double(), nullable=True),
        sa.Column("grad_norm", sa.Double(), nullable=True),
        sa.Column("aux", sa.JSON(none_as_null=True), nullable=True),
        sa.ForeignKeyConstraint(["run_id"], ["run.id"], name="fk_curve_point_run_id_run", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("run_id", "step", name="pk_curve_point"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "operating_point",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("run_id", sa.Integer(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("settings", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("rates", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("ledger", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("certificate", sa.JSON(none_as_null=True), nullable=True),
        sa.ForeignKeyConstraint(
            ["run_id"], ["run.id"], name="fk_operating_point_run_id_run", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_operating_point"),
        sa.UniqueConstraint("run_id", "name", name="uq_operating_point_run_id_name"),
    )
    op.create_table(
        "rung",
        sa.Column("run_id", sa.Integer(), nullable=False),
        sa.Column("rung", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("lease", sa.String(length=32), nullable=False),
        sa.Column("tokens", sa.BigInteger(), nullable=False),
        sa.Column("metrics", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("checkpoint", sa.String(), nullable=True),
        sa.Column("sha256", sa.String(length=64), nullable=True),
        sa.Column("recorded_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["run.id"], name="fk_rung_run_id_run", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("run_id", "rung", name="pk_rung"),
    )
    op.create_table(
        "evaluation",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("operating_point_id", sa.Integer(), nullable=False),
        sa.Column("tokens", sa.Integer(), nullable=False),
        sa.Column("metrics", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("score", sa.Double(), nullable=True),
        sa.Column("rows", sa.Integer(), nullable=False),
        sa.Column("unscored_rows", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(
            ["operating_point_id"],
            ["operating_point.id"],
            name="fk_evaluation_operating_point_id_operating_point",
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name="pk_evaluation"),
        sa.UniqueConstraint("operating_point_id", "tokens", name="uq_evaluation_operating_point_id_tokens"),
    )
    op.create_table(
        "measurement",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("operating_point_id", sa.Integer(), nullable=False),
        sa.Column("metric", sa.String(), nullable=False),
        sa.Column("phase", sa.String(), nullable=False),
        sa.Column("batch", sa.Integer(), nullable=False),
        sa.Column("tokens", sa.Integer(), nullable=False),
        sa.Column("dtype", sa.String(), nullable=False),
        sa.Column("device", sa.String(), nullable=False),
        sa.Column("policy", sa.String(), nullable=False),
        sa.Column("compiled", sa.Boolean(), nullable=False),
        sa.Column("median", sa.Double(), nullable=False),
        sa.Column("q1", sa.Double(), nullable=False),
        sa.Column("q3", sa.Double(), nullable=False),
        sa.Column("repeats", sa.Integer(), nullable=False),
        sa.Column("stable", sa.Boolean(), nullable=False),
        sa.Column("threads", sa.Integer(), nullable=False),
        sa.Column("unit", sa.String(), nullable=False),
        sa.Column("backends", sa.JSON(none_as_null=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["operating_point_id"],
            ["operating_point.id"],
            name="fk_measurement_operating_point_id_operating_point",
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name="pk_measurement"),
        sa.UniqueConstraint(
            "operating_point_id",
            "metric",
            "phase",
            "batch",
            "tokens",
            "dtype",
            "device",
            "policy",
            "compiled",
            name="uq_measurement_key",
        ),
    )


def downgrade() -> None:
    op.drop_table("measurement")
    op.drop_table("evaluation")
    op.drop_table("rung")
    op.drop_table("operating_point")
    op.drop_table("curve_point")
    op.drop_table("artefact")
    op.drop_table("run")
    op.drop_table("trial")
    op.drop_table("plugin_file")
    op.drop_table("event")
    op.drop_table("driver_lease")
    op.drop_table("study")
    op.drop_table("architecture")
