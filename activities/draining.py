"""The hand that drains: one look at a pool, which unloads what is idle and records when nothing is left.

A model is unloaded at the pool's endpoint before the store forgets it. An endpoint that cannot be asked is
waited for as long as the pool is patient with its models; after that it has let go of them by being gone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import NamedTuple, Protocol

import structlog
from prometheus_client import Counter
from temporalio import activity

from activities.drain_calls import DRAIN_POOL, DrainLooked, PoolDrainInput
from activities.model_loading import LoadError
from domain.pool import Pool, PoolState
from domain.pool_life import DrainLook, DrainTerms, Eviction, Held, look
from store import pool_life
from store.engine import Connection, Engine
from store.serving_pools import PoolName

DRAINED = Counter("sco_pools_drained_total", "Pools that came to hold nothing", ["region"])
log = structlog.get_logger("drain")

Tell = Callable[[str, str, str], Awaitable[None]]


class Unloads(Protocol):
    """Unloads models, as `ModelLoading` does."""

    async def unload(
        self, name: PoolName, model: str, reason: str, *, forced: bool = False, given_up: bool = False
    ) -> bool: ...


class _Found(NamedTuple):
    """What one look found and did, with the holders to be told."""

    pool: Pool
    looked: DrainLooked
    plan: DrainLook = DrainLook((), drained=False)
    holders: Sequence[tuple[str, str]] = ()


class DrainingActivities:
    """Drains pools of one database. `tell` starts the placement of a tenant's partition and workload."""

    def __init__(
        self,
        engine: Engine,
        tell: Tell,
        models: Unloads,
        *,
        terms: DrainTerms,
        now: Callable[[], datetime],
    ) -> None:
        self._engine = engine
        self._tell = tell
        self._models = models
        self._terms = terms
        self._now = now

    @activity.defn(name=DRAIN_POOL)
    async def drain_pool(self, request: PoolDrainInput) -> DrainLooked:
        """Look at a pool once, unload what may go, and look again if anything went.

        Whatever was done is done once, however often it is looked at. Who holds units there is told to plan
        elsewhere at the first look of a drain; from then on the sweep tells them.
        """
        found = await self._look(request)
        evicted = await self._unload(found)
        if evicted:
            found = await self._look(request)
        looked = found.looked.model_copy(update={"evicted": evicted})
        if looked.state is PoolState.DRAINING and looked.since != request.told_since:
            for partition_id, workload_id in found.holders:
                activity.heartbeat(workload_id)
                await self._tell(request.tenant_id, partition_id, workload_id)
        return looked

    async def _look(self, request: PoolDrainInput) -> _Found:
        async with self._engine.begin() as connection:
            found = await self._look_in(connection, request)
        if found.plan.drained:
            DRAINED.labels(found.pool.region).inc()
            log.info("pool_drained", pool=found.pool.pool_id, since=str(found.looked.since))
        return found

    async def _look_in(self, connection: Connection, request: PoolDrainInput) -> _Found:
        pool, held = await pool_life.locked(connection, request.tenant_id, request.pool_id)
        if pool.state is not PoolState.DRAINING or pool.drained_at is not None:
            return _Found(pool, _looked(pool, held, over=True))
        now = self._now()
        since = pool.draining_since or now
        plan = look(held, since=since, now=now, terms=self._terms)
        drained = plan.drained and not plan.evictions
        if drained:
            await pool_life.record_drained(connection, pool, now)
        holders = await pool_life.holders(connection, request.tenant_id, request.pool_id)
        changed = {"draining_since": since, "drained_at": now if drained else None}
        looked = _looked(pool.model_copy(update=changed), held, over=drained)
        looked = looked.model_copy(update={"pause_seconds": self._terms.look_seconds})
        return _Found(pool, looked, plan._replace(drained=drained), holders)

    async def _unload(self, found: _Found) -> tuple[str, ...]:
        """Unload what a look found may go; returns what went. What does not is tried at the next look."""
        pool = found.pool
        went = await asyncio.gather(*(self._unload_one(pool, one) for one in found.plan.evictions))
        return tuple(one.model.model for one, gone in zip(found.plan.evictions, went, strict=True) if gone)

    async def _unload_one(self, pool: Pool, eviction: Eviction) -> bool:
        since = pool.draining_since or self._now()
        given_up = (self._now() - since).total_seconds() >= self._terms.model_patience_seconds
        name, model = PoolName(pool.tenant_id, pool.pool_id), eviction.model.model
        try:
            return await self._models.unload(
                name, model, eviction.reason.value, forced=True, given_up=given_up
            )
        except LoadError as error:
            log.warning("model_stays", pool=pool.pool_id, model=model, problem=error.text)
            return False


def _looked(pool: Pool, held: Held, *, over: bool) -> DrainLooked:
    return DrainLooked(
        state=pool.state,
        since=pool.draining_since,
        drained_at=pool.drained_at,
        over=over,
        units=held.units,
        instances=held.instances,
        models=len(held.models),
        held=str(held),
    )
