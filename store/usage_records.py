"""Pool hours: what is known of each serving pool that is counted, and its records."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import NamedTuple

import sqlalchemy as sa

from domain.pool import PoolState
from domain.serving.usage import CURRENCY, Meter, PoolHour
from store.engine import Connection

PoolName = tuple[str, str]

# One counts at a time: the next one goes on from where the last one committed.
COUNTING = sa.text("SELECT pg_advisory_xact_lock(7261005)")
METERS = sa.text(
    """
    SELECT p.tenant_id, p.pool_id, p.state, p.endpoint_ref IS NOT NULL AS has_endpoint, p.updated_at,
           p.price_per_hour_usd, u.hour, u.seconds, u.price_per_hour_usd AS hour_price, u.recorded_at
    FROM pool_serving s JOIN pools p USING (tenant_id, pool_id)
    LEFT JOIN LATERAL (
      SELECT hour, seconds, price_per_hour_usd, recorded_at FROM usage_records u
      WHERE u.tenant_id = p.tenant_id AND u.pool_id = p.pool_id ORDER BY hour DESC LIMIT 1
    ) u ON true
    WHERE (p.tenant_id, p.pool_id) > (:tenant, :pool)
      AND CASE WHEN p.state = 'retired' THEN u.recorded_at < p.updated_at
               WHEN p.state = 'draft' THEN u.hour IS NOT NULL
               ELSE p.endpoint_ref IS NOT NULL OR u.hour IS NOT NULL END
    ORDER BY 1, 2 LIMIT :limit
    """
)
WRITE = sa.text(
    """
    INSERT INTO usage_records
      (tenant_id, pool_id, hour, seconds, price_per_hour_usd, amount_usd, currency, recorded_at)
    SELECT * FROM unnest(CAST(:tenants AS text[]), CAST(:pools AS text[]), CAST(:hours AS timestamptz[]),
                         CAST(:seconds AS int[]), CAST(:prices AS numeric[]), CAST(:amounts AS numeric[]),
                         CAST(:currencies AS text[]), CAST(:until AS timestamptz[]))
    ON CONFLICT (tenant_id, pool_id, hour) DO UPDATE
    SET seconds = excluded.seconds, amount_usd = excluded.amount_usd, recorded_at = excluded.recorded_at
    """
)
COUNTED_SINCE = sa.text(
    """
    SELECT tenant_id, pool_id, hour, seconds, price_per_hour_usd, recorded_at FROM usage_records
    WHERE (recorded_at, tenant_id, pool_id, hour) > (:moment, :tenant, :pool, :hour)
    ORDER BY recorded_at, tenant_id, pool_id, hour LIMIT :limit
    """
)


class UsageRecord(NamedTuple):
    """One hour of one pool."""

    tenant_id: str
    pool_id: str
    hour: PoolHour


async def lock(connection: Connection) -> None:
    """Until the transaction ends nobody else counts."""
    await connection.execute(COUNTING)


async def meters(connection: Connection, after: PoolName, limit: int) -> list[tuple[PoolName, Meter]]:
    """Serving pools to count, in the order of tenant and id, the first after `after`."""
    named = {"tenant": after[0], "pool": after[1], "limit": limit}
    return [((row.tenant_id, row.pool_id), _meter(row)) for row in await connection.execute(METERS, named)]


def _meter(row: sa.Row[tuple[object, ...]]) -> Meter:
    newest = None
    if row.hour is not None:
        newest = PoolHour(row.hour, row.seconds, row.hour_price, row.recorded_at)
    retired = row.state == PoolState.RETIRED
    return Meter(
        serves=row.has_endpoint and row.state != PoolState.DRAFT,
        changed_at=row.updated_at,
        price_per_hour_usd=row.price_per_hour_usd,
        ended_at=row.updated_at if retired else None,
        newest=newest,
    )


async def write(connection: Connection, records: Iterable[UsageRecord]) -> None:
    """Write records as they are now; the price of an hour that is there stays."""
    rows = list(records)
    if not rows:
        return
    await connection.execute(
        WRITE,
        {
            "tenants": [one.tenant_id for one in rows],
            "pools": [one.pool_id for one in rows],
            "hours": [one.hour.hour for one in rows],
            "seconds": [one.hour.seconds for one in rows],
            "prices": [one.hour.price_per_hour_usd for one in rows],
            "amounts": [one.hour.amount_usd for one in rows],
            "currencies": [CURRENCY] * len(rows),
            "until": [one.hour.counted_until for one in rows],
        },
    )


async def counted_since(
    connection: Connection, moment: datetime, last: UsageRecord | None, limit: int
) -> list[UsageRecord]:
    """Records that were counted after that moment, or after the record `last`, in the order of counting."""
    named = {"moment": moment, "tenant": "", "pool": "", "hour": moment, "limit": limit}
    if last is not None:
        until, hour = last.hour.counted_until, last.hour.hour
        named |= {"moment": until, "tenant": last.tenant_id, "pool": last.pool_id, "hour": hour}
    rows = await connection.execute(COUNTED_SINCE, named)
    return [UsageRecord(row[0], row[1], PoolHour(*row[2:])) for row in rows]
