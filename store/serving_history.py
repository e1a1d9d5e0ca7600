"""What happened on one serving pool: its loads, the events that told of it, and its days in service."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from typing import Any, NamedTuple
from uuid import UUID

import sqlalchemy as sa

from store.engine import Connection
from store.serving_pools import PoolName
from store.tables import (
    LoadCause,
    LoadOutcome,
    WarmStatus,
    model_loads,
    outbox,
    usage_records,
    warm_requests,
)
from store.warm_requests import WarmRequest
from wire.payloads import PAYLOADS

# What is told of a pool has its id as the key; a placement or a workload may be named like a pool.
POOL_TOPICS = tuple(one.topic for one in PAYLOADS if one.key_field == "pool_id")


class PastLoad(NamedTuple):
    """One load of a model. `seconds` is None where nobody saw it begin and end."""

    load_id: UUID
    model: str
    vram_gb: int
    cause: LoadCause
    started_at: datetime
    finished_at: datetime | None
    seconds: Decimal | None
    outcome: LoadOutcome | None
    problem: str | None


class PoolEvent(NamedTuple):
    """One event of a pool, as it was written with the change that it tells of."""

    event_id: UUID
    topic: str
    at: datetime
    payload: dict[str, Any]


class UsageDay(NamedTuple):
    """How long a pool was in service on one day in UTC, and what that costs in US dollars."""

    day: date
    seconds: int
    amount_usd: Decimal


async def loads_of(connection: Connection, name: PoolName, limit: int) -> list[PastLoad]:
    """The newest loads, newest first."""
    query = (
        sa.select(*(model_loads.c[field] for field in PastLoad._fields))
        .where(model_loads.c.tenant_id == name.tenant_id, model_loads.c.pool_id == name.pool_id)
        .order_by(model_loads.c.started_at.desc(), model_loads.c.load_id)
        .limit(limit)
    )
    return [_load(row) for row in await connection.execute(query)]


async def requests_of(connection: Connection, name: PoolName, limit: int) -> list[WarmRequest]:
    """The newest requests to warm a model, newest first."""
    query = (
        sa.select(*(warm_requests.c[field] for field in WarmRequest._fields))
        .where(warm_requests.c.tenant_id == name.tenant_id, warm_requests.c.pool_id == name.pool_id)
        .order_by(warm_requests.c.requested_at.desc(), warm_requests.c.request_id)
        .limit(limit)
    )
    rows = [WarmRequest(*row) for row in await connection.execute(query)]
    return [one._replace(status=WarmStatus(one.status)) for one in rows]


async def events_of(connection: Connection, name: PoolName, limit: int) -> list[PoolEvent]:
    """The newest events that are still kept, newest first."""
    query = (
        sa.select(outbox.c.event_id, outbox.c.topic, outbox.c.created_at, outbox.c.payload)
        .where(
            outbox.c.tenant_id == name.tenant_id,
            outbox.c.key == name.pool_id,
            outbox.c.topic.in_(POOL_TOPICS),
        )
        .order_by(outbox.c.sequence.desc())
        .limit(limit)
    )
    return [PoolEvent(*row) for row in await connection.execute(query)]


async def usage_of(connection: Connection, name: PoolName, since: datetime) -> list[UsageDay]:
    """Days that began at `since` or later, newest first."""
    day = sa.cast(sa.func.timezone("UTC", usage_records.c.hour), sa.Date)
    query = (
        sa.select(day, sa.func.sum(usage_records.c.seconds), sa.func.sum(usage_records.c.amount_usd))
        .where(
            usage_records.c.tenant_id == name.tenant_id,
            usage_records.c.pool_id == name.pool_id,
            usage_records.c.hour >= since,
        )
        .group_by(day)
        .order_by(day.desc())
    )
    return [UsageDay(*row) for row in await connection.execute(query)]


def _load(row: Any) -> PastLoad:
    known = PastLoad(*row)
    outcome = None if known.outcome is None else LoadOutcome(known.outcome)
    return known._replace(cause=LoadCause(known.cause), outcome=outcome)
