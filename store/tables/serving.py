"""Serving pools: their memory and health, the models on them, placements, loads, warm keeping and usage."""

from __future__ import annotations

from enum import StrEnum

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
    Uuid,
    text,
)

from domain.serving.health import Health, HealthSource
from domain.serving.placing import PlacementOutcome
from store.tables.base import count, document, metadata, moment, money, one_of, tenant, word


class ModelState(StrEnum):
    """Memory is kept for a promised model; a loaded one is listed by the serving port."""

    PROMISED = "promised"
    LOADING = "loading"
    LOADED = "loaded"


class PlacementState(StrEnum):
    """`none` where no pool was chosen; `held` keeps memory; the others have ended."""

    NONE = "none"
    HELD = "held"
    RELEASED = "released"
    EXPIRED = "expired"


class LoadCause(StrEnum):
    PLACEMENT = "placement"
    WARM_KEEP = "warm_keep"
    REQUEST = "request"


class LoadOutcome(StrEnum):
    LOADED = "loaded"
    FAILED = "failed"


class WarmStatus(StrEnum):
    REQUESTED = "requested"
    LOADING = "loading"
    LOADED = "loaded"
    FAILED = "failed"


def of_pool(tenant_column: str = "tenant_id") -> ForeignKeyConstraint:
    return ForeignKeyConstraint([tenant_column, "pool_id"], ["pools.tenant_id", "pools.pool_id"])


pool_serving = Table(
    "pool_serving",
    metadata,
    tenant(),
    word("pool_id"),
    count("vram_gb"),
    count("committed_vram_gb", 0),
    Column("health", Text, nullable=False, server_default=text(f"'{Health.UNKNOWN}'")),
    word("health_problem", nullable=True),
    word("health_source", nullable=True),
    count("failures", 0),
    count("successes", 0),
    moment("probed_at", nullable=True),
    moment("health_changed_at", nullable=True),
    moment("stale_since", nullable=True),
    Column("learned_cold_start_seconds", Integer),
    PrimaryKeyConstraint("tenant_id", "pool_id"),
    of_pool(),
    one_of("health", Health),
    one_of("health_source", HealthSource),
    CheckConstraint("committed_vram_gb >= 0", name="committed_not_negative"),
    CheckConstraint("committed_vram_gb <= vram_gb", name="never_double_booked"),
    CheckConstraint("failures >= 0 AND successes >= 0", name="counts"),
    postgresql_with={"fillfactor": 50},
)

cached_models = Table(
    "cached_models",
    metadata,
    tenant(),
    word("pool_id"),
    word("model"),
    moment("loaded_at", nullable=True),
    moment("last_used_at"),
    count("vram_gb"),
    Column("state", Text, nullable=False, server_default=text(f"'{ModelState.LOADED}'")),
    count("holds", 0),
    moment("load_started_at", nullable=True),
    Column("load_key", Uuid),
    moment("load_until", nullable=True),
    word("load_problem", nullable=True),
    moment("listed_at", nullable=True),
    PrimaryKeyConstraint("tenant_id", "pool_id", "model"),
    of_pool(),
    one_of("state", ModelState),
    CheckConstraint("vram_gb > 0", name="vram_positive"),
    CheckConstraint("holds >= 0", name="holds_not_negative"),
    CheckConstraint(f"(state = '{ModelState.LOADED}') = (loaded_at IS NOT NULL)", name="loaded_at_a_time"),
    CheckConstraint(
        f"(state = '{ModelState.LOADING}') = (load_key IS NOT NULL AND load_until IS NOT NULL)",
        name="loading_has_a_lease",
    ),
    postgresql_with={"fillfactor": 50},
)

model_placements = Table(
    "model_placements",
    metadata,
    tenant(),
    Column("placement_id", Uuid, nullable=False),
    word("deployment_id"),
    Column("run_id", Uuid),
    word("model"),
    document("requirements"),
    document("candidates"),
    word("outcome"),
    word("pool_tenant_id", nullable=True),
    word("pool_id", nullable=True),
    count("vram_gb"),
    Column("warm", Boolean, nullable=False, server_default=text("false")),
    count("cold_start_seconds", 0),
    word("state"),
    moment("decided_at"),
    moment("expires_at", nullable=True),
    moment("ended_at", nullable=True),
    Column("caused_load", Boolean, nullable=False, server_default=text("false")),
    word("problem", nullable=True),
    PrimaryKeyConstraint("tenant_id", "placement_id"),
    of_pool("pool_tenant_id"),
    one_of("outcome", PlacementOutcome),
    one_of("state", PlacementState),
    CheckConstraint("vram_gb > 0 AND cold_start_seconds >= 0", name="sizes"),
    CheckConstraint(
        f"(outcome = '{PlacementOutcome.PLACED}') = (pool_id IS NOT NULL)"
        " AND (pool_id IS NULL) = (pool_tenant_id IS NULL)"
        f" AND (pool_id IS NULL) = (state = '{PlacementState.NONE}')"
        " AND (pool_id IS NULL) = (expires_at IS NULL)",
        name="placed_somewhere",
    ),
    CheckConstraint(
        f"(state IN ('{PlacementState.RELEASED}', '{PlacementState.EXPIRED}')) = (ended_at IS NOT NULL)",
        name="ended_at_a_time",
    ),
    Index(
        "model_placements_held_idx",
        "expires_at",
        postgresql_where=text(f"state = '{PlacementState.HELD}'"),
    ),
    Index(
        "model_placements_holding_idx",
        "pool_tenant_id",
        "pool_id",
        "model",
        postgresql_where=text(f"state = '{PlacementState.HELD}'"),
    ),
    Index(None, "tenant_id", "decided_at", "placement_id"),
    Index(
        "model_placements_failed_idx",
        "tenant_id",
        "model",
        "ended_at",
        postgresql_where=text("problem IS NOT NULL"),
    ),
)

model_loads = Table(
    "model_loads",
    metadata,
    tenant(),
    Column("load_id", Uuid, nullable=False),
    word("pool_id"),
    word("model"),
    count("vram_gb"),
    word("cause"),
    moment("started_at"),
    moment("finished_at", nullable=True),
    Column("seconds", Numeric(9, 3)),
    word("outcome", nullable=True),
    word("problem", nullable=True),
    PrimaryKeyConstraint("tenant_id", "load_id"),
    of_pool(),
    one_of("cause", LoadCause),
    one_of("outcome", LoadOutcome),
    CheckConstraint("vram_gb > 0 AND seconds >= 0", name="sizes"),
    CheckConstraint("(finished_at IS NULL) = (outcome IS NULL)", name="finished_with_an_outcome"),
    Index(None, "tenant_id", "pool_id", "started_at"),
)

warm_profiles = Table(
    "warm_profiles",
    metadata,
    tenant(),
    word("profile_id"),
    document("models"),
    document("pools"),
    count("copies", 1),
    document("windows"),
    Column("enabled", Boolean, nullable=False, server_default=text("true")),
    Column("version", BigInteger, nullable=False, server_default=text("1")),
    moment("created_at", now=True),
    moment("updated_at", now=True),
    PrimaryKeyConstraint("tenant_id", "profile_id"),
    CheckConstraint("copies > 0", name="copies_positive"),
)

warm_requests = Table(
    "warm_requests",
    metadata,
    tenant(),
    Column("request_id", Uuid, nullable=False),
    word("pool_id"),
    word("model"),
    count("vram_gb"),
    Column("status", Text, nullable=False, server_default=text(f"'{WarmStatus.REQUESTED}'")),
    word("problem", nullable=True),
    word("requested_by"),
    moment("requested_at", now=True),
    moment("finished_at", nullable=True),
    PrimaryKeyConstraint("tenant_id", "request_id"),
    of_pool(),
    one_of("status", WarmStatus),
    CheckConstraint("vram_gb > 0", name="vram_positive"),
    CheckConstraint(
        f"(status IN ('{WarmStatus.LOADED}', '{WarmStatus.FAILED}')) = (finished_at IS NOT NULL)",
        name="finished_at_a_time",
    ),
    Index(
        "warm_requests_open_idx",
        "tenant_id",
        "pool_id",
        postgresql_where=text("finished_at IS NULL"),
    ),
)

usage_records = Table(
    "usage_records",
    metadata,
    tenant(),
    word("pool_id"),
    moment("hour"),
    count("seconds"),
    money("price_per_hour_usd"),
    money("amount_usd"),
    Column("currency", Text, nullable=False, server_default=text("'USD'")),
    moment("recorded_at", now=True),
    PrimaryKeyConstraint("tenant_id", "pool_id", "hour"),
    of_pool(),
    CheckConstraint("seconds BETWEEN 0 AND 3600", name="within_an_hour"),
    CheckConstraint("price_per_hour_usd >= 0 AND amount_usd >= 0", name="amounts_not_negative"),
)

endpoint_reports = Table(
    "endpoint_reports",
    metadata,
    tenant(),
    Column("report_id", Uuid, nullable=False),
    word("pool_tenant_id"),
    word("pool_id"),
    word("problem"),
    moment("reported_at"),
    PrimaryKeyConstraint("tenant_id", "report_id"),
    of_pool("pool_tenant_id"),
    Index(None, "tenant_id", "pool_tenant_id", "pool_id", "reported_at"),
)
