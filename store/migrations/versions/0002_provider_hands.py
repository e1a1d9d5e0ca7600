"""Provider hands: licences and drift, the audit log, circuits, notifications, leases and quota reports."""

from __future__ import annotations

from pathlib import Path

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0002"
down_revision = "0001"

APPEND_ONLY = Path(__file__).parents[1] / "sql" / "0002_append_only.sql"


def upgrade() -> None:
    op.create_table(
        "audit_log",
        sa.Column("tenant_id", sa.Text(), nullable=False),
        sa.Column("sequence", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("actor", sa.Text(), nullable=False),
        sa.Column("action", sa.Text(), nullable=False),
        sa.Column("cause", sa.Text(), nullable=False),
        sa.Column("region", sa.Text(), nullable=False),
        sa.Column("partition_id", sa.Text(), nullable=True),
        sa.Column("workload_id", sa.Text(), nullable=True),
        sa.Column("pool_id", sa.Text(), nullable=True),
        sa.Column("batch_key", sa.Text(), nullable=True),
        sa.Column("server_id", sa.Text(), nullable=True),
        sa.Column("instances", sa.Integer(), server_default=sa.text("1"), nullable=False),
        sa.Column("paced", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.CheckConstraint("cause <> '' AND actor <> ''", name=op.f("audit_log_says_who_and_why_check")),
        sa.PrimaryKeyConstraint("sequence", name=op.f("audit_log_pkey")),
    )
    op.create_index(
        "audit_log_paced_idx",
        "audit_log",
        ["tenant_id", "partition_id", "region", "at"],
        unique=False,
        postgresql_where=sa.text("paced"),
    )
    op.create_index(
        op.f("audit_log_tenant_id_batch_key_idx"), "audit_log", ["tenant_id", "batch_key"], unique=False
    )
    op.create_index(
        op.f("audit_log_tenant_id_server_id_idx"), "audit_log", ["tenant_id", "server_id"], unique=False
    )
    op.create_table(
        "audits",
        sa.Column("tenant_id", sa.Text(), nullable=False),
        sa.Column("audit_id", sa.Uuid(), nullable=False),
        sa.Column("partition_id", sa.Text(), nullable=True),
        sa.Column("status", sa.Text(), server_default=sa.text("'running'"), nullable=False),
        sa.Column("report", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint(
            "status IN ('running', 'clean', 'findings', 'failed')", name=op.f("audits_status_known_check")
        ),
        sa.PrimaryKeyConstraint("tenant_id", "audit_id", name=op.f("audits_pkey")),
    )
    op.create_index(
        op.f("audits_tenant_id_started_at_idx"), "audits", ["tenant_id", "started_at"], unique=False
    )
    op.create_table(
        "leases",
        sa.Column("tenant_id", sa.Text(), nullable=False),
        sa.Column("region", sa.Text(), nullable=False),
        sa.Column("lease_id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("hall", sa.Text(), nullable=True),
        sa.Column("flavor", sa.Text(), nullable=True),
        sa.Column("instances", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("ends_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("renewed_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("problem", sa.Text(), nullable=True),
        sa.Column("seen_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.PrimaryKeyConstraint("tenant_id", "region", "lease_id", name=op.f("leases_pkey")),
    )
    op.create_table(
        "provider_notifications",
        sa.Column("tenant_id", sa.Text(), nullable=False),
        sa.Column("message_id", sa.Text(), nullable=False),
        sa.Column("region", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("server_id", sa.Text(), nullable=False),
        sa.Column("batch_key", sa.Text(), nullable=True),
        sa.Column("problem", sa.Text(), nullable=True),
        sa.Column("emitted_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("received_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.CheckConstraint(
            "kind IN ('created', 'deleted', 'errored', 'stopped', 'other')",
            name=op.f("provider_notifications_kind_known_check"),
        ),
        sa.PrimaryKeyConstraint("tenant_id", "message_id", name=op.f("provider_notifications_pkey")),
    )
    op.create_index(
        op.f("provider_notifications_tenant_id_region_received_at_idx"),
        "provider_notifications",
        ["tenant_id", "region", "received_at"],
        unique=False,
    )
    op.create_index(
        op.f("provider_notifications_tenant_id_server_id_idx"),
        "provider_notifications",
        ["tenant_id", "server_id"],
        unique=False,
    )
    op.create_table(
        "quota_reports",
        sa.Column("tenant_id", sa.Text(), nullable=False),
        sa.Column("region", sa.Text(), nullable=False),
        sa.Column("resource", sa.Text(), nullable=False),
        sa.Column("quota_limit", sa.BigInteger(), nullable=True),
        sa.Column("used", sa.BigInteger(), nullable=False),
        sa.Column("pending", sa.BigInteger(), nullable=False),
        sa.Column("alarm", sa.Boolean(), nullable=False),
        sa.Column("observed_at", sa.DateTime(timezone=True), nullable=False),
        sa.CheckConstraint("used >= 0 AND pending >= 0", name=op.f("quota_reports_use_not_negative_check")),
        sa.PrimaryKeyConstraint("tenant_id", "region", "resource", name=op.f("quota_reports_pkey")),
    )
    op.create_table(
        "drifts",
        sa.Column("tenant_id", sa.Text(), nullable=False),
        sa.Column("partition_id", sa.Text(), nullable=False),
        sa.Column("region", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("subject", sa.Text(), nullable=False),
        sa.Column("workload_id", sa.Text(), nullable=True),
        sa.Column("pool_id", sa.Text(), nullable=True),
        sa.Column("detail", sa.Text(), nullable=False),
        sa.Column("cycles", sa.Integer(), server_default=sa.text("1"), nullable=False),
        sa.Column("confirmed", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("first_seen_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("last_seen_at", sa.DateTime(timezone=True), nullable=False),
        sa.CheckConstraint(
            "kind IN ('lost', 'unserving', 'orphan', 'ended', 'unrecorded', 'stranger', 'wrong_tags', 'mismatch')",
            name=op.f("drifts_kind_known_check"),
        ),
        sa.ForeignKeyConstraint(
            ["tenant_id", "partition_id"],
            ["partitions.tenant_id", "partitions.partition_id"],
            name=op.f("drifts_partitions_fkey"),
        ),
        sa.PrimaryKeyConstraint(
            "tenant_id", "partition_id", "region", "kind", "subject", name=op.f("drifts_pkey")
        ),
    )
    op.create_table(
        "fleet_gaps",
        sa.Column("tenant_id", sa.Text(), nullable=False),
        sa.Column("partition_id", sa.Text(), nullable=False),
        sa.Column("region", sa.Text(), nullable=False),
        sa.Column("since", sa.DateTime(timezone=True), nullable=False),
        sa.Column("until", sa.DateTime(timezone=True), nullable=False),
        sa.Column("why", sa.Text(), nullable=False),
        sa.CheckConstraint("until >= since", name=op.f("fleet_gaps_ends_after_it_starts_check")),
        sa.ForeignKeyConstraint(
            ["tenant_id", "partition_id"],
            ["partitions.tenant_id", "partitions.partition_id"],
            name=op.f("fleet_gaps_partitions_fkey"),
        ),
        sa.PrimaryKeyConstraint("tenant_id", "partition_id", "region", "since", name=op.f("fleet_gaps_pkey")),
    )
    op.create_table(
        "reconciles",
        sa.Column("tenant_id", sa.Text(), nullable=False),
        sa.Column("partition_id", sa.Text(), nullable=False),
        sa.Column("region", sa.Text(), nullable=False),
        sa.Column("phase", sa.Text(), server_default=sa.text("'read_only'"), nullable=False),
        sa.Column("cycle", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("agreeing", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("unattended", sa.Boolean(), server_default=sa.text("true"), nullable=False),
        sa.Column("view", sa.LargeBinary(), nullable=True),
        sa.Column("fleet", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("backlog", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("problem", sa.Text(), nullable=True),
        sa.Column("acting_until", sa.DateTime(timezone=True), nullable=True),
        sa.Column("last_complete_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("recovered_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("updated_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.CheckConstraint(
            "phase <> 'read_only' OR acting_until IS NULL",
            name=op.f("reconciles_read_only_has_no_licence_check"),
        ),
        sa.CheckConstraint(
            "phase IN ('read_only', 'pacing', 'normal')", name=op.f("reconciles_phase_known_check")
        ),
        sa.ForeignKeyConstraint(
            ["tenant_id", "partition_id"],
            ["partitions.tenant_id", "partitions.partition_id"],
            name=op.f("reconciles_partitions_fkey"),
        ),
        sa.PrimaryKeyConstraint("tenant_id", "partition_id", "region", name=op.f("reconciles_pkey")),
    )
    op.add_column(
        "provider_budgets",
        sa.Column("circuit", sa.Text(), server_default=sa.text("'closed'"), nullable=False),
    )
    op.add_column(
        "provider_budgets", sa.Column("failures", sa.Integer(), server_default=sa.text("0"), nullable=False)
    )
    op.add_column(
        "provider_budgets", sa.Column("trips", sa.Integer(), server_default=sa.text("0"), nullable=False)
    )
    op.add_column("provider_budgets", sa.Column("circuit_problem", sa.Text(), nullable=True))
    op.add_column(
        "provider_budgets", sa.Column("circuit_changed_at", sa.DateTime(timezone=True), nullable=True)
    )
    op.add_column("provider_budgets", sa.Column("circuit_until", sa.DateTime(timezone=True), nullable=True))
    op.add_column("provider_budgets", sa.Column("paused_until", sa.DateTime(timezone=True), nullable=True))
    op.add_column(
        "provider_budgets",
        sa.Column("quota_refusals", sa.Integer(), server_default=sa.text("0"), nullable=False),
    )
    op.add_column("provider_budgets", sa.Column("quota_problem", sa.Text(), nullable=True))
    op.add_column("provider_budgets", sa.Column("quota_until", sa.DateTime(timezone=True), nullable=True))
    # Autogenerate does not compare CHECK constraints.
    op.drop_constraint("instances_state_known_check", "instances")
    op.create_check_constraint(
        op.f("instances_state_known_check"),
        "instances",
        "state IN ('planned', 'building', 'active', 'releasing', 'gone', 'failed', 'lost')",
    )
    op.create_check_constraint(
        op.f("provider_budgets_circuit_known_check"),
        "provider_budgets",
        "circuit IN ('closed', 'open', 'half_open')",
    )
    op.get_bind().exec_driver_sql(APPEND_ONLY.read_text().replace("%", "%%"))
