"""The registry of compute pools and their correlation groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from pydantic.alias_generators import to_camel
from sqlalchemy.dialects.postgresql import insert

from domain.ids import PLATFORM
from domain.pool import Pool, PoolFacts, PoolState, SecurityBoundary
from store.engine import Connection
from store.tables import correlation_groups, pool_capacity, pool_serving, pools

LOCK_CAPACITY = """
    SELECT pool_id FROM pool_capacity WHERE tenant_id = %(tenant)s AND pool_id = ANY(%(pools)s)
    ORDER BY pool_id FOR UPDATE
"""
# The platform's pools may be used by every tenant, where their boundary is one of these.
SHARED = (SecurityBoundary.REGIONAL.value, SecurityBoundary.SHARED.value)
FACT_COLUMNS = tuple(name for name in PoolFacts.model_fields if name != "group_basis")
SERVING_COLUMNS = (
    "health",
    "health_problem",
    "health_changed_at",
    "probed_at",
    "stale_since",
    "committed_vram_gb",
    "learned_cold_start_seconds",
)
EQUALS = (
    *("region", "hall", "state", "purchase_model", "sku_family"),
    *("kind", "gpu_type", "security_boundary"),
)


class DuplicatePool(ValueError):
    """A pool of this id is registered already, with other facts."""


class GroupDiffers(ValueError):
    """A pool names a correlation group that has another basis."""


class UnknownPool(LookupError):
    """No pool of this id belongs to the tenant."""


@dataclass(frozen=True, slots=True)
class PoolFilter:
    """Which pools to list; None means any. `health` and `stale` restrict to pools with accelerator memory."""

    region: str | None = None
    hall: str | None = None
    state: str | None = None
    purchase_model: str | None = None
    sku_family: str | None = None
    kind: str | None = None
    gpu_type: str | None = None
    security_boundary: str | None = None
    health: str | None = None
    stale: bool | None = None


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
    served = joined.outerjoin(
        pool_serving,
        sa.and_(pools.c.tenant_id == pool_serving.c.tenant_id, pools.c.pool_id == pool_serving.c.pool_id),
    )
    return sa.select(
        *(pools.c[name] for name in FACT_COLUMNS),
        correlation_groups.c.basis.label("group_basis"),
        pools.c.state,
        pools.c.endpoint_ref,
        pools.c.version,
        pools.c.draining_since,
        pools.c.drained_at,
        pool_capacity.c.capacity_instances,
        pool_capacity.c.reserved_instances,
        pool_capacity.c.utilization,
        pool_capacity.c.queue_depth,
        pool_capacity.c.cold_start_seconds,
        pool_capacity.c.reported_at,
        *(pool_serving.c[name] for name in SERVING_COLUMNS),
    ).select_from(served)


def _pool(row: Mapping[str, Any]) -> Pool:
    return Pool.model_validate(dict(row))


async def register_pools(connection: Connection, facts: Sequence[PoolFacts], state: PoolState) -> int:
    """Register pools that are not there yet; returns how many were new.

    A pool that is there with the same facts is left as it is; with other facts it is `DuplicatePool`,
    since facts are fixed at registration, except prices, which the rate card changes. `GroupDiffers`
    where the group of a pool has another basis than the pool says.
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
    await _refuse_other_bases(connection, facts)


async def _refuse_other_bases(connection: Connection, facts: Sequence[PoolFacts]) -> None:
    """A basis belongs to a group, so all of its pools say the same."""
    group = correlation_groups.c
    named = sorted({(one.tenant_id, one.group_id) for one in facts})
    query = sa.select(group.tenant_id, group.group_id, group.basis)
    found = await connection.execute(query.where(sa.tuple_(group.tenant_id, group.group_id).in_(named)))
    bases = {(row.tenant_id, row.group_id): row.basis for row in found}
    for one in facts:
        known = bases[one.tenant_id, one.group_id]
        if known != one.group_basis.value:
            raise GroupDiffers(
                f"group {one.group_id!r} has the basis {known}, and pool {one.pool_id!r} says"
                f" {one.group_basis}: all pools of a group say the same, so send {known} or another group"
            )


async def _refuse_other_facts(connection: Connection, facts: PoolFacts) -> None:
    known = await find_pool(connection, facts.tenant_id, facts.pool_id)
    priced = {"price_per_hour_usd", "guaranteed_price_per_hour_usd"}
    differing = [
        to_camel(name)
        for name in PoolFacts.model_fields
        if name not in priced and getattr(known, name) != getattr(facts, name)
    ]
    if differing:
        raise DuplicatePool(
            f"pool {facts.pool_id!r} is registered already with another {', '.join(differing)}:"
            " facts are fixed at registration, so choose another poolId"
        )


async def set_endpoint(connection: Connection, tenant_id: str, pool_id: str, reference: str | None) -> None:
    """Say where a pool serves models; its version stays, since this belongs to its registration."""
    await connection.execute(
        sa.update(pools)
        .where(pools.c.tenant_id == tenant_id, pools.c.pool_id == pool_id)
        .values(endpoint_ref=reference)
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
    """The tenant's own pools in the order of their ids, the first of them after the id `after`."""
    query = _wanted(wanted).where(pools.c.tenant_id == tenant_id, pools.c.pool_id > after)
    rows = (await connection.execute(query.order_by(pools.c.pool_id).limit(limit))).mappings()
    return [_pool(row) for row in rows]


async def list_readable(
    connection: Connection, tenant_id: str, wanted: PoolFilter, *, limit: int = 1000
) -> list[Pool]:
    """The tenant's own pools and the shared ones, by pool id and owner."""
    query = _wanted(wanted).where(_readable_by(tenant_id)).order_by(pools.c.pool_id, pools.c.tenant_id)
    return [_pool(row) for row in (await connection.execute(query.limit(limit))).mappings()]


async def find_readable(connection: Connection, tenant_id: str, owner_id: str, pool_id: str) -> Pool:
    """One of the tenant's own pools or a shared one, or `UnknownPool`: also for what others own."""
    query = _pool_query().where(
        _readable_by(tenant_id), pools.c.tenant_id == owner_id, pools.c.pool_id == pool_id
    )
    row = (await connection.execute(query)).mappings().first()
    if row is None:
        raise UnknownPool(f"no pool {pool_id!r} of tenant {owner_id!r}: see `sco get pools`")
    return _pool(row)


def _readable_by(tenant_id: str) -> sa.ColumnElement[bool]:
    """What row-level security lets a tenant read, said once more: the service's roles see every row."""
    shared = sa.and_(pools.c.tenant_id == PLATFORM, pools.c.security_boundary.in_(SHARED))
    return sa.or_(pools.c.tenant_id == tenant_id, shared)


def _wanted(wanted: PoolFilter) -> sa.Select[Any]:
    query = _pool_query()
    for name in EQUALS:
        value = getattr(wanted, name)
        if value is not None:
            query = query.where(pools.c[name] == value)
    if wanted.health is not None:
        query = query.where(pool_serving.c.health == wanted.health)
    if wanted.stale is not None:
        query = query.where(
            pool_serving.c.tenant_id.is_not(None), pool_serving.c.stale_since.is_not(None) == wanted.stale
        )
    return query


async def lock_capacity(connection: Connection, tenant_id: str, pool_ids: Sequence[str]) -> None:
    """Lock capacity rows in one order for all callers, so that two of them never wait for each other."""
    await connection.exec_driver_sql(LOCK_CAPACITY, {"tenant": tenant_id, "pools": list(pool_ids)})
