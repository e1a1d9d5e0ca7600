"""What was decided, and everything that it was decided on."""

from __future__ import annotations

from sqlalchemy import (
    Boolean,
    CheckConstraint,
    Column,
    ForeignKeyConstraint,
    PrimaryKeyConstraint,
    Table,
    UniqueConstraint,
    Uuid,
)

from store.tables.base import count, document, metadata, moment, money, tenant, word

rankings = Table(
    "rankings",
    metadata,
    tenant(),
    Column("ranking_id", Uuid, nullable=False),
    word("partition_id"),
    count("version"),
    word("scorer_version"),
    document("policy"),
    document("inputs"),
    document("scores"),
    moment("created_at", now=True),
    PrimaryKeyConstraint("tenant_id", "ranking_id"),
    UniqueConstraint("tenant_id", "partition_id", "version"),
    ForeignKeyConstraint(["tenant_id", "partition_id"], ["partitions.tenant_id", "partitions.partition_id"]),
)

shortlists = Table(
    "shortlists",
    metadata,
    tenant(),
    Column("ranking_id", Uuid, nullable=False),
    word("class_key"),
    document("requirement_class"),
    document("fill"),
    document("floor"),
    document("refused"),
    moment("created_at", now=True),
    PrimaryKeyConstraint("tenant_id", "ranking_id", "class_key"),
    ForeignKeyConstraint(["tenant_id", "ranking_id"], ["rankings.tenant_id", "rankings.ranking_id"]),
)

placement_decisions = Table(
    "placement_decisions",
    metadata,
    tenant(),
    Column("decision_id", Uuid, nullable=False),
    word("workload_id"),
    count("generation"),
    count("claim_version"),
    Column("ranking_id", Uuid, nullable=False),
    word("class_key"),
    word("outcome"),
    document("question"),
    document("allocations"),
    document("reasons"),
    document("shortfalls"),
    moment("decided_at"),
    PrimaryKeyConstraint("tenant_id", "decision_id"),
    UniqueConstraint("tenant_id", "workload_id", "generation"),
    ForeignKeyConstraint(
        ["tenant_id", "workload_id", "claim_version"],
        ["claims.tenant_id", "claims.workload_id", "claims.version"],
    ),
    ForeignKeyConstraint(
        ["tenant_id", "ranking_id", "class_key"],
        ["shortlists.tenant_id", "shortlists.ranking_id", "shortlists.class_key"],
    ),
    CheckConstraint("outcome IN ('placed', 'shortfall', 'policy_denied')", name="outcome_known"),
)

plan_generations = Table(
    "plan_generations",
    metadata,
    tenant(),
    word("workload_id"),
    count("generation"),
    Column("decision_id", Uuid, nullable=False),
    count("units"),
    count("placed_units"),
    count("floor_units"),
    count("pool_cap_units"),
    count("group_cap_units"),
    money("cost_per_hour"),
    money("depth_premium_per_hour"),
    word("currency"),
    Column("floor_spread_met", Boolean, nullable=False),
    Column("hall_spread_met", Boolean, nullable=False),
    moment("committed_at", now=True),
    PrimaryKeyConstraint("tenant_id", "workload_id", "generation"),
    UniqueConstraint("tenant_id", "decision_id"),
    ForeignKeyConstraint(
        ["tenant_id", "decision_id"],
        ["placement_decisions.tenant_id", "placement_decisions.decision_id"],
    ),
    CheckConstraint("placed_units BETWEEN 0 AND units", name="placed_within_claim"),
    CheckConstraint("depth_premium_per_hour >= 0", name="premium_not_negative"),
)
