"""Partitions, correlation groups and compute pools, with what changes of them."""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Date,
    ForeignKeyConstraint,
    Index,
    Integer,
    Numeric,
    PrimaryKeyConstraint,
    Table,
    Text,
    text,
)

from domain.pool import Arch, GroupBasis, PoolKind, PoolState, PurchaseModel, SecurityBoundary
from store.tables.base import Standing, count, metadata, moment, money, one_of, tenant, word

partitions = Table(
    "partitions",
    metadata,
    tenant(),
    word("partition_id"),
    word("region"),
    word("scheduler"),
    moment("created_at", now=True),
    PrimaryKeyConstraint("tenant_id", "partition_id"),
    CheckConstraint("scheduler IN ('kubernetes', 'slurm')", name="scheduler_known"),
)

correlation_groups = Table(
    "correlation_groups",
    metadata,
    tenant(),
    word("group_id"),
    word("basis"),
    word("region"),
    word("hall", nullable=True),
    Column("phi", Numeric(5, 4)),
    PrimaryKeyConstraint("tenant_id", "group_id"),
    one_of("basis", GroupBasis),
)

pools = Table(
    "pools",
    metadata,
    tenant(),
    word("pool_id"),
    word("kind"),
    word("state"),
    word("region"),
    word("hall"),
    word("security_boundary"),
    word("sku_family"),
    word("size"),
    word("arch"),
    word("gpu_type", nullable=True),
    count("gpu_count"),
    count("vram_gb"),
    count("cpu_cores"),
    count("ram_gb"),
    Column("nvme", Boolean, nullable=False),
    count("nic_gbps"),
    word("purchase_model"),
    word("group_id"),
    money("price_per_hour_usd"),
    money("guaranteed_price_per_hour_usd"),
    word("flavor"),
    word("endpoint_ref", nullable=True),
    Column("version", BigInteger, nullable=False, server_default=text("1")),
    moment("created_at", now=True),
    moment("updated_at", now=True),
    moment("draining_since", nullable=True),
    moment("drained_at", nullable=True),
    PrimaryKeyConstraint("tenant_id", "pool_id"),
    ForeignKeyConstraint(
        ["tenant_id", "group_id"], ["correlation_groups.tenant_id", "correlation_groups.group_id"]
    ),
    one_of("kind", PoolKind),
    one_of("state", PoolState),
    one_of("security_boundary", SecurityBoundary),
    one_of("arch", Arch),
    one_of("purchase_model", PurchaseModel),
    CheckConstraint("price_per_hour_usd >= 0", name="price_not_negative"),
    CheckConstraint("guaranteed_price_per_hour_usd > 0", name="guaranteed_price_positive"),
    CheckConstraint("drained_at IS NULL OR draining_since IS NOT NULL", name="drained_after_draining"),
    CheckConstraint("cpu_cores > 0 AND ram_gb > 0 AND gpu_count >= 0 AND vram_gb >= 0", name="sizes"),
    Index(None, "region", "purchase_model"),
)

pool_capacity = Table(
    "pool_capacity",
    metadata,
    tenant(),
    word("pool_id"),
    count("capacity_instances", 0),
    count("reserved_instances", 0),
    count("free_24h_instances", 0),
    Column("quota_instances", Integer),
    Column("utilization", Numeric(5, 4), nullable=False, server_default=text("0")),
    count("queue_depth", 0),
    count("cold_start_seconds", 0),
    Column("degraded", Boolean, nullable=False, server_default=text("false")),
    Column("standing", Text, nullable=False, server_default=text(f"'{Standing.ELIGIBLE}'")),
    Column("hall_lost", Boolean, nullable=False, server_default=text("false")),
    moment("reported_at", nullable=True),
    PrimaryKeyConstraint("tenant_id", "pool_id"),
    ForeignKeyConstraint(["tenant_id", "pool_id"], ["pools.tenant_id", "pools.pool_id"]),
    one_of("standing", Standing),
    CheckConstraint("reserved_instances >= 0", name="reserved_not_negative"),
    CheckConstraint("reserved_instances <= capacity_instances", name="never_double_booked"),
    CheckConstraint("utilization BETWEEN 0 AND 1", name="utilization_share"),
    postgresql_with={"fillfactor": 50},
)

pool_history = Table(
    "pool_history",
    metadata,
    tenant(),
    word("pool_id"),
    Column("day", Date, nullable=False),
    count("episodes"),
    count("observed_hours"),
    PrimaryKeyConstraint("tenant_id", "pool_id", "day"),
    ForeignKeyConstraint(["tenant_id", "pool_id"], ["pools.tenant_id", "pools.pool_id"]),
    CheckConstraint("episodes >= 0 AND observed_hours BETWEEN 0 AND 24", name="counts"),
)
