"""What is held: reservations, the slots behind them, and pools that are avoided for a while."""

from __future__ import annotations

from sqlalchemy import (
    CheckConstraint,
    ForeignKeyConstraint,
    Index,
    PrimaryKeyConstraint,
    Table,
    UniqueConstraint,
    text,
)

from domain.acquisition import SlotState
from store.tables.base import count, metadata, moment, one_of, tenant, word

reservations = Table(
    "reservations",
    metadata,
    tenant(),
    word("workload_id"),
    word("pool_id"),
    word("shape_key"),
    count("units", 0),
    count("units_per_instance", 1),
    count("target_instances", 0),
    count("instances", 0),
    count("generation", 0),
    PrimaryKeyConstraint("tenant_id", "workload_id", "pool_id", "shape_key"),
    ForeignKeyConstraint(["tenant_id", "workload_id"], ["workloads.tenant_id", "workloads.workload_id"]),
    ForeignKeyConstraint(["tenant_id", "pool_id"], ["pools.tenant_id", "pools.pool_id"]),
    CheckConstraint("units >= 0", name="units_not_negative"),
    CheckConstraint("instances >= 0 AND target_instances >= 0", name="instances_not_negative"),
)

instances = Table(
    "instances",
    metadata,
    tenant(),
    word("slot_key"),
    word("workload_id"),
    word("partition_id"),
    word("pool_id"),
    word("region"),
    word("shape_key"),
    count("generation"),
    word("batch_key"),
    word("state"),
    word("server_id", nullable=True),
    word("server_name", nullable=True),
    word("problem", nullable=True),
    word("launched_by", nullable=True),
    count("launch_attempts", 0),
    moment("requested_at", nullable=True),
    moment("created_at", now=True),
    moment("updated_at", now=True),
    moment("active_at", nullable=True),
    PrimaryKeyConstraint("tenant_id", "slot_key"),
    UniqueConstraint("server_id"),
    ForeignKeyConstraint(["tenant_id", "workload_id"], ["workloads.tenant_id", "workloads.workload_id"]),
    ForeignKeyConstraint(["tenant_id", "pool_id"], ["pools.tenant_id", "pools.pool_id"]),
    one_of("state", SlotState),
    CheckConstraint(
        "state NOT IN ('building', 'active') OR server_id IS NOT NULL", name="running_has_server"
    ),
    Index(None, "tenant_id", "workload_id", "state"),
    Index(None, "tenant_id", "batch_key"),
    Index(
        "instances_live_idx",
        "tenant_id",
        "partition_id",
        "server_id",
        postgresql_where=text("state IN ('building', 'active', 'releasing')"),
    ),
)

pool_backoffs = Table(
    "pool_backoffs",
    metadata,
    tenant(),
    word("workload_id"),
    word("pool_id"),
    moment("until"),
    count("failures"),
    word("problem"),
    PrimaryKeyConstraint("tenant_id", "workload_id", "pool_id"),
    ForeignKeyConstraint(["tenant_id", "workload_id"], ["workloads.tenant_id", "workloads.workload_id"]),
    ForeignKeyConstraint(["tenant_id", "pool_id"], ["pools.tenant_id", "pools.pool_id"]),
)
