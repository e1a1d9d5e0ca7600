"""What people and schedulers ask for: contracts, workloads and their claims."""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    ForeignKeyConstraint,
    Index,
    Integer,
    Numeric,
    PrimaryKeyConstraint,
    Table,
    Text,
    text,
)

from domain.contract import CheckpointMode, Restart, Tier
from store.tables.base import Phase, count, document, metadata, moment, one_of, share, tenant, word

contracts = Table(
    "contracts",
    metadata,
    tenant(),
    word("contract_id"),
    word("tier"),
    share("floor_share"),
    share("pool_cap_share"),
    share("group_cap_share"),
    Column("tolerated_interruptions_per_hour", Numeric(9, 6), nullable=False),
    count("drain_budget_seconds"),
    Column("drain_on_advisory", Boolean, nullable=False, server_default=text("false")),
    word("checkpoint_mode", nullable=True),
    Column("final_write_seconds", Integer),
    word("restart", nullable=True),
    word("repo_commit"),
    Column("version", BigInteger, nullable=False, server_default=text("1")),
    moment("updated_at", now=True),
    PrimaryKeyConstraint("tenant_id", "contract_id"),
    one_of("tier", Tier),
    CheckConstraint("floor_share BETWEEN 0 AND 1", name="floor_is_share"),
    CheckConstraint("pool_cap_share > 0 AND pool_cap_share <= 1", name="pool_cap_is_share"),
    CheckConstraint("group_cap_share >= pool_cap_share AND group_cap_share <= 1", name="group_cap_is_share"),
    CheckConstraint("drain_budget_seconds BETWEEN 1 AND 115", name="drain_fits_notice"),
    one_of("checkpoint_mode", CheckpointMode),
    one_of("restart", Restart),
    CheckConstraint("final_write_seconds BETWEEN 1 AND drain_budget_seconds", name="final_write_fits_drain"),
    CheckConstraint("restart <> 'resume' OR checkpoint_mode <> 'none'", name="resumes_from_checkpoint"),
)

workloads = Table(
    "workloads",
    metadata,
    tenant(),
    word("workload_id"),
    word("partition_id"),
    word("contract_id"),
    word("owner_team"),
    count("claim_version", 0),
    count("planned_version", 0),
    count("generation", 0),
    Column("phase", Text, nullable=False, server_default=text(f"'{Phase.REQUESTED}'")),
    count("shortfall_units", 0),
    word("shortfall_reason", nullable=True),
    moment("created_at", now=True),
    moment("updated_at", now=True),
    PrimaryKeyConstraint("tenant_id", "workload_id"),
    ForeignKeyConstraint(["tenant_id", "partition_id"], ["partitions.tenant_id", "partitions.partition_id"]),
    ForeignKeyConstraint(["tenant_id", "contract_id"], ["contracts.tenant_id", "contracts.contract_id"]),
    one_of("phase", Phase),
    CheckConstraint("owner_team <> ''", name="has_owner"),
    CheckConstraint("planned_version <= claim_version", name="planned_after_claimed"),
    Index(
        "workloads_unplanned_idx",
        "tenant_id",
        "workload_id",
        postgresql_where=text("planned_version < claim_version"),
    ),
)

claims = Table(
    "claims",
    metadata,
    tenant(),
    word("workload_id"),
    count("version"),
    count("units"),
    document("demand"),
    word("source"),
    document("intake"),
    moment("created_at", now=True),
    PrimaryKeyConstraint("tenant_id", "workload_id", "version"),
    ForeignKeyConstraint(["tenant_id", "workload_id"], ["workloads.tenant_id", "workloads.workload_id"]),
    CheckConstraint("units >= 0", name="units_not_negative"),
)
