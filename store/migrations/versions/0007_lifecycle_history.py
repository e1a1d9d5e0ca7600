"""The history of lifecycle events, by month, and the drains that they come to."""

from __future__ import annotations

from pathlib import Path

import sqlalchemy as sa
from alembic import op

from store.migrations.isolation import isolate

revision = "0007"
down_revision = "0006"

MONTHS = Path(__file__).parents[1] / "sql" / "0007_lifecycle_months.sql"
CAUSES = "('reclaim', 'defect', 'operator', 'drill', 'unknown')"
TYPES = (
    "('notice', 'drained', 'overrun', 'no_notice', 'signalled', 'checkpointed', 'work_ended', 'withdrawn',"
    " 'refused', 'ready', 'gap')"
)


def upgrade() -> None:
    events()
    drains()
    op.get_bind().exec_driver_sql(MONTHS.read_text().replace("%", "%%"))
    # What was said is never rewritten; only the cause is decided again when more is known.
    isolate("lifecycle_events", tenant_may="SELECT", service_may="SELECT, INSERT, UPDATE (cause)")
    isolate("node_drains", tenant_may="SELECT")


def events() -> None:
    op.create_table(
        "lifecycle_events",
        sa.Column("tenant_id", sa.Text(), nullable=False),
        sa.Column("month", sa.Date(), nullable=False),
        sa.Column("instance_id", sa.Text(), nullable=False),
        sa.Column("event_id", sa.Uuid(), nullable=False),
        sa.Column("type", sa.Text(), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("cause", sa.Text(), nullable=False),
        sa.Column("said_cause", sa.Text(), nullable=False),
        sa.Column("region", sa.Text(), nullable=False),
        sa.Column("hall", sa.Text(), nullable=False),
        sa.Column("pool_id", sa.Text(), nullable=False),
        sa.Column("partition_id", sa.Text(), nullable=False),
        sa.Column("workload_id", sa.Text(), nullable=False),
        sa.Column("sequence", sa.BigInteger(), nullable=False),
        sa.Column("occurred_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("received_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("notice_id", sa.Uuid(), nullable=True),
        sa.Column("deadline", sa.DateTime(timezone=True), nullable=True),
        sa.Column("path", sa.Text(), nullable=True),
        sa.Column("seconds_since_notice", sa.Float(53), nullable=True),
        sa.Column("seconds_to_spare", sa.Float(53), nullable=True),
        sa.Column("exit_code", sa.Integer(), nullable=True),
        sa.Column("wasted_vcpu_seconds", sa.Float(53), nullable=True),
        sa.Column("lost_events", sa.BigInteger(), nullable=True),
        sa.Column("detail", sa.Text(), server_default=sa.text("''"), nullable=False),
        sa.CheckConstraint(f"type IN {TYPES}", name=op.f("lifecycle_events_type_known_check")),
        sa.CheckConstraint(
            "source IN ('node', 'controller')", name=op.f("lifecycle_events_source_known_check")
        ),
        sa.CheckConstraint(f"cause IN {CAUSES}", name=op.f("lifecycle_events_cause_known_check")),
        sa.CheckConstraint(f"said_cause IN {CAUSES}", name=op.f("lifecycle_events_said_cause_known_check")),
        sa.CheckConstraint(
            "month = date_trunc('month', occurred_at AT TIME ZONE 'UTC')::date",
            name=op.f("lifecycle_events_month_of_the_event_check"),
        ),
        sa.PrimaryKeyConstraint("instance_id", "event_id", "month", name=op.f("lifecycle_events_pkey")),
        postgresql_partition_by="RANGE (month)",
    )


def drains() -> None:
    op.create_table(
        "node_drains",
        sa.Column("tenant_id", sa.Text(), nullable=False),
        sa.Column("instance_id", sa.Text(), nullable=False),
        sa.Column("drain_id", sa.Uuid(), nullable=False),
        sa.Column("outcome", sa.Text(), nullable=False),
        sa.Column("cause", sa.Text(), nullable=False),
        sa.Column("region", sa.Text(), nullable=False),
        sa.Column("hall", sa.Text(), nullable=False),
        sa.Column("pool_id", sa.Text(), nullable=False),
        sa.Column("partition_id", sa.Text(), nullable=False),
        sa.Column("workload_id", sa.Text(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("notice_id", sa.Uuid(), nullable=True),
        sa.Column("notice_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("deadline", sa.DateTime(timezone=True), nullable=True),
        sa.Column("signalled_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("signalled_after_seconds", sa.Float(53), nullable=True),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("seconds_to_spare", sa.Float(53), nullable=True),
        sa.Column("path", sa.Text(), nullable=True),
        sa.Column("updated_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.CheckConstraint(
            "outcome IN ('open', 'drained', 'overrun', 'withdrawn', 'no_notice')",
            name=op.f("node_drains_outcome_known_check"),
        ),
        sa.CheckConstraint(f"cause IN {CAUSES}", name=op.f("node_drains_cause_known_check")),
        sa.CheckConstraint(
            "(outcome = 'no_notice') = (notice_id IS NULL) AND (notice_id IS NULL) = (notice_at IS NULL)",
            name=op.f("node_drains_notice_or_none_check"),
        ),
        sa.CheckConstraint(
            "(outcome = 'open') = (ended_at IS NULL)", name=op.f("node_drains_ended_with_an_outcome_check")
        ),
        sa.PrimaryKeyConstraint("tenant_id", "instance_id", "drain_id", name=op.f("node_drains_pkey")),
    )
    op.create_index(
        op.f("node_drains_tenant_id_at_instance_id_drain_id_idx"),
        "node_drains",
        ["tenant_id", "at", "instance_id", "drain_id"],
    )
    op.create_index(
        "node_drains_open_idx",
        "node_drains",
        ["tenant_id", "at"],
        postgresql_where=sa.text("outcome = 'open'"),
    )
