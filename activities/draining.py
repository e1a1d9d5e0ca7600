"""The hand that drains: one look at a pool, which unloads what is idle and records when nothing is left."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import NamedTuple

import structlog
from prometheus_client import Counter
from temporalio import activity

from activities.drain_calls import DRAIN_POOL, DrainLooked, PoolDrainInput
from domain.pool import Pool, PoolState
from domain.pool_life import DrainLook, DrainTerms, Held, look
from store import pool_life
from store.engine import Connection, Engine

DRAINED = Counter("sco_pools_drained_total", "Pools that came to hold nothing", ["region"])
EVICTED = Counter("sco_models_evicted_total", "Models unloaded from pools that drain", ["reason"])
log = structlog.get_logger("drain")

Tell = Callable[[str, str, str], Awaitable[None]]


class _Found(NamedTuple):
    """What one look found and did, with the holders to be told."""

    pool: Pool
    looked: DrainLooked
    plan: DrainLook = DrainLook((), drained=False)
    holders: Sequence[tuple[str, str]] = ()


class DrainingActivities:
    """Drains pools of one database. `tell` starts the placement of a tenant's partition and workload."""

    def __init__(self, engine: Engine, tell: Tell, *, terms: DrainTerms, now: Callable[[], datetime]) -> None:
        self._engine = engine
        self._tell = tell
        self._terms = terms
        self._now = now

    @activity.defn(name=DRAIN_POOL)
    async def drain_pool(self, request: PoolDrainInput) -> DrainLooked:
        """Look at a pool once. What it does is one transaction, so that looking again does it no second time.

        Who holds units there is told to plan elsewhere at the first look of a drain; from then on the
        sweep tells them.
        """
        async with self._engine.begin() as connection:
            found = await self._look(connection, request)
        _count(found)
        looked = found.looked
        if looked.state is PoolState.DRAINING and looked.since != request.told_since:
            for partition_id, workload_id in found.holders:
                activity.heartbeat(workload_id)
                await self._tell(request.tenant_id, partition_id, workload_id)
        return looked

    async def _look(self, connection: Connection, request: PoolDrainInput) -> _Found:
        pool, held = await pool_life.locked(connection, request.tenant_id, request.pool_id)
        if pool.state is not PoolState.DRAINING or pool.drained_at is not None:
            return _Found(pool, _looked(pool, held, over=True))
        now = self._now()
        since = pool.draining_since or now
        plan = look(held, since=since, now=now, terms=self._terms)
        await pool_life.evict(connection, pool, plan.evictions, now)
        if plan.evictions:
            held = held._replace(models=())
        if plan.drained:
            await pool_life.record_drained(connection, pool, now)
        holders = await pool_life.holders(connection, request.tenant_id, request.pool_id)
        changed = {"draining_since": since, "drained_at": now if plan.drained else None}
        looked = _looked(pool.model_copy(update=changed), held, over=plan.drained)
        names = tuple(one.model.model for one in plan.evictions)
        told = {"evicted": names, "pause_seconds": self._terms.look_seconds}
        return _Found(pool, looked.model_copy(update=told), plan, holders)


def _count(found: _Found) -> None:
    """Metrics and log lines of what was committed, so that what was rolled back is not counted."""
    pool, looked = found.pool, found.looked
    for one in found.plan.evictions:
        EVICTED.labels(one.reason).inc()
        log.info("model_evicted", pool=pool.pool_id, model=one.model.model, reason=one.reason.value)
    if found.plan.drained:
        DRAINED.labels(pool.region).inc()
        log.info("pool_drained", pool=pool.pool_id, since=str(looked.since))


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
