"""Lifecycle events of instances, by month, and the drains that they come to."""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    Date,
    Float,
    Index,
    Integer,
    PrimaryKeyConstraint,
    Table,
    Text,
    Uuid,
    text,
)

from domain.cause import Cause
from domain.lifecycle import EventSource, EventType, NoticeKind, Outcome
from store.tables.base import metadata, moment, one_of, tenant, word

# An event is kept once: its month comes from the event itself, and the other parts of its key as well.
lifecycle_events = Table(
    "lifecycle_events",
    metadata,
    tenant(),
    Column("month", Date, nullable=False),
    word("instance_id"),
    Column("event_id", Uuid, nullable=False),
    word("type"),
    word("source"),
    word("cause"),
    word("said_cause"),
    word("region"),
    word("hall"),
    word("pool_id"),
    word("partition_id"),
    word("workload_id"),
    Column("sequence", BigInteger, nullable=False),
    moment("occurred_at"),
    moment("received_at"),
    Column("notice_id", Uuid),
    word("notice_kind", nullable=True),
    moment("deadline", nullable=True),
    word("path", nullable=True),
    Column("seconds_since_notice", Float(53)),
    Column("seconds_to_spare", Float(53)),
    Column("exit_code", Integer),
    Column("wasted_vcpu_seconds", Float(53)),
    Column("lost_events", BigInteger),
    Column("detail", Text, nullable=False, server_default=text("''")),
    PrimaryKeyConstraint("instance_id", "event_id", "month"),
    one_of("type", EventType),
    one_of("source", EventSource),
    one_of("cause", Cause),
    one_of("said_cause", Cause),
    one_of("notice_kind", NoticeKind),
    CheckConstraint(
        "month = date_trunc('month', occurred_at AT TIME ZONE 'UTC')::date", name="month_of_the_event"
    ),
    postgresql_partition_by="RANGE (month)",
)

node_drains = Table(
    "node_drains",
    metadata,
    tenant(),
    word("instance_id"),
    Column("drain_id", Uuid, nullable=False),
    word("outcome"),
    word("cause"),
    word("region"),
    word("hall"),
    word("pool_id"),
    word("partition_id"),
    word("workload_id"),
    # When it began, or ended where no notice began it: what lists are ordered by.
    moment("at"),
    Column("notice_id", Uuid),
    moment("notice_at", nullable=True),
    moment("deadline", nullable=True),
    moment("signalled_at", nullable=True),
    Column("signalled_after_seconds", Float(53)),
    moment("ended_at", nullable=True),
    Column("seconds_to_spare", Float(53)),
    word("path", nullable=True),
    moment("updated_at", now=True),
    PrimaryKeyConstraint("tenant_id", "instance_id", "drain_id"),
    one_of("outcome", Outcome),
    one_of("cause", Cause),
    CheckConstraint(
        f"(outcome = '{Outcome.NO_NOTICE}') = (notice_id IS NULL)"
        " AND (notice_id IS NULL) = (notice_at IS NULL)",
        name="notice_or_none",
    ),
    CheckConstraint(f"(outcome = '{Outcome.OPEN}') = (ended_at IS NULL)", name="ended_with_an_outcome"),
    Index(None, "tenant_id", "at", "instance_id", "drain_id"),
    Index("node_drains_open_idx", "tenant_id", "at", postgresql_where=text(f"outcome = '{Outcome.OPEN}'")),
)
