"""What is known of the provider: the right to act there, drift, every action, and what it says itself."""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    ForeignKeyConstraint,
    Identity,
    Index,
    LargeBinary,
    PrimaryKeyConstraint,
    Table,
    Text,
    Uuid,
    text,
)

from domain.reconcile import DriftKind, FleetPhase
from store.tables.base import AuditStatus, count, document, metadata, moment, one_of, tenant, word
from wire.notifications import EventKind

# One row per partition and region. `view` is the list of server ids that the next cycle has to agree with.
reconciles = Table(
    "reconciles",
    metadata,
    tenant(),
    word("partition_id"),
    word("region"),
    Column("phase", Text, nullable=False, server_default=text(f"'{FleetPhase.READ_ONLY}'")),
    count("cycle", 0),
    count("agreeing", 0),
    Column("unattended", Boolean, nullable=False, server_default=text("true")),
    Column("view", LargeBinary),
    count("fleet", 0),
    count("backlog", 0),
    word("problem", nullable=True),
    moment("acting_until", nullable=True),
    moment("last_complete_at", nullable=True),
    moment("recovered_at", nullable=True),
    moment("updated_at", now=True),
    PrimaryKeyConstraint("tenant_id", "partition_id", "region"),
    ForeignKeyConstraint(["tenant_id", "partition_id"], ["partitions.tenant_id", "partitions.partition_id"]),
    one_of("phase", FleetPhase),
    CheckConstraint("phase <> 'read_only' OR acting_until IS NULL", name="read_only_has_no_licence"),
)

drifts = Table(
    "drifts",
    metadata,
    tenant(),
    word("partition_id"),
    word("region"),
    word("kind"),
    word("subject"),
    word("workload_id", nullable=True),
    word("pool_id", nullable=True),
    word("detail"),
    count("cycles", 1),
    Column("confirmed", Boolean, nullable=False, server_default=text("false")),
    moment("first_seen_at"),
    moment("last_seen_at"),
    PrimaryKeyConstraint("tenant_id", "partition_id", "region", "kind", "subject"),
    ForeignKeyConstraint(["tenant_id", "partition_id"], ["partitions.tenant_id", "partitions.partition_id"]),
    one_of("kind", DriftKind),
)

fleet_gaps = Table(
    "fleet_gaps",
    metadata,
    tenant(),
    word("partition_id"),
    word("region"),
    moment("since"),
    moment("until"),
    word("why"),
    PrimaryKeyConstraint("tenant_id", "partition_id", "region", "since"),
    ForeignKeyConstraint(["tenant_id", "partition_id"], ["partitions.tenant_id", "partitions.partition_id"]),
    CheckConstraint("until >= since", name="ends_after_it_starts"),
)

# Append-only by trigger. `paced` actions count against what one window allows.
audit_log = Table(
    "audit_log",
    metadata,
    tenant(),
    Column("sequence", BigInteger, Identity(always=True), nullable=False),
    moment("at", now=True),
    word("actor"),
    word("action"),
    word("cause"),
    word("region"),
    word("partition_id", nullable=True),
    word("workload_id", nullable=True),
    word("pool_id", nullable=True),
    word("batch_key", nullable=True),
    word("server_id", nullable=True),
    count("instances", 1),
    Column("paced", Boolean, nullable=False, server_default=text("false")),
    PrimaryKeyConstraint("sequence"),
    CheckConstraint("cause <> '' AND actor <> ''", name="says_who_and_why"),
    Index(None, "tenant_id", "batch_key"),
    Index(None, "tenant_id", "server_id"),
    Index("audit_log_paced_idx", "tenant_id", "partition_id", "region", "at", postgresql_where=text("paced")),
)

audits = Table(
    "audits",
    metadata,
    tenant(),
    Column("audit_id", Uuid, nullable=False),
    word("partition_id", nullable=True),
    Column("status", Text, nullable=False, server_default=text(f"'{AuditStatus.RUNNING}'")),
    document("report"),
    moment("started_at", now=True),
    moment("finished_at", nullable=True),
    PrimaryKeyConstraint("tenant_id", "audit_id"),
    one_of("status", AuditStatus),
    Index(None, "tenant_id", "started_at"),
)

# What the provider says by itself. A message is kept once, however often it is delivered.
provider_notifications = Table(
    "provider_notifications",
    metadata,
    tenant(),
    word("message_id"),
    word("region"),
    word("kind"),
    word("server_id"),
    word("batch_key", nullable=True),
    word("problem", nullable=True),
    moment("emitted_at"),
    moment("received_at", now=True),
    PrimaryKeyConstraint("tenant_id", "message_id"),
    one_of("kind", EventKind),
    Index(None, "tenant_id", "server_id"),
    Index(None, "tenant_id", "region", "received_at"),
)

leases = Table(
    "leases",
    metadata,
    tenant(),
    word("region"),
    word("lease_id"),
    word("name"),
    word("status"),
    word("hall", nullable=True),
    word("flavor", nullable=True),
    count("instances", 0),
    moment("ends_at"),
    moment("renewed_at", nullable=True),
    word("problem", nullable=True),
    moment("seen_at", now=True),
    PrimaryKeyConstraint("tenant_id", "region", "lease_id"),
)

quota_reports = Table(
    "quota_reports",
    metadata,
    tenant(),
    word("region"),
    word("resource"),
    Column("quota_limit", BigInteger),
    Column("used", BigInteger, nullable=False),
    Column("pending", BigInteger, nullable=False),
    Column("alarm", Boolean, nullable=False),
    moment("observed_at"),
    PrimaryKeyConstraint("tenant_id", "region", "resource"),
    CheckConstraint("used >= 0 AND pending >= 0", name="use_not_negative"),
)
