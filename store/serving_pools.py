"""Pools that serve models: what they are, and which of them are to be looked after."""

from __future__ import annotations

from typing import Any, NamedTuple

import sqlalchemy as sa

from domain.pool import PoolKind, PoolState, SecurityBoundary
from domain.serving.health import Health
from domain.serving.warm_keep import KeepPool
from store.engine import Connection
from store.tables import pool_serving, pools


class PoolName(NamedTuple):
    """A pool in full: whose it is, and its id."""

    tenant_id: str
    pool_id: str


class ServingPool(NamedTuple):
    """A pool with accelerator memory, as the registry holds it now."""

    name: PoolName
    state: PoolState
    endpoint_ref: str | None
    region: str
    kind: PoolKind
    gpu_type: str | None
    boundary: SecurityBoundary
    vram_gb: int
    committed_vram_gb: int
    health: Health

    @property
    def serves(self) -> bool:
        """Whether models may be loaded there."""
        return self.state is PoolState.ACTIVE and self.endpoint_ref is not None


SERVES = (
    pools.c.state == PoolState.ACTIVE.value,
    pools.c.endpoint_ref.is_not(None),
    pools.c.vram_gb > 0,
)


async def find(connection: Connection, name: PoolName) -> ServingPool | None:
    """A pool that has accelerator memory, or None."""
    named = (pools.c.tenant_id == name.tenant_id, pools.c.pool_id == name.pool_id)
    row = (await connection.execute(_query().where(*named))).first()
    return None if row is None else _pool(row)


async def endpoint_of(connection: Connection, name: PoolName) -> str | None:
    """Where a pool serves models, if it does."""
    named = (pools.c.tenant_id == name.tenant_id, pools.c.pool_id == name.pool_id)
    found = await connection.execute(sa.select(pools.c.endpoint_ref).where(*named))
    return found.scalar_one_or_none()


async def of_tenant(connection: Connection, tenant_id: str) -> list[ServingPool]:
    """Every active pool of a tenant that has an endpoint, in the order of their ids."""
    query = _query().where(pools.c.tenant_id == tenant_id, *SERVES).order_by(pools.c.pool_id)
    return [_pool(row) for row in await connection.execute(query)]


async def wanting_warm_keep(connection: Connection, after: PoolName, limit: int) -> list[PoolName]:
    """Active pools of every tenant that serve models, behind `after` in the order of their names."""
    name = sa.tuple_(pools.c.tenant_id, pools.c.pool_id)
    query = sa.select(pools.c.tenant_id, pools.c.pool_id).where(*SERVES, name > sa.tuple_(*after))
    query = query.order_by(pools.c.tenant_id, pools.c.pool_id).limit(limit)
    return [PoolName(*row) for row in await connection.execute(query)]


async def serves(connection: Connection, name: PoolName) -> bool:
    """Whether a pool takes models. Until the transaction ends it does not stop to."""
    named = (pools.c.tenant_id == name.tenant_id, pools.c.pool_id == name.pool_id)
    query = sa.select(pools.c.pool_id).where(*named, *SERVES)
    return (await connection.execute(query.with_for_update(read=True))).first() is not None


async def drains(connection: Connection, name: PoolName) -> bool:
    """Whether a pool drains. Until the transaction ends nobody resumes it."""
    named = (pools.c.tenant_id == name.tenant_id, pools.c.pool_id == name.pool_id)
    query = sa.select(pools.c.pool_id).where(*named, pools.c.state == PoolState.DRAINING.value)
    return (await connection.execute(query.with_for_update(read=True))).first() is not None


def keep_pool(pool: ServingPool) -> KeepPool:
    """A pool as the rule of warm keeping sees it: one whose endpoint does not answer is not able."""
    return KeepPool(
        pool_id=pool.name.pool_id,
        region=pool.region,
        kind=pool.kind,
        gpu_type=pool.gpu_type,
        boundary=pool.boundary,
        vram_gb=pool.vram_gb,
        able=pool.health is not Health.DEGRADED,
    )


def _query() -> sa.Select[Any]:
    joined = pools.join(
        pool_serving,
        sa.and_(pools.c.tenant_id == pool_serving.c.tenant_id, pools.c.pool_id == pool_serving.c.pool_id),
    )
    names = ("tenant_id", "pool_id", "state", "endpoint_ref", "region", "kind", "gpu_type")
    return sa.select(
        *(pools.c[one] for one in names),
        pools.c.security_boundary,
        pool_serving.c.vram_gb,
        pool_serving.c.committed_vram_gb,
        pool_serving.c.health,
    ).select_from(joined)


def _pool(row: Any) -> ServingPool:
    return ServingPool(
        name=PoolName(row.tenant_id, row.pool_id),
        state=PoolState(row.state),
        endpoint_ref=row.endpoint_ref,
        region=row.region,
        kind=PoolKind(row.kind),
        gpu_type=row.gpu_type,
        boundary=SecurityBoundary(row.security_boundary),
        vram_gb=row.vram_gb,
        committed_vram_gb=row.committed_vram_gb,
        health=Health(row.health),
    )
