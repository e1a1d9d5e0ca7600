"""What is observed of pools: capacity, outlook, prices, lost halls and the history of reclaims."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from domain.acquisition import SlotState
from store.engine import Connection
from store.registry import lock_capacity
from store.tables import instances, pool_capacity, pool_history, pools

REPORT = sa.text(
    """
    UPDATE pool_capacity c SET
      capacity_instances = greatest(c.reserved_instances, r.free + coalesce(o.occupied, 0)),
      free_24h_instances = r.free_24h,
      quota_instances = r.quota,
      -- What the provider lists says nothing of an endpoint: its own agent reports.
      reported_at = CASE WHEN p.endpoint_ref IS NOT NULL AND p.vram_gb > 0 THEN c.reported_at ELSE :at END
    FROM unnest(CAST(:ids AS text[]), CAST(:free AS int[]), CAST(:free_24h AS int[]), CAST(:quota AS int[]))
      AS r (pool_id, free, free_24h, quota)
    JOIN pools p ON p.tenant_id = :tenant AND p.pool_id = r.pool_id
    LEFT JOIN (
      SELECT pool_id, count(*) AS occupied FROM instances
      WHERE tenant_id = :tenant AND server_id IS NOT NULL AND state IN ('building', 'active', 'releasing')
      GROUP BY pool_id
    ) o ON o.pool_id = r.pool_id
    WHERE c.tenant_id = :tenant AND c.pool_id = r.pool_id
    """
)


REPRICE = sa.text(
    """
    UPDATE pools p SET price_per_hour_usd = r.price, guaranteed_price_per_hour_usd = r.guaranteed
    FROM unnest(CAST(:ids AS text[]), CAST(:price AS numeric[]), CAST(:guaranteed AS numeric[]))
      AS r (pool_id, price, guaranteed)
    WHERE p.tenant_id = :tenant AND p.pool_id = r.pool_id
      AND (p.price_per_hour_usd, p.guaranteed_price_per_hour_usd) IS DISTINCT FROM (r.price, r.guaranteed)
    """
)


@dataclass(frozen=True, slots=True)
class PoolReport:
    """What a provider says of one pool. `quota_instances` of None is unlimited."""

    pool_id: str
    free_instances: int
    free_24h_instances: int
    quota_instances: int | None
    price_per_hour_usd: Decimal
    guaranteed_price_per_hour_usd: Decimal


async def report_pools(
    connection: Connection, tenant_id: str, reports: Sequence[PoolReport], at: datetime
) -> None:
    """Record what the provider says of pools now: capacity, outlook, quota and prices.

    Capacity is what is free plus what our servers occupy, and never less than what is reserved already:
    a promise that the provider can no longer keep shows when its launch fails, not as a broken count.
    """
    if not reports:
        return
    ordered = sorted(reports, key=lambda one: one.pool_id)
    ids = [one.pool_id for one in ordered]
    await lock_capacity(connection, tenant_id, ids)
    await connection.execute(
        REPORT,
        {
            "ids": ids,
            "free": [one.free_instances for one in ordered],
            "free_24h": [one.free_24h_instances for one in ordered],
            "quota": [one.quota_instances for one in ordered],
            "tenant": tenant_id,
            "at": at,
        },
    )
    await connection.execute(
        REPRICE,
        {
            "ids": ids,
            "price": [one.price_per_hour_usd for one in ordered],
            "guaranteed": [one.guaranteed_price_per_hour_usd for one in ordered],
            "tenant": tenant_id,
        },
    )


async def record_history(connection: Connection, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write daily reclaim history: tenant_id, pool_id, day, episodes, observed_hours. Latest wins."""
    if not rows:
        return
    statement = insert(pool_history)
    statement = statement.on_conflict_do_update(
        index_elements=["tenant_id", "pool_id", "day"],
        set_={
            "episodes": statement.excluded.episodes,
            "observed_hours": statement.excluded.observed_hours,
        },
    )
    await connection.execute(statement, [dict(row) for row in rows])


async def history_since(
    connection: Connection, tenant_id: str, first_day: date
) -> dict[str, tuple[int, int]]:
    """Reclaim episodes and observed hours by pool, from `first_day` on."""
    query = (
        sa.select(
            pool_history.c.pool_id,
            sa.func.sum(pool_history.c.episodes),
            sa.func.sum(pool_history.c.observed_hours),
        )
        .where(pool_history.c.tenant_id == tenant_id, pool_history.c.day >= first_day)
        .group_by(pool_history.c.pool_id)
    )
    return {row[0]: (int(row[1]), int(row[2])) for row in await connection.execute(query)}


async def outlook(connection: Connection, tenant_id: str) -> dict[str, tuple[int, int, int | None]]:
    """By pool: free instances now, the least free over the next 24 hours, and what the quota admits."""
    query = sa.select(
        pool_capacity.c.pool_id,
        pool_capacity.c.capacity_instances - pool_capacity.c.reserved_instances,
        pool_capacity.c.free_24h_instances,
        pool_capacity.c.quota_instances,
    ).where(pool_capacity.c.tenant_id == tenant_id)
    return {row[0]: (row[1], row[2], row[3]) for row in await connection.execute(query)}


async def set_hall_lost(connection: Connection, tenant_id: str, hall: str, *, lost: bool) -> Sequence[str]:
    """Exclude every pool of a lost hall, or take it back when the hall returns; returns what changed.

    Pools that were excluded for another reason stay so: only a standing that the hall gave is taken back.
    """
    of_hall = sa.select(pools.c.pool_id).where(pools.c.tenant_id == tenant_id, pools.c.hall == hall)
    changed = await connection.execute(
        sa.update(pool_capacity)
        .where(
            pool_capacity.c.tenant_id == tenant_id,
            pool_capacity.c.pool_id.in_(of_hall),
            pool_capacity.c.hall_lost.is_not(lost),
        )
        .values(hall_lost=lost)
        .returning(pool_capacity.c.pool_id)
    )
    return sorted(changed.scalars())


async def unlaunched(connection: Connection, tenant_id: str, region: str) -> dict[str, int]:
    """Slots by pool that are planned in a region and that the provider cannot have counted yet."""
    query = (
        sa.select(instances.c.pool_id, sa.func.count())
        .where(
            instances.c.tenant_id == tenant_id,
            instances.c.region == region,
            instances.c.state == SlotState.PLANNED,
            instances.c.requested_at.is_(None),
        )
        .group_by(instances.c.pool_id)
    )
    return {row[0]: row[1] for row in await connection.execute(query)}
