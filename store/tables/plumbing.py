"""Provider budgets, the outbox and the stream it goes to, and answers kept for repeated requests."""

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
    Text,
    UniqueConstraint,
    Uuid,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB

from domain.circuit import CircuitState
from store.tables.base import count, document, metadata, moment, one_of, tenant, word

provider_budgets = Table(
    "provider_budgets",
    metadata,
    tenant(),
    word("region"),
    Column("tokens", Numeric(12, 4), nullable=False),
    count("burst"),
    Column("refill_per_second", Numeric(9, 3), nullable=False),
    moment("updated_at", now=True),
    # The circuit of the region, and what a throttled or refused answer asks of every process.
    Column("circuit", Text, nullable=False, server_default=text(f"'{CircuitState.CLOSED}'")),
    count("failures", 0),
    count("trips", 0),
    word("circuit_problem", nullable=True),
    moment("circuit_changed_at", nullable=True),
    moment("circuit_until", nullable=True),
    moment("paused_until", nullable=True),
    count("quota_refusals", 0),
    word("quota_problem", nullable=True),
    moment("quota_until", nullable=True),
    PrimaryKeyConstraint("tenant_id", "region"),
    one_of("circuit", CircuitState),
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
    # What became of one pool is read by its owner and its key.
    Index(None, "tenant_id", "key", "sequence"),
    Index("outbox_unpublished_idx", "sequence", postgresql_where=text("published_at IS NULL")),
)

event_streams = Table(
    "event_streams",
    metadata,
    tenant(),
    word("stream"),
    moment("made_at"),
    Column("last_sequence", BigInteger, nullable=False),
    Column("resend_after", BigInteger),
    PrimaryKeyConstraint("tenant_id", "stream"),
    CheckConstraint("last_sequence >= 0 AND resend_after >= 0", name="sequences_not_negative"),
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
