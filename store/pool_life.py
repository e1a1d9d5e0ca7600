"""The life of a pool in the registry: steps, changes of what is no fact, what is held, and draining."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal
from typing import Any, NamedTuple

import sqlalchemy as sa
from pydantic.alias_generators import to_camel

from domain.pool import Pool, PoolState
from domain.pool_life import (
    Held,
    LoadedModel,
    PoolAction,
    Refusal,
    changed,
    stale,
    step,
)
from store import cached_models as models
from store import outbox
from store.engine import Connection
from store.registry import find_pool, lock_capacity
from store.serving_pools import PoolName
from store.tables import cached_models, pools
from wire.payloads import (
    Change,
    ComputePoolChanged,
    ComputePoolDrained,
    ComputePoolStateChanged,
)

MAY_CHANGE = ("price_per_hour_usd", "guaranteed_price_per_hour_usd", "endpoint_ref", "cold_start_seconds")

# A server that cannot be accounted for yet still counts: `releasing` slots end when it is gone.
HELD = sa.text(
    """
    SELECT workload_id, sum(units) AS units, sum(instances) AS instances FROM reservations
    WHERE tenant_id = :tenant AND pool_id = :pool AND (units > 0 OR instances > 0)
    GROUP BY workload_id ORDER BY workload_id
    """
)
HOLDERS = sa.text(
    """
    SELECT DISTINCT w.partition_id, r.workload_id
    FROM reservations r JOIN workloads w USING (tenant_id, workload_id)
    WHERE r.tenant_id = :tenant AND r.pool_id = :pool AND r.units > 0 ORDER BY 1, 2
    """
)
DRAINING = sa.text(
    """
    SELECT tenant_id, pool_id FROM pools
    WHERE state = 'draining' AND drained_at IS NULL ORDER BY draining_since, 1, 2 LIMIT :limit
    """
)


class Stepped(NamedTuple):
    """What an action did: the state before and the pool after it."""

    before: PoolState
    pool: Pool


class Draining(NamedTuple):
    """A pool that is locked for a look, with what it holds."""

    pool: Pool
    held: Held


async def held_in(connection: Connection, tenant_id: str, pool_id: str) -> Held:
    """What a pool holds now."""
    named = {"tenant": tenant_id, "pool": pool_id}
    rows = (await connection.execute(HELD, named)).all()
    query = (
        sa.select(*(cached_models.c[field] for field in LoadedModel._fields))
        .where(cached_models.c.tenant_id == tenant_id, cached_models.c.pool_id == pool_id)
        .order_by(cached_models.c.model)
    )
    loaded = tuple(LoadedModel(*row) for row in await connection.execute(query))
    return Held(
        units=sum(row.units for row in rows),
        instances=sum(row.instances for row in rows),
        workloads=tuple(row.workload_id for row in rows),
        models=loaded,
    )


async def take_step(
    connection: Connection,
    tenant_id: str,
    pool_id: str,
    action: PoolAction,
    expected_version: int | None,
    *,
    by: str,
    at: datetime,
) -> Stepped | Refusal:
    """Take one step in the life of a pool, with its event that says `by` whom.

    Raises `UnknownPool` where there is none.
    """
    pool, held = await locked(connection, tenant_id, pool_id)
    refused = _refused(pool, held, expected_version)
    after = refused or step(pool_id, pool.state, action, held)
    if isinstance(after, Refusal):
        return after
    if action is PoolAction.RETIRE and pool.drained_at is None:
        await record_drained(connection, pool, at)
    values: dict[str, Any] = {"state": after.value}
    if after is not PoolState.RETIRED:
        since = at if after is PoolState.DRAINING else None
        values |= {"draining_since": since, "drained_at": None}
    stepped = Stepped(pool.state, await _write(connection, pool, values))
    await _announce_step(connection, stepped, by)
    return stepped


async def change(
    connection: Connection,
    tenant_id: str,
    pool_id: str,
    wanted: Mapping[str, object],
    expected_version: int | None,
    *,
    by: str,
    at: datetime,
) -> Stepped | Refusal:
    """Change what is no fact of a pool; a change that changes nothing leaves its version as it is.

    What the endpoint before had loaded, another one has not: nothing counts as loaded until it lists it.
    """
    pool, held = await locked(connection, tenant_id, pool_id)
    refused = _refused(pool, held, expected_version)
    after = refused or step(pool_id, pool.state, PoolAction.CHANGE, held)
    if isinstance(after, Refusal):
        return after
    values = changed(pool.model_dump(), wanted)
    if not values:
        return Stepped(pool.state, pool)
    seconds = values.pop("cold_start_seconds", None)
    if seconds is not None:
        await connection.execute(
            sa.text(
                "UPDATE pool_capacity SET cold_start_seconds = :seconds"
                " WHERE tenant_id = :tenant AND pool_id = :pool"
            ),
            {"seconds": seconds, "tenant": tenant_id, "pool": pool_id},
        )
    after_it = await _write(connection, pool, values)
    if "endpoint_ref" in values:
        await models.doubt(connection, PoolName(tenant_id, pool_id), at)
    await _announce_change(connection, pool, after_it, by)
    return Stepped(pool.state, after_it)


async def locked(connection: Connection, tenant_id: str, pool_id: str) -> Draining:
    """A pool with what it holds. Until the transaction ends nobody else changes it or plans slots in it."""
    await lock_capacity(connection, tenant_id, [pool_id])
    query = sa.select(pools.c.pool_id).where(pools.c.tenant_id == tenant_id, pools.c.pool_id == pool_id)
    await connection.execute(query.with_for_update())
    pool = await find_pool(connection, tenant_id, pool_id)
    return Draining(pool, await held_in(connection, tenant_id, pool_id))


async def record_drained(connection: Connection, pool: Pool, at: datetime) -> None:
    """Record that a pool which is locked holds nothing any more, once for each time it drains.

    Its version stays: who read it when draining began may retire it.
    """
    await connection.execute(
        sa.update(pools)
        .where(pools.c.tenant_id == pool.tenant_id, pools.c.pool_id == pool.pool_id)
        .values(drained_at=at, draining_since=sa.func.coalesce(pools.c.draining_since, at))
    )
    payload = ComputePoolDrained(
        pool_id=pool.pool_id, tenant_id=pool.tenant_id, draining_since=pool.draining_since, drained_at=at
    )
    once = f"{pool.pool_id}/{_text(pool.draining_since)}/{pool.version}"
    await outbox.add_event(connection, payload, once=once)


async def holders(connection: Connection, tenant_id: str, pool_id: str) -> list[tuple[str, str]]:
    """Partition and workload of everybody with units planned in a pool, in their order."""
    rows = await connection.execute(HOLDERS, {"tenant": tenant_id, "pool": pool_id})
    return [(row[0], row[1]) for row in rows]


async def draining(connection: Connection, limit: int) -> list[tuple[str, str]]:
    """Pools of every tenant that drain and are not drained yet, by owner and id; the longest first."""
    return [(row[0], row[1]) for row in await connection.execute(DRAINING, {"limit": limit})]


def _refused(pool: Pool, held: Held, expected_version: int | None) -> Refusal | None:
    if expected_version is None:
        return None
    return stale(pool.pool_id, pool.state, held, pool.version, expected_version)


async def _write(connection: Connection, pool: Pool, values: Mapping[str, Any]) -> Pool:
    await connection.execute(
        sa.update(pools)
        .where(pools.c.tenant_id == pool.tenant_id, pools.c.pool_id == pool.pool_id)
        .values(**values, version=pools.c.version + 1, updated_at=sa.func.now())
    )
    return await find_pool(connection, pool.tenant_id, pool.pool_id)


async def _announce_step(connection: Connection, stepped: Stepped, by: str) -> None:
    """One event per version: the version changes with every step, so no step has the id of another."""
    pool = stepped.pool
    payload = ComputePoolStateChanged(
        pool_id=pool.pool_id,
        tenant_id=pool.tenant_id,
        from_state=stepped.before,
        to_state=pool.state,
        version=pool.version,
        changed_by=by,
    )
    await outbox.add_event(connection, payload, once=f"{pool.pool_id}/{pool.version}")


async def _announce_change(connection: Connection, before: Pool, after: Pool, by: str) -> None:
    """What people changed, by name, with the value before and after: one event per version."""
    changes = tuple(
        Change(name=to_camel(name), old=_plain(getattr(before, name)), new=_plain(getattr(after, name)))
        for name in MAY_CHANGE
        if getattr(before, name) != getattr(after, name)
    )
    payload = ComputePoolChanged(
        pool_id=after.pool_id,
        tenant_id=after.tenant_id,
        version=after.version,
        changes=changes,
        changed_by=by,
    )
    await outbox.add_event(connection, payload, once=f"{after.pool_id}/{after.version}")


def _plain(value: Decimal | str | int | None) -> str | int | None:
    return str(value) if isinstance(value, Decimal) else value


def _text(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat()
