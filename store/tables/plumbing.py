"""Provider budgets, the outbox, and answers kept for repeated requests."""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    Identity,
    Index,
    Integer,
    Numeric,
    PrimaryKeyConstraint,
    Table,
    UniqueConstraint,
    Uuid,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB

from store.tables.base import count, document, metadata, moment, tenant, word

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
