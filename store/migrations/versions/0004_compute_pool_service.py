"""The compute pool service: models and their placements, warm keeping, usage, and tenants kept apart."""

from __future__ import annotations

from pathlib import Path

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

from store.migrations.isolation import isolate

revision = "0004"
down_revision = "0003"

SQL = Path(__file__).parents[1] / "sql"
EVERYTHING = "SELECT, INSERT, UPDATE, DELETE"
READ = "SELECT"
ADD = "SELECT, INSERT"
# What the API may do with the rows of its tenant. What only workers write, it reads.
TENANT_MAY = {
    "audit_log": READ,
    "audits": EVERYTHING,
    "claims": EVERYTHING,
    "contracts": EVERYTHING,
    "correlation_groups": ADD,
    "drifts": READ,
    "endpoint_reports": ADD,
    "fleet_gaps": READ,
    "idempotency_keys": EVERYTHING,
    "instances": READ,
    "leases": READ,
    "model_loads": READ,
    "model_placements": "SELECT, INSERT, UPDATE",
    "outbox": ADD,
    "partitions": EVERYTHING,
    "placement_decisions": READ,
    "plan_generations": READ,
    "pool_backoffs": READ,
    "pool_capacity": "SELECT, INSERT, UPDATE",
    "pool_history": READ,
    "pools": "SELECT, INSERT, UPDATE",
    "provider_budgets": READ,
    "provider_notifications": READ,
    "quota_reports": READ,
    "rankings": READ,
    "reconciles": READ,
    "reservations": READ,
    "shortlists": READ,
    "usage_records": READ,
    "warm_profiles": EVERYTHING,
    "warm_requests": "SELECT, INSERT, UPDATE",
    "workloads": EVERYTHING,
}
# The count of memory is kept by triggers alone: nobody else may write it.
NOT_COUNTED = (
    "health, health_problem, health_source, failures, successes, probed_at, health_changed_at, stale_since,"
    " learned_cold_start_seconds"
)
COUNTED = f"SELECT, UPDATE ({NOT_COUNTED})"
MODEL_FACTS = (
    "loaded_at, last_used_at, vram_gb, state, load_started_at, load_key, load_until, load_problem, listed_at"
)
MODELS = f"SELECT, DELETE, INSERT (tenant_id, pool_id, model, {MODEL_FACTS}), UPDATE ({MODEL_FACTS})"


def run(name: str) -> None:
    op.get_bind().exec_driver_sql((SQL / name).read_text().replace("%", "%%"))


def upgrade() -> None:
    tables()
    run("0004_model_memory.sql")
    run("0004_roles.sql")
    for table, may in TENANT_MAY.items():
        isolate(table, tenant_may=may, service_may=ADD if table == "audit_log" else EVERYTHING)
    isolate("pool_serving", tenant_may=COUNTED, service_may=COUNTED)
    isolate("cached_models", tenant_may=MODELS, service_may=MODELS)
    run("0004_shared_pools.sql")


def tables() -> None:
    op.create_table(
        "warm_profiles",
        sa.Column("tenant_id", sa.Text(), nullable=False),
        sa.Column("profile_id", sa.Text(), nullable=False),
        sa.Column("models", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("pools", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("copies", sa.Integer(), server_default=sa.text("1"), nullable=False),
        sa.Column("windows", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("enabled", sa.Boolean(), server_default=sa.text("true"), nullable=False),
        sa.Column("version", sa.BigInteger(), server_default=sa.text("1"), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.CheckConstraint("copies > 0", name=op.f("warm_profiles_copies_positive_check")),
        sa.PrimaryKeyConstraint("tenant_id", "profile_id", name=op.f("warm_profiles_pkey")),
    )
    op.create_table(
        "endpoint_reports",
        sa.Column("tenant_id", sa.Text(), nullable=False),
        sa.Column("report_id", sa.Uuid(), nullable=False),
        sa.Column("pool_tenant_id", sa.Text(), nullable=False),
        sa.Column("pool_id", sa.Text(), nullable=False),
        sa.Column("problem", sa.Text(), nullable=False),
        sa.Column("reported_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["pool_tenant_id", "pool_id"],
            ["pools.tenant_id", "pools.pool_id"],
            name=op.f("endpoint_reports_pools_fkey"),
        ),
        sa.PrimaryKeyConstraint("tenant_id", "report_id", name=op.f("endpoint_reports_pkey")),
    )
    op.create_index(
        op.f("endpoint_reports_tenant_id_pool_tenant_id_pool_id_reported_at_idx"),
        "endpoint_reports",
        ["tenant_id", "pool_tenant_id", "pool_id", "reported_at"],
        unique=False,
    )
    op.create_table(
        "model_loads",
        sa.Column("tenant_id", sa.Text(), nullable=False),
        sa.Column("load_id", sa.Uuid(), nullable=False),
        sa.Column("pool_id", sa.Text(), nullable=False),
        sa.Column("model", sa.Text(), nullable=False),
        sa.Column("vram_gb", sa.Integer(), nullable=False),
        sa.Column("cause", sa.Text(), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("seconds", sa.Numeric(precision=9, scale=3), nullable=True),
        sa.Column("outcome", sa.Text(), nullable=True),
        sa.Column("problem", sa.Text(), nullable=True),
        sa.CheckConstraint(
            "cause IN ('placement', 'warm_keep', 'request')", name=op.f("model_loads_cause_known_check")
        ),
        sa.CheckConstraint("outcome IN ('loaded', 'failed')", name=op.f("model_loads_outcome_known_check")),
        sa.CheckConstraint(
            "(finished_at IS NULL) = (outcome IS NULL)",
            name=op.f("model_loads_finished_with_an_outcome_check"),
        ),
        sa.CheckConstraint("vram_gb > 0 AND seconds >= 0", name=op.f("model_loads_sizes_check")),
        sa.ForeignKeyConstraint(
            ["tenant_id", "pool_id"],
            ["pools.tenant_id", "pools.pool_id"],
            name=op.f("model_loads_pools_fkey"),
        ),
        sa.PrimaryKeyConstraint("tenant_id", "load_id", name=op.f("model_loads_pkey")),
    )
    op.create_index(
        op.f("model_loads_tenant_id_pool_id_started_at_idx"),
        "model_loads",
        ["tenant_id", "pool_id", "started_at"],
        unique=False,
    )
    op.create_table(
        "model_placements",
        sa.Column("tenant_id", sa.Text(), nullable=False),
        sa.Column("placement_id", sa.Uuid(), nullable=False),
        sa.Column("deployment_id", sa.Text(), nullable=False),
        sa.Column("run_id", sa.Uuid(), nullable=True),
        sa.Column("model", sa.Text(), nullable=False),
        sa.Column("requirements", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("candidates", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("outcome", sa.Text(), nullable=False),
        sa.Column("pool_tenant_id", sa.Text(), nullable=True),
        sa.Column("pool_id", sa.Text(), nullable=True),
        sa.Column("vram_gb", sa.Integer(), nullable=False),
        sa.Column("warm", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("cold_start_seconds", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("decided_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("caused_load", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("problem", sa.Text(), nullable=True),
        sa.CheckConstraint(
            "(outcome = 'placed') = (pool_id IS NOT NULL) AND (pool_id IS NULL) = (pool_tenant_id IS NULL) AND (pool_id IS NULL) = (state = 'none') AND (pool_id IS NULL) = (expires_at IS NULL)",
            name=op.f("model_placements_placed_somewhere_check"),
        ),
        sa.CheckConstraint(
            "(state IN ('released', 'expired')) = (ended_at IS NOT NULL)",
            name=op.f("model_placements_ended_at_a_time_check"),
        ),
        sa.CheckConstraint(
            "outcome IN ('placed', 'no_capacity', 'policy_denied')",
            name=op.f("model_placements_outcome_known_check"),
        ),
        sa.CheckConstraint(
            "state IN ('none', 'held', 'released', 'expired')",
            name=op.f("model_placements_state_known_check"),
        ),
        sa.CheckConstraint(
            "vram_gb > 0 AND cold_start_seconds >= 0", name=op.f("model_placements_sizes_check")
        ),
        sa.ForeignKeyConstraint(
            ["pool_tenant_id", "pool_id"],
            ["pools.tenant_id", "pools.pool_id"],
            name=op.f("model_placements_pools_fkey"),
        ),
        sa.PrimaryKeyConstraint("tenant_id", "placement_id", name=op.f("model_placements_pkey")),
    )
    op.create_index(
        "model_placements_held_idx",
        "model_placements",
        ["expires_at"],
        unique=False,
        postgresql_where=sa.text("state = 'held'"),
    )
    op.create_index(
        "model_placements_holding_idx",
        "model_placements",
        ["pool_tenant_id", "pool_id", "model"],
        unique=False,
        postgresql_where=sa.text("state = 'held'"),
    )
    op.create_index(
        op.f("model_placements_tenant_id_decided_at_placement_id_idx"),
        "model_placements",
        ["tenant_id", "decided_at", "placement_id"],
        unique=False,
    )
    op.create_table(
        "pool_serving",
        sa.Column("tenant_id", sa.Text(), nullable=False),
        sa.Column("pool_id", sa.Text(), nullable=False),
        sa.Column("vram_gb", sa.Integer(), nullable=False),
        sa.Column("committed_vram_gb", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("health", sa.Text(), server_default=sa.text("'unknown'"), nullable=False),
        sa.Column("health_problem", sa.Text(), nullable=True),
        sa.Column("health_source", sa.Text(), nullable=True),
        sa.Column("failures", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("successes", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("probed_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("health_changed_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("stale_since", sa.DateTime(timezone=True), nullable=True),
        sa.Column("learned_cold_start_seconds", sa.Integer(), nullable=True),
        sa.CheckConstraint(
            "health IN ('unknown', 'healthy', 'degraded')", name=op.f("pool_serving_health_known_check")
        ),
        sa.CheckConstraint(
            "health_source IN ('probe', 'router')", name=op.f("pool_serving_health_source_known_check")
        ),
        sa.CheckConstraint(
            "committed_vram_gb <= vram_gb", name=op.f("pool_serving_never_double_booked_check")
        ),
        sa.CheckConstraint("committed_vram_gb >= 0", name=op.f("pool_serving_committed_not_negative_check")),
        sa.CheckConstraint("failures >= 0 AND successes >= 0", name=op.f("pool_serving_counts_check")),
        sa.ForeignKeyConstraint(
            ["tenant_id", "pool_id"],
            ["pools.tenant_id", "pools.pool_id"],
            name=op.f("pool_serving_pools_fkey"),
        ),
        sa.PrimaryKeyConstraint("tenant_id", "pool_id", name=op.f("pool_serving_pkey")),
        postgresql_with={"fillfactor": 50},
    )
    op.create_table(
        "usage_records",
        sa.Column("tenant_id", sa.Text(), nullable=False),
        sa.Column("pool_id", sa.Text(), nullable=False),
        sa.Column("hour", sa.DateTime(timezone=True), nullable=False),
        sa.Column("seconds", sa.Integer(), nullable=False),
        sa.Column("price_per_hour_usd", sa.Numeric(precision=18, scale=6), nullable=False),
        sa.Column("amount_usd", sa.Numeric(precision=18, scale=6), nullable=False),
        sa.Column("currency", sa.Text(), server_default=sa.text("'USD'"), nullable=False),
        sa.Column("recorded_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.CheckConstraint(
            "price_per_hour_usd >= 0 AND amount_usd >= 0",
            name=op.f("usage_records_amounts_not_negative_check"),
        ),
        sa.CheckConstraint("seconds BETWEEN 0 AND 3600", name=op.f("usage_records_within_an_hour_check")),
        sa.ForeignKeyConstraint(
            ["tenant_id", "pool_id"],
            ["pools.tenant_id", "pools.pool_id"],
            name=op.f("usage_records_pools_fkey"),
        ),
        sa.PrimaryKeyConstraint("tenant_id", "pool_id", "hour", name=op.f("usage_records_pkey")),
    )
    op.create_table(
        "warm_requests",
        sa.Column("tenant_id", sa.Text(), nullable=False),
        sa.Column("request_id", sa.Uuid(), nullable=False),
        sa.Column("pool_id", sa.Text(), nullable=False),
        sa.Column("model", sa.Text(), nullable=False),
        sa.Column("vram_gb", sa.Integer(), nullable=False),
        sa.Column("status", sa.Text(), server_default=sa.text("'requested'"), nullable=False),
        sa.Column("problem", sa.Text(), nullable=True),
        sa.Column("requested_by", sa.Text(), nullable=False),
        sa.Column(
            "requested_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False
        ),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint(
            "(status IN ('loaded', 'failed')) = (finished_at IS NOT NULL)",
            name=op.f("warm_requests_finished_at_a_time_check"),
        ),
        sa.CheckConstraint(
            "status IN ('requested', 'loading', 'loaded', 'failed')",
            name=op.f("warm_requests_status_known_check"),
        ),
        sa.CheckConstraint("vram_gb > 0", name=op.f("warm_requests_vram_positive_check")),
        sa.ForeignKeyConstraint(
            ["tenant_id", "pool_id"],
            ["pools.tenant_id", "pools.pool_id"],
            name=op.f("warm_requests_pools_fkey"),
        ),
        sa.PrimaryKeyConstraint("tenant_id", "request_id", name=op.f("warm_requests_pkey")),
    )
    op.create_index(
        "warm_requests_open_idx",
        "warm_requests",
        ["tenant_id", "pool_id"],
        unique=False,
        postgresql_where=sa.text("finished_at IS NULL"),
    )
    op.add_column(
        "cached_models", sa.Column("state", sa.Text(), server_default=sa.text("'loaded'"), nullable=False)
    )
    op.add_column(
        "cached_models", sa.Column("holds", sa.Integer(), server_default=sa.text("0"), nullable=False)
    )
    op.add_column("cached_models", sa.Column("load_started_at", sa.DateTime(timezone=True), nullable=True))
    op.add_column("cached_models", sa.Column("load_key", sa.Uuid(), nullable=True))
    op.add_column("cached_models", sa.Column("load_until", sa.DateTime(timezone=True), nullable=True))
    op.add_column("cached_models", sa.Column("load_problem", sa.Text(), nullable=True))
    op.add_column("cached_models", sa.Column("listed_at", sa.DateTime(timezone=True), nullable=True))
    op.alter_column(
        "cached_models", "loaded_at", existing_type=postgresql.TIMESTAMP(timezone=True), nullable=True
    )
    op.create_check_constraint(
        op.f("cached_models_state_known_check"), "cached_models", "state IN ('promised', 'loading', 'loaded')"
    )
    op.create_check_constraint(op.f("cached_models_holds_not_negative_check"), "cached_models", "holds >= 0")
    op.create_check_constraint(
        op.f("cached_models_loaded_at_a_time_check"),
        "cached_models",
        "(state = 'loaded') = (loaded_at IS NOT NULL)",
    )
    op.create_check_constraint(
        op.f("cached_models_loading_has_a_lease_check"),
        "cached_models",
        "(state = 'loading') = (load_key IS NOT NULL AND load_until IS NOT NULL)",
    )
    op.execute("ALTER TABLE cached_models SET (fillfactor = 50)")
