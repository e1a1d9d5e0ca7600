"""The registry of compute pools, their correlation groups and partitions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from domain.acquisition import SlotState
from domain.pool import Pool, PoolFacts, PoolState, next_state
from store.engine import Connection
from store.tables import correlation_groups, instances, partitions, pool_capacity, pool_history, pools

REPORT = sa.text(
    """
    UPDATE pool_capacity c SET
      capacity_instances = greatest(c.reserved_instances, r.free + coalesce(o.occupied, 0)),
      free_24h_instances = r.free_24h,
      quota_instances = r.quota,
      reported_at = :at
    FROM unnest(CAST(:ids AS text[]), CAST(:free AS int[]), CAST(:free_24h AS int[]), CAST(:quota AS int[]))
      AS r (pool_id, free, free_24h, quota)
    LEFT JOIN (
      SELECT pool_id, count(*) AS occupied FROM instances
      WHERE tenant_id = :tenant AND server_id IS NOT NULL AND state IN ('building', 'active', 'releasing')
      GROUP BY pool_id
    ) o USING (pool_id)
    WHERE c.tenant_id = :tenant AND c.pool_id = r.pool_id
    """
)
LOCK_CAPACITY = """
    SELECT pool_id FROM pool_capacity WHERE tenant_id = %(tenant)s AND pool_id = ANY(%(pools)s)
    ORDER BY pool_id FOR UPDATE
"""
REPRICE = sa.text(
    """
    UPDATE pools p SET price_per_hour_usd = r.price, guaranteed_price_per_hour_usd = r.guaranteed
    FROM unnest(CAST(:ids AS text[]), CAST(:price AS numeric[]), CAST(:guaranteed AS numeric[]))
      AS r (pool_id, price, guaranteed)
    WHERE p.tenant_id = :tenant AND p.pool_id = r.pool_id
      AND (p.price_per_hour_usd, p.guaranteed_price_per_hour_usd) IS DISTINCT FROM (r.price, r.guaranteed)
    """
)
FACT_COLUMNS = tuple(name for name in PoolFacts.model_fields if name != "group_basis")


class DuplicatePool(ValueError):
    """A pool of this id is registered already, with other facts."""


class UnknownPool(LookupError):
    """No pool of this id belongs to the tenant."""


class UnknownRegion(LookupError):
    """Pools are registered, and none of them is in this region."""


class PartitionDiffers(ValueError):
    """A partition of this id exists with another region or scheduler."""


class NoSuchStep(ValueError):
    """The pool's state has no such step."""


class VersionConflict(ValueError):
    """The pool changed since the caller read it."""


@dataclass(frozen=True, slots=True)
class PoolFilter:
    """Which pools to list; None means any."""

    region: str | None = None
    hall: str | None = None
    state: str | None = None
    purchase_model: str | None = None
    sku_family: str | None = None


@dataclass(frozen=True, slots=True)
class PoolReport:
    """What a provider says of one pool. `quota_instances` of None is unlimited."""

    pool_id: str
    free_instances: int
    free_24h_instances: int
    quota_instances: int | None
    price_per_hour_usd: Decimal
    guaranteed_price_per_hour_usd: Decimal


def _fact_values(facts: PoolFacts) -> dict[str, Any]:
    values = facts.model_dump(mode="python")
    values.pop("group_basis")
    return {name: getattr(value, "value", value) for name, value in values.items()}


def _pool_query() -> sa.Select[Any]:
    joined = pools.join(
        pool_capacity,
        sa.and_(pools.c.tenant_id == pool_capacity.c.tenant_id, pools.c.pool_id == pool_capacity.c.pool_id),
    ).join(
        correlation_groups,
        sa.and_(
            pools.c.tenant_id == correlation_groups.c.tenant_id,
            pools.c.group_id == correlation_groups.c.group_id,
        ),
    )
    return sa.select(
        *(pools.c[name] for name in FACT_COLUMNS),
        correlation_groups.c.basis.label("group_basis"),
        pools.c.state,
        pools.c.endpoint_ref,
        pools.c.version,
        pool_capacity.c.capacity_instances,
        pool_capacity.c.reserved_instances,
        pool_capacity.c.utilization,
        pool_capacity.c.queue_depth,
        pool_capacity.c.cold_start_seconds,
        pool_capacity.c.reported_at,
    ).select_from(joined)


def _pool(row: Mapping[str, Any]) -> Pool:
    return Pool.model_validate(dict(row))


async def register_pools(connection: Connection, facts: Sequence[PoolFacts], state: PoolState) -> int:
    """Register pools that are not there yet; returns how many were new.

    A pool that is there with the same facts is left as it is; with other facts it is `DuplicatePool`,
    since facts are fixed at registration, except prices, which the rate card changes.
    """
    if not facts:
        return 0
    await _register_groups(connection, facts)
    rows = [_fact_values(one) | {"state": state} for one in sorted(facts, key=lambda one: one.pool_id)]
    added = await connection.execute(
        insert(pools).values(rows).on_conflict_do_nothing().returning(pools.c.pool_id)
    )
    new = set(added.scalars())
    for one in facts:
        if one.pool_id not in new:
            await _refuse_other_facts(connection, one)
    if new:
        capacity = [
            {"tenant_id": one.tenant_id, "pool_id": one.pool_id} for one in facts if one.pool_id in new
        ]
        await connection.execute(insert(pool_capacity).values(capacity))
    return len(new)


async def _register_groups(connection: Connection, facts: Sequence[PoolFacts]) -> None:
    groups = {
        (one.tenant_id, one.group_id): {
            "tenant_id": one.tenant_id,
            "group_id": one.group_id,
            "basis": one.group_basis.value,
            "region": one.region,
            "hall": one.hall,
        }
        for one in facts
    }
    rows = [groups[key] for key in sorted(groups)]
    await connection.execute(insert(correlation_groups).values(rows).on_conflict_do_nothing())


async def _refuse_other_facts(connection: Connection, facts: PoolFacts) -> None:
    known = await find_pool(connection, facts.tenant_id, facts.pool_id)
    priced = {"price_per_hour_usd", "guaranteed_price_per_hour_usd"}
    differing = [
        name
        for name in PoolFacts.model_fields
        if name not in priced and getattr(known, name) != getattr(facts, name)
    ]
    if differing:
        raise DuplicatePool(
            f"pool {facts.pool_id!r} is registered already with another {', '.join(differing)}:"
            " facts are fixed at registration, so choose another poolId"
        )


async def find_pool(connection: Connection, tenant_id: str, pool_id: str) -> Pool:
    """One pool, or `UnknownPool`."""
    query = _pool_query().where(pools.c.tenant_id == tenant_id, pools.c.pool_id == pool_id)
    row = (await connection.execute(query)).mappings().first()
    if row is None:
        raise UnknownPool(f"no pool {pool_id!r}: see `sco get pools` for those that exist")
    return _pool(row)


async def list_pools(
    connection: Connection, tenant_id: str, wanted: PoolFilter, *, after: str = "", limit: int = 1000
) -> list[Pool]:
    """Pools in the order of their ids, the first of them after the id `after`."""
    query = _pool_query().where(pools.c.tenant_id == tenant_id, pools.c.pool_id > after)
    for name in ("region", "hall", "state", "purchase_model", "sku_family"):
        value = getattr(wanted, name)
        if value is not None:
            query = query.where(pools.c[name] == value)
    rows = (await connection.execute(query.order_by(pools.c.pool_id).limit(limit))).mappings()
    return [_pool(row) for row in rows]


async def change_state(
    connection: Connection, tenant_id: str, pool_id: str, action: str, expected_version: int | None
) -> tuple[PoolState, Pool]:
    """Take one step in the life of a pool; returns the state before and the pool after."""
    query = sa.select(pools.c.state, pools.c.version).where(
        pools.c.tenant_id == tenant_id, pools.c.pool_id == pool_id
    )
    row = (await connection.execute(query.with_for_update())).first()
    if row is None:
        raise UnknownPool(f"no pool {pool_id!r}: see `sco get pools` for those that exist")
    if expected_version is not None and row.version != expected_version:
        raise VersionConflict(
            f"pool {pool_id!r} is at version {row.version}, not {expected_version}: read it again and retry"
        )
    before = PoolState(row.state)
    after = next_state(before, action)
    if after is None:
        raise NoSuchStep(f"pool {pool_id!r} is {before}: it cannot {action} from there")
    await connection.execute(
        sa.update(pools)
        .where(pools.c.tenant_id == tenant_id, pools.c.pool_id == pool_id)
        .values(state=after.value, version=pools.c.version + 1, updated_at=sa.func.now())
    )
    return before, await find_pool(connection, tenant_id, pool_id)


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


async def lock_capacity(connection: Connection, tenant_id: str, pool_ids: Sequence[str]) -> None:
    """Lock capacity rows in one order for all callers, so that two of them never wait for each other."""
    await connection.exec_driver_sql(LOCK_CAPACITY, {"tenant": tenant_id, "pools": list(pool_ids)})


async def put_partition(
    connection: Connection, *, tenant_id: str, partition_id: str, region: str, scheduler: str
) -> bool:
    """Create a partition; whether it is new. Region and scheduler are fixed then.

    Raises `PartitionDiffers` where it exists with others, and `UnknownRegion` where a new one names a region
    without pools. Before any pool is registered every region is taken.
    """
    key = {"tenant_id": tenant_id, "partition_id": partition_id}
    given = {"region": region, "scheduler": scheduler}
    statement = insert(partitions).values(key | given).on_conflict_do_nothing()
    added = await connection.execute(statement.returning(partitions.c.partition_id))
    if added.first() is not None:
        await _require_region(connection, tenant_id, region)
        return True
    query = sa.select(partitions.c.region, partitions.c.scheduler).filter_by(**key)
    known = dict((await connection.execute(query)).mappings().one())
    if known != given:
        raise PartitionDiffers(
            f"partition {partition_id!r} is in region {known['region']!r} with scheduler"
            f" {known['scheduler']!r}, not {region!r} with {scheduler!r}: both are fixed at creation,"
            " so choose another partitionId"
        )
    return False


async def _require_region(connection: Connection, tenant_id: str, region: str) -> None:
    query = sa.select(pools.c.region).distinct().where(pools.c.tenant_id == tenant_id)
    known = sorted((await connection.execute(query)).scalars())
    if known and region not in known:
        raise UnknownRegion(
            f"no pool is registered in region {region!r}: regions with pools are {', '.join(known)}"
        )


async def list_partitions(connection: Connection, tenant_id: str) -> list[tuple[str, str, str]]:
    """Partition id, region and scheduler, in the order of the ids."""
    query = sa.select(partitions.c.partition_id, partitions.c.region, partitions.c.scheduler)
    rows = await connection.execute(
        query.where(partitions.c.tenant_id == tenant_id).order_by(partitions.c.partition_id)
    )
    return [(row.partition_id, row.region, row.scheduler) for row in rows]


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
