"""The first schema: registry, scoring, contracts, claims, plans, fleet, provider budgets, outbox."""

from __future__ import annotations

from pathlib import Path

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0001"
down_revision = None

COUNTS = Path(__file__).parents[1] / "sql" / "0001_counts.sql"


def upgrade() -> None:
    op.create_table(
        "contracts",
        sa.Column("tenant_id", sa.Text(), nullable=False),
        sa.Column("contract_id", sa.Text(), nullable=False),
        sa.Column("tier", sa.Text(), nullable=False),
        sa.Column("floor_share", sa.Numeric(precision=7, scale=6), nullable=False),
        sa.Column("pool_cap_share", sa.Numeric(precision=7, scale=6), nullable=False),
        sa.Column("group_cap_share", sa.Numeric(precision=7, scale=6), nullable=False),
        sa.Column("tolerated_interruptions_per_hour", sa.Numeric(precision=9, scale=6), nullable=False),
        sa.Column("drain_budget_seconds", sa.Integer(), nullable=False),
        sa.Column("repo_commit", sa.Text(), nullable=False),
        sa.Column("version", sa.BigInteger(), server_default=sa.text("1"), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.CheckConstraint(
            "tier IN ('T1', 'T2', 'T3', 'T4', 'T5', 'bespoke')", name=op.f("contracts_tier_known_check")
        ),
        sa.CheckConstraint(
            "drain_budget_seconds BETWEEN 1 AND 115", name=op.f("contracts_drain_fits_notice_check")
        ),
        sa.CheckConstraint("floor_share BETWEEN 0 AND 1", name=op.f("contracts_floor_is_share_check")),
        sa.CheckConstraint(
            "group_cap_share >= pool_cap_share AND group_cap_share <= 1",
            name=op.f("contracts_group_cap_is_share_check"),
        ),
        sa.CheckConstraint(
            "pool_cap_share > 0 AND pool_cap_share <= 1", name=op.f("contracts_pool_cap_is_share_check")
        ),
        sa.PrimaryKeyConstraint("tenant_id", "contract_id", name=op.f("contracts_pkey")),
    )
    op.create_table(
        "correlation_groups",
        sa.Column("tenant_id", sa.Text(), nullable=False),
        sa.Column("group_id", sa.Text(), nullable=False),
        sa.Column("basis", sa.Text(), nullable=False),
        sa.Column("region", sa.Text(), nullable=False),
        sa.Column("hall", sa.Text(), nullable=True),
        sa.Column("phi", sa.Numeric(precision=5, scale=4), nullable=True),
        sa.CheckConstraint(
            "basis IN ('aggregate', 'hall', 'learned')", name=op.f("correlation_groups_basis_known_check")
        ),
        sa.PrimaryKeyConstraint("tenant_id", "group_id", name=op.f("correlation_groups_pkey")),
    )
    op.create_table(
        "idempotency_keys",
        sa.Column("tenant_id", sa.Text(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("route", sa.Text(), nullable=False),
        sa.Column("body_sha256", sa.Text(), nullable=False),
        sa.Column("status", sa.Integer(), nullable=True),
        sa.Column("answer", postgresql.JSONB(astext_type=sa.Text()), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.PrimaryKeyConstraint("tenant_id", "key", "route", name=op.f("idempotency_keys_pkey")),
    )
    op.create_table(
        "outbox",
        sa.Column("tenant_id", sa.Text(), nullable=False),
        sa.Column("sequence", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("event_id", sa.Uuid(), nullable=False),
        sa.Column("topic", sa.Text(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("payload", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("published_at", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("sequence", name=op.f("outbox_pkey")),
        sa.UniqueConstraint("event_id", name=op.f("outbox_event_id_key")),
    )
    op.create_index(
        "outbox_unpublished_idx",
        "outbox",
        ["sequence"],
        unique=False,
        postgresql_where=sa.text("published_at IS NULL"),
    )
    op.create_table(
        "partitions",
        sa.Column("tenant_id", sa.Text(), nullable=False),
        sa.Column("partition_id", sa.Text(), nullable=False),
        sa.Column("region", sa.Text(), nullable=False),
        sa.Column("scheduler", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.CheckConstraint(
            "scheduler IN ('kubernetes', 'slurm')", name=op.f("partitions_scheduler_known_check")
        ),
        sa.PrimaryKeyConstraint("tenant_id", "partition_id", name=op.f("partitions_pkey")),
    )
    op.create_table(
        "provider_budgets",
        sa.Column("tenant_id", sa.Text(), nullable=False),
        sa.Column("region", sa.Text(), nullable=False),
        sa.Column("tokens", sa.Numeric(precision=12, scale=4), nullable=False),
        sa.Column("burst", sa.Integer(), nullable=False),
        sa.Column("refill_per_second", sa.Numeric(precision=9, scale=3), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.CheckConstraint(
            "burst > 0 AND refill_per_second > 0", name=op.f("provider_budgets_budget_positive_check")
        ),
        sa.CheckConstraint(
            "tokens BETWEEN 0 AND burst", name=op.f("provider_budgets_tokens_within_burst_check")
        ),
        sa.PrimaryKeyConstraint("tenant_id", "region", name=op.f("provider_budgets_pkey")),
    )
    op.create_table(
        "pools",
        sa.Column("tenant_id", sa.Text(), nullable=False),
        sa.Column("pool_id", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("region", sa.Text(), nullable=False),
        sa.Column("hall", sa.Text(), nullable=False),
        sa.Column("security_boundary", sa.Text(), nullable=False),
        sa.Column("sku_family", sa.Text(), nullable=False),
        sa.Column("size", sa.Text(), nullable=False),
        sa.Column("arch", sa.Text(), nullable=False),
        sa.Column("gpu_type", sa.Text(), nullable=True),
        sa.Column("gpu_count", sa.Integer(), nullable=False),
        sa.Column("vram_gb", sa.Integer(), nullable=False),
        sa.Column("cpu_cores", sa.Integer(), nullable=False),
        sa.Column("ram_gb", sa.Integer(), nullable=False),
        sa.Column("nvme", sa.Boolean(), nullable=False),
        sa.Column("nic_gbps", sa.Integer(), nullable=False),
        sa.Column("purchase_model", sa.Text(), nullable=False),
        sa.Column("group_id", sa.Text(), nullable=False),
        sa.Column("price_per_hour_usd", sa.Numeric(precision=18, scale=6), nullable=False),
        sa.Column("guaranteed_price_per_hour_usd", sa.Numeric(precision=18, scale=6), nullable=False),
        sa.Column("flavor", sa.Text(), nullable=False),
        sa.Column("endpoint_ref", sa.Text(), nullable=True),
        sa.Column("version", sa.BigInteger(), server_default=sa.text("1"), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.CheckConstraint("arch IN ('x86_64', 'arm64')", name=op.f("pools_arch_known_check")),
        sa.CheckConstraint(
            "kind IN ('workstation', 'local_gpu_server', 'dgx_class', 'cloud_gpu', 'azure', 'customer_data_centre', 'private_cloud')",
            name=op.f("pools_kind_known_check"),
        ),
        sa.CheckConstraint(
            "purchase_model IN ('reclaimable', 'guaranteed', 'committed')",
            name=op.f("pools_purchase_model_known_check"),
        ),
        sa.CheckConstraint(
            "security_boundary IN ('private', 'regional', 'shared')",
            name=op.f("pools_security_boundary_known_check"),
        ),
        sa.CheckConstraint(
            "state IN ('draft', 'active', 'draining', 'retired')", name=op.f("pools_state_known_check")
        ),
        sa.CheckConstraint(
            "cpu_cores > 0 AND ram_gb > 0 AND gpu_count >= 0 AND vram_gb >= 0", name=op.f("pools_sizes_check")
        ),
        sa.CheckConstraint(
            "guaranteed_price_per_hour_usd > 0", name=op.f("pools_guaranteed_price_positive_check")
        ),
        sa.CheckConstraint("price_per_hour_usd >= 0", name=op.f("pools_price_not_negative_check")),
        sa.ForeignKeyConstraint(
            ["tenant_id", "group_id"],
            ["correlation_groups.tenant_id", "correlation_groups.group_id"],
            name=op.f("pools_correlation_groups_fkey"),
        ),
        sa.PrimaryKeyConstraint("tenant_id", "pool_id", name=op.f("pools_pkey")),
    )
    op.create_index(
        op.f("pools_region_purchase_model_idx"), "pools", ["region", "purchase_model"], unique=False
    )
    op.create_table(
        "rankings",
        sa.Column("tenant_id", sa.Text(), nullable=False),
        sa.Column("ranking_id", sa.Uuid(), nullable=False),
        sa.Column("partition_id", sa.Text(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("scorer_version", sa.Text(), nullable=False),
        sa.Column("policy", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("inputs", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("scores", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.ForeignKeyConstraint(
            ["tenant_id", "partition_id"],
            ["partitions.tenant_id", "partitions.partition_id"],
            name=op.f("rankings_partitions_fkey"),
        ),
        sa.PrimaryKeyConstraint("tenant_id", "ranking_id", name=op.f("rankings_pkey")),
        sa.UniqueConstraint(
            "tenant_id", "partition_id", "version", name=op.f("rankings_tenant_id_partition_id_version_key")
        ),
    )
    op.create_table(
        "workloads",
        sa.Column("tenant_id", sa.Text(), nullable=False),
        sa.Column("workload_id", sa.Text(), nullable=False),
        sa.Column("partition_id", sa.Text(), nullable=False),
        sa.Column("contract_id", sa.Text(), nullable=False),
        sa.Column("owner_team", sa.Text(), nullable=False),
        sa.Column("claim_version", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("planned_version", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("generation", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("phase", sa.Text(), server_default=sa.text("'requested'"), nullable=False),
        sa.Column("shortfall_units", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("shortfall_reason", sa.Text(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.CheckConstraint("owner_team <> ''", name=op.f("workloads_has_owner_check")),
        sa.CheckConstraint(
            "phase IN ('requested', 'planned', 'placed', 'shortfall')",
            name=op.f("workloads_phase_known_check"),
        ),
        sa.CheckConstraint(
            "planned_version <= claim_version", name=op.f("workloads_planned_after_claimed_check")
        ),
        sa.ForeignKeyConstraint(
            ["tenant_id", "contract_id"],
            ["contracts.tenant_id", "contracts.contract_id"],
            name=op.f("workloads_contracts_fkey"),
        ),
        sa.ForeignKeyConstraint(
            ["tenant_id", "partition_id"],
            ["partitions.tenant_id", "partitions.partition_id"],
            name=op.f("workloads_partitions_fkey"),
        ),
        sa.PrimaryKeyConstraint("tenant_id", "workload_id", name=op.f("workloads_pkey")),
    )
    op.create_index(
        "workloads_unplanned_idx",
        "workloads",
        ["tenant_id", "workload_id"],
        unique=False,
        postgresql_where=sa.text("planned_version < claim_version"),
    )
    op.create_table(
        "cached_models",
        sa.Column("tenant_id", sa.Text(), nullable=False),
        sa.Column("pool_id", sa.Text(), nullable=False),
        sa.Column("model", sa.Text(), nullable=False),
        sa.Column("loaded_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("last_used_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("vram_gb", sa.Integer(), nullable=False),
        sa.CheckConstraint("vram_gb > 0", name=op.f("cached_models_vram_positive_check")),
        sa.ForeignKeyConstraint(
            ["tenant_id", "pool_id"],
            ["pools.tenant_id", "pools.pool_id"],
            name=op.f("cached_models_pools_fkey"),
        ),
        sa.PrimaryKeyConstraint("tenant_id", "pool_id", "model", name=op.f("cached_models_pkey")),
    )
    op.create_table(
        "claims",
        sa.Column("tenant_id", sa.Text(), nullable=False),
        sa.Column("workload_id", sa.Text(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("units", sa.Integer(), nullable=False),
        sa.Column("demand", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("intake", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.CheckConstraint("units >= 0", name=op.f("claims_units_not_negative_check")),
        sa.ForeignKeyConstraint(
            ["tenant_id", "workload_id"],
            ["workloads.tenant_id", "workloads.workload_id"],
            name=op.f("claims_workloads_fkey"),
        ),
        sa.PrimaryKeyConstraint("tenant_id", "workload_id", "version", name=op.f("claims_pkey")),
    )
    op.create_table(
        "instances",
        sa.Column("tenant_id", sa.Text(), nullable=False),
        sa.Column("slot_key", sa.Text(), nullable=False),
        sa.Column("workload_id", sa.Text(), nullable=False),
        sa.Column("partition_id", sa.Text(), nullable=False),
        sa.Column("pool_id", sa.Text(), nullable=False),
        sa.Column("region", sa.Text(), nullable=False),
        sa.Column("shape_key", sa.Text(), nullable=False),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.Column("batch_key", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("server_id", sa.Text(), nullable=True),
        sa.Column("problem", sa.Text(), nullable=True),
        sa.Column("launched_by", sa.Text(), nullable=True),
        sa.Column("launch_attempts", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("requested_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("active_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint(
            "state IN ('planned', 'building', 'active', 'releasing', 'gone', 'failed')",
            name=op.f("instances_state_known_check"),
        ),
        sa.CheckConstraint(
            "state NOT IN ('building', 'active') OR server_id IS NOT NULL",
            name=op.f("instances_running_has_server_check"),
        ),
        sa.ForeignKeyConstraint(
            ["tenant_id", "pool_id"], ["pools.tenant_id", "pools.pool_id"], name=op.f("instances_pools_fkey")
        ),
        sa.ForeignKeyConstraint(
            ["tenant_id", "workload_id"],
            ["workloads.tenant_id", "workloads.workload_id"],
            name=op.f("instances_workloads_fkey"),
        ),
        sa.PrimaryKeyConstraint("tenant_id", "slot_key", name=op.f("instances_pkey")),
        sa.UniqueConstraint("server_id", name=op.f("instances_server_id_key")),
    )
    op.create_index(
        op.f("instances_tenant_id_batch_key_idx"), "instances", ["tenant_id", "batch_key"], unique=False
    )
    op.create_index(
        op.f("instances_tenant_id_workload_id_state_idx"),
        "instances",
        ["tenant_id", "workload_id", "state"],
        unique=False,
    )
    op.create_table(
        "pool_backoffs",
        sa.Column("tenant_id", sa.Text(), nullable=False),
        sa.Column("workload_id", sa.Text(), nullable=False),
        sa.Column("pool_id", sa.Text(), nullable=False),
        sa.Column("until", sa.DateTime(timezone=True), nullable=False),
        sa.Column("failures", sa.Integer(), nullable=False),
        sa.Column("problem", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["tenant_id", "pool_id"],
            ["pools.tenant_id", "pools.pool_id"],
            name=op.f("pool_backoffs_pools_fkey"),
        ),
        sa.ForeignKeyConstraint(
            ["tenant_id", "workload_id"],
            ["workloads.tenant_id", "workloads.workload_id"],
            name=op.f("pool_backoffs_workloads_fkey"),
        ),
        sa.PrimaryKeyConstraint("tenant_id", "workload_id", "pool_id", name=op.f("pool_backoffs_pkey")),
    )
    op.create_table(
        "pool_capacity",
        sa.Column("tenant_id", sa.Text(), nullable=False),
        sa.Column("pool_id", sa.Text(), nullable=False),
        sa.Column("capacity_instances", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("reserved_instances", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("free_24h_instances", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("quota_instances", sa.Integer(), nullable=True),
        sa.Column(
            "utilization", sa.Numeric(precision=5, scale=4), server_default=sa.text("0"), nullable=False
        ),
        sa.Column("queue_depth", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("cold_start_seconds", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("degraded", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("standing", sa.Text(), server_default=sa.text("'eligible'"), nullable=False),
        sa.Column("hall_lost", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("reported_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint(
            "standing IN ('eligible', 'excluded', 'probation')",
            name=op.f("pool_capacity_standing_known_check"),
        ),
        sa.CheckConstraint(
            "reserved_instances <= capacity_instances", name=op.f("pool_capacity_never_double_booked_check")
        ),
        sa.CheckConstraint("reserved_instances >= 0", name=op.f("pool_capacity_reserved_not_negative_check")),
        sa.CheckConstraint("utilization BETWEEN 0 AND 1", name=op.f("pool_capacity_utilization_share_check")),
        sa.ForeignKeyConstraint(
            ["tenant_id", "pool_id"],
            ["pools.tenant_id", "pools.pool_id"],
            name=op.f("pool_capacity_pools_fkey"),
        ),
        sa.PrimaryKeyConstraint("tenant_id", "pool_id", name=op.f("pool_capacity_pkey")),
        postgresql_with={"fillfactor": 50},
    )
    op.create_table(
        "pool_history",
        sa.Column("tenant_id", sa.Text(), nullable=False),
        sa.Column("pool_id", sa.Text(), nullable=False),
        sa.Column("day", sa.Date(), nullable=False),
        sa.Column("episodes", sa.Integer(), nullable=False),
        sa.Column("observed_hours", sa.Integer(), nullable=False),
        sa.CheckConstraint(
            "episodes >= 0 AND observed_hours BETWEEN 0 AND 24", name=op.f("pool_history_counts_check")
        ),
        sa.ForeignKeyConstraint(
            ["tenant_id", "pool_id"],
            ["pools.tenant_id", "pools.pool_id"],
            name=op.f("pool_history_pools_fkey"),
        ),
        sa.PrimaryKeyConstraint("tenant_id", "pool_id", "day", name=op.f("pool_history_pkey")),
    )
    op.create_table(
        "reservations",
        sa.Column("tenant_id", sa.Text(), nullable=False),
        sa.Column("workload_id", sa.Text(), nullable=False),
        sa.Column("pool_id", sa.Text(), nullable=False),
        sa.Column("shape_key", sa.Text(), nullable=False),
        sa.Column("units", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("units_per_instance", sa.Integer(), server_default=sa.text("1"), nullable=False),
        sa.Column("target_instances", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("instances", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("generation", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.CheckConstraint(
            "instances >= 0 AND target_instances >= 0", name=op.f("reservations_instances_not_negative_check")
        ),
        sa.CheckConstraint("units >= 0", name=op.f("reservations_units_not_negative_check")),
        sa.ForeignKeyConstraint(
            ["tenant_id", "pool_id"],
            ["pools.tenant_id", "pools.pool_id"],
            name=op.f("reservations_pools_fkey"),
        ),
        sa.ForeignKeyConstraint(
            ["tenant_id", "workload_id"],
            ["workloads.tenant_id", "workloads.workload_id"],
            name=op.f("reservations_workloads_fkey"),
        ),
        sa.PrimaryKeyConstraint(
            "tenant_id", "workload_id", "pool_id", "shape_key", name=op.f("reservations_pkey")
        ),
    )
    op.create_table(
        "shortlists",
        sa.Column("tenant_id", sa.Text(), nullable=False),
        sa.Column("ranking_id", sa.Uuid(), nullable=False),
        sa.Column("class_key", sa.Text(), nullable=False),
        sa.Column("requirement_class", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("fill", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("floor", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("refused", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.ForeignKeyConstraint(
            ["tenant_id", "ranking_id"],
            ["rankings.tenant_id", "rankings.ranking_id"],
            name=op.f("shortlists_rankings_fkey"),
        ),
        sa.PrimaryKeyConstraint("tenant_id", "ranking_id", "class_key", name=op.f("shortlists_pkey")),
    )
    op.create_table(
        "placement_decisions",
        sa.Column("tenant_id", sa.Text(), nullable=False),
        sa.Column("decision_id", sa.Uuid(), nullable=False),
        sa.Column("workload_id", sa.Text(), nullable=False),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.Column("claim_version", sa.Integer(), nullable=False),
        sa.Column("ranking_id", sa.Uuid(), nullable=False),
        sa.Column("class_key", sa.Text(), nullable=False),
        sa.Column("outcome", sa.Text(), nullable=False),
        sa.Column("question", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("allocations", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("reasons", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("shortfalls", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("decided_at", sa.DateTime(timezone=True), nullable=False),
        sa.CheckConstraint(
            "outcome IN ('placed', 'shortfall', 'policy_denied')",
            name=op.f("placement_decisions_outcome_known_check"),
        ),
        sa.ForeignKeyConstraint(
            ["tenant_id", "ranking_id", "class_key"],
            ["shortlists.tenant_id", "shortlists.ranking_id", "shortlists.class_key"],
            name=op.f("placement_decisions_shortlists_fkey"),
        ),
        sa.ForeignKeyConstraint(
            ["tenant_id", "workload_id", "claim_version"],
            ["claims.tenant_id", "claims.workload_id", "claims.version"],
            name=op.f("placement_decisions_claims_fkey"),
        ),
        sa.PrimaryKeyConstraint("tenant_id", "decision_id", name=op.f("placement_decisions_pkey")),
        sa.UniqueConstraint(
            "tenant_id",
            "workload_id",
            "generation",
            name=op.f("placement_decisions_tenant_id_workload_id_generation_key"),
        ),
    )
    op.create_table(
        "plan_generations",
        sa.Column("tenant_id", sa.Text(), nullable=False),
        sa.Column("workload_id", sa.Text(), nullable=False),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.Column("decision_id", sa.Uuid(), nullable=False),
        sa.Column("units", sa.Integer(), nullable=False),
        sa.Column("placed_units", sa.Integer(), nullable=False),
        sa.Column("floor_units", sa.Integer(), nullable=False),
        sa.Column("pool_cap_units", sa.Integer(), nullable=False),
        sa.Column("group_cap_units", sa.Integer(), nullable=False),
        sa.Column("cost_per_hour", sa.Numeric(precision=18, scale=6), nullable=False),
        sa.Column("depth_premium_per_hour", sa.Numeric(precision=18, scale=6), nullable=False),
        sa.Column("currency", sa.Text(), nullable=False),
        sa.Column("floor_spread_met", sa.Boolean(), nullable=False),
        sa.Column("hall_spread_met", sa.Boolean(), nullable=False),
        sa.Column(
            "committed_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False
        ),
        sa.CheckConstraint(
            "depth_premium_per_hour >= 0", name=op.f("plan_generations_premium_not_negative_check")
        ),
        sa.CheckConstraint(
            "placed_units BETWEEN 0 AND units", name=op.f("plan_generations_placed_within_claim_check")
        ),
        sa.ForeignKeyConstraint(
            ["tenant_id", "decision_id"],
            ["placement_decisions.tenant_id", "placement_decisions.decision_id"],
            name=op.f("plan_generations_placement_decisions_fkey"),
        ),
        sa.PrimaryKeyConstraint("tenant_id", "workload_id", "generation", name=op.f("plan_generations_pkey")),
        sa.UniqueConstraint(
            "tenant_id", "decision_id", name=op.f("plan_generations_tenant_id_decision_id_key")
        ),
    )
    op.get_bind().exec_driver_sql(COUNTS.read_text().replace("%", "%%"))
