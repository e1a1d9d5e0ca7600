"""Every table of the control plane. Constraints and triggers carry the invariants.

- `instances` holds one row per slot: a slot is planned once and has at most one server.
- `reservations.instances` is the number of live slots; a trigger keeps it.
- `pool_capacity.reserved_instances` is the sum of reservations; a trigger keeps it and a CHECK bounds it.

So no transaction, whoever runs it, can book a pool twice or hold a slot that is not reserved.
"""

from __future__ import annotations

from enum import StrEnum

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Date,
    DateTime,
    ForeignKeyConstraint,
    Identity,
    Index,
    Integer,
    MetaData,
    Numeric,
    PrimaryKeyConstraint,
    Table,
    Text,
    UniqueConstraint,
    Uuid,
    func,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB

from domain.acquisition import SlotState
from domain.contract import Tier
from domain.pool import Arch, GroupBasis, PoolKind, PoolState, PurchaseModel, SecurityBoundary


class Standing(StrEnum):
    """Whether a pool may take new units, as its exclusion has decided."""

    ELIGIBLE = "eligible"
    EXCLUDED = "excluded"
    PROBATION = "probation"


class Phase(StrEnum):
    """Where the placement of a workload is."""

    REQUESTED = "requested"
    PLANNED = "planned"
    ACQUIRING = "acquiring"
    PLACED = "placed"
    SHORTFALL = "shortfall"


metadata = MetaData(
    naming_convention={
        "pk": "%(table_name)s_pkey",
        "fk": "%(table_name)s_%(referred_table_name)s_fkey",
        "uq": "%(table_name)s_%(column_0_N_name)s_key",
        "ck": "%(table_name)s_%(constraint_name)s_check",
        "ix": "%(table_name)s_%(column_0_N_name)s_idx",
    }
)


def tenant() -> Column[str]:
    return Column("tenant_id", Text, nullable=False)


def word(name: str, *, nullable: bool = False) -> Column[str]:
    return Column(name, Text, nullable=nullable)


def count(name: str, default: int | None = None) -> Column[int]:
    server_default = None if default is None else text(str(default))
    return Column(name, Integer, nullable=False, server_default=server_default)


def moment(name: str, *, nullable: bool = False, now: bool = False) -> Column[object]:
    return Column(
        name, DateTime(timezone=True), nullable=nullable, server_default=func.now() if now else None
    )


def document(name: str) -> Column[object]:
    return Column(name, JSONB, nullable=False)


def share(name: str) -> Column[object]:
    return Column(name, Numeric(7, 6), nullable=False)


def money(name: str) -> Column[object]:
    return Column(name, Numeric(18, 6), nullable=False)


def one_of(column: str, values: type[StrEnum]) -> CheckConstraint:
    listed = ", ".join(f"'{value}'" for value in values)
    return CheckConstraint(f"{column} IN ({listed})", name=f"{column}_known")


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

cached_models = Table(
    "cached_models",
    metadata,
    tenant(),
    word("pool_id"),
    word("model"),
    moment("loaded_at"),
    moment("last_used_at"),
    count("vram_gb"),
    PrimaryKeyConstraint("tenant_id", "pool_id", "model"),
    ForeignKeyConstraint(["tenant_id", "pool_id"], ["pools.tenant_id", "pools.pool_id"]),
    CheckConstraint("vram_gb > 0", name="vram_positive"),
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
    word("repo_commit"),
    Column("version", BigInteger, nullable=False, server_default=text("1")),
    moment("updated_at", now=True),
    PrimaryKeyConstraint("tenant_id", "contract_id"),
    one_of("tier", Tier),
    CheckConstraint("floor_share BETWEEN 0 AND 1", name="floor_is_share"),
    CheckConstraint("pool_cap_share > 0 AND pool_cap_share <= 1", name="pool_cap_is_share"),
    CheckConstraint("group_cap_share >= pool_cap_share AND group_cap_share <= 1", name="group_cap_is_share"),
    CheckConstraint("drain_budget_seconds BETWEEN 1 AND 115", name="drain_fits_notice"),
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

provider_budgets = Table(
    "provider_budgets",
    metadata,
    tenant(),
    word("region"),
    Column("tokens", Numeric(12, 4), nullable=False),
    count("burst"),
    Column("refill_per_second", Numeric(9, 3), nullable=False),
    moment("updated_at", now=True),
    PrimaryKeyConstraint("tenant_id", "region"),
    CheckConstraint("tokens BETWEEN 0 AND burst", name="tokens_within_burst"),
    CheckConstraint("burst > 0 AND refill_per_second > 0", name="budget_positive"),
)

outbox = Table(
    "outbox",
    metadata,
    tenant(),
    Column("sequence", BigInteger, Identity(always=True), nullable=False),
    Column("event_id", Uuid, nullable=False),
    word("topic"),
    word("key"),
    document("payload"),
    moment("created_at", now=True),
    moment("published_at", nullable=True),
    PrimaryKeyConstraint("sequence"),
    UniqueConstraint("event_id"),
    Index("outbox_unpublished_idx", "sequence", postgresql_where=text("published_at IS NULL")),
)

idempotency_keys = Table(
    "idempotency_keys",
    metadata,
    tenant(),
    word("key"),
    word("route"),
    word("body_sha256"),
    Column("status", Integer),
    Column("answer", JSONB),
    moment("created_at", now=True),
    PrimaryKeyConstraint("tenant_id", "key", "route"),
)
