"""The hand that keeps a pool warm: one look, which asks its endpoint, decides by the rule and unloads.

What is to be loaded is left to the workflow, since a load takes minutes. A look may be repeated: what it
does is decided on what is there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import structlog
from prometheus_client import Counter
from temporalio import activity

from activities.model_loading import LoadError, ModelLoading
from activities.model_placement_calls import LoadModelRequest
from activities.warm_calls import LOOK_AT_MODELS, FailedLoad, ModelsLooked, WarmKeepInput
from domain.serving.warm_keep import Cached, Look, ToLoad, WarmKeepTerms, look, spread
from store import cached_models, serving_pools, warm_profiles, warm_requests
from store.cached_models import CachedModel, Settled
from store.engine import Connection, Engine
from store.serving_pools import PoolName, ServingPool, keep_pool
from store.tables import LoadCause, ModelState

LOST = Counter("sco_models_lost_total", "Models that endpoints let go of by themselves")
log = structlog.get_logger("models")


class _Seen(NamedTuple):
    """A pool as one look saw it, and what the rule makes of it."""

    pool: ServingPool
    cached: Sequence[CachedModel]
    kept: Mapping[str, int]
    asked: Mapping[str, int]
    look: Look


class WarmKeepingActivities:
    """Looks after the serving pools of one database."""

    def __init__(
        self, engine: Engine, models: ModelLoading, *, terms: WarmKeepTerms, now: Callable[[], datetime]
    ) -> None:
        self._engine = engine
        self._models = models
        self._terms = terms
        self._now = now

    @activity.defn(name=LOOK_AT_MODELS)
    async def look_at_models(self, request: WarmKeepInput) -> ModelsLooked:
        """Look at a pool once: unload what may go, and say what is to be loaded."""
        name = PoolName(request.tenant_id, request.pool_id)
        async with self._engine.begin() as connection:
            for one in request.failed:
                await self._fail(connection, name, one.model, one.problem)
            pool = await serving_pools.find(connection, name)
            if pool is None or not pool.serves:
                await self._fail_all(connection, name, "the pool is not active or has no endpoint")
                return ModelsLooked(over=True)
        try:
            await self._settle(name)
        except LoadError as error:
            async with self._engine.begin() as connection:
                await self._fail_all(connection, name, error.text)
            return ModelsLooked(over=False, problem=error.text, **self._next())
        async with self._engine.begin() as connection:
            seen = await self._see(connection, pool)
            loads = _without(seen.look.loads, request.failed)
            await self._answer(connection, seen, loads)
        evicted = await self._evict(seen)
        return self._looked(seen, loads, evicted)

    async def _settle(self, name: PoolName) -> None:
        """Bring what is known of the pool in line with what its endpoint lists."""
        asked_at = self._now()
        listed = await self._models.list_models(name)
        async with self._engine.begin() as connection:
            settled = await cached_models.settle(
                connection,
                name,
                [one.model for one in listed],
                asked_at=asked_at,
                at=self._now(),
                patience=timedelta(seconds=self._terms.look_seconds),
            )
        _tell(name, settled)

    async def _see(self, connection: Connection, pool: ServingPool) -> _Seen:
        now, name = self._now(), pool.name
        cached = await cached_models.of_pool(connection, name)
        profiles = await warm_profiles.enabled(connection, name.tenant_id)
        peers = await serving_pools.of_tenant(connection, name.tenant_id)
        kept = spread(profiles, map(keep_pool, peers), now).get(name.pool_id, {})
        asked: dict[str, int] = {}
        for one in await warm_requests.open_on(connection, name):
            asked[one.model] = max(one.vram_gb, asked.get(one.model, 0))
        there = [_cached(each, now) for each in cached]
        return _Seen(
            pool, cached, kept, asked, look(pool.vram_gb, there, kept, now, self._terms, asked=asked)
        )

    async def _answer(self, connection: Connection, seen: _Seen, loads: Sequence[ToLoad]) -> None:
        """Tell those who asked for a model: it is there, it is being loaded, or it does not fit."""
        name = seen.pool.name
        for one in seen.cached:
            if one.state is ModelState.LOADED and one.model in seen.asked:
                await warm_requests.finish(connection, name, one.model, at=self._now())
        for coming in loads:
            await warm_requests.begin(connection, name, coming.model)
        for missing in seen.look.short:
            all_gb = seen.pool.vram_gb
            free = all_gb - sum(one.vram_gb for one in seen.cached)
            text = f"{missing.vram_gb} GB do not fit: {free} of {all_gb} GB are free, the rest is in use"
            await self._fail(connection, name, missing.model, text)

    async def _evict(self, seen: _Seen) -> tuple[str, ...]:
        """Unload what may go; what does not go now is tried at the next look."""
        gone = []
        for one in seen.look.evictions:
            try:
                if await self._models.unload(seen.pool.name, one.model, one.reason.value):
                    gone.append(one.model)
            except LoadError as error:
                log.warning("model_stays", pool=seen.pool.name.pool_id, model=one.model, problem=error.text)
        return tuple(gone)

    async def _fail_all(self, connection: Connection, name: PoolName, problem: str) -> None:
        for one in await warm_requests.open_on(connection, name):
            await self._fail(connection, name, one.model, problem)

    async def _fail(self, connection: Connection, name: PoolName, model: str, problem: str) -> None:
        if await warm_requests.finish(connection, name, model, at=self._now(), problem=problem):
            log.warning("warm_request_failed", pool=name.pool_id, model=model, problem=problem)

    def _looked(self, seen: _Seen, loads: Sequence[ToLoad], evicted: tuple[str, ...]) -> ModelsLooked:
        loaded = {one.model for one in seen.cached if one.state is ModelState.LOADED}
        name = seen.pool.name
        return ModelsLooked(
            over=False,
            kept=len(seen.kept),
            warm=len(loaded & seen.kept.keys()),
            loads=tuple(
                LoadModelRequest(
                    tenant_id=name.tenant_id,
                    pool_id=name.pool_id,
                    model=one.model,
                    vram_gb=one.vram_gb,
                    cause=(LoadCause.REQUEST if one.model in seen.asked else LoadCause.WARM_KEEP).value,
                )
                for one in loads
            ),
            evicted=evicted,
            short=tuple(one.model for one in seen.look.short),
            **self._next(),
        )

    def _next(self) -> dict[str, Any]:
        seconds = self._terms.look_seconds
        return {"pause_seconds": seconds, "next_look_at": self._now() + timedelta(seconds=seconds)}


def _without(loads: Iterable[ToLoad], failed: Iterable[FailedLoad]) -> list[ToLoad]:
    """What failed a moment ago is not asked for again at once."""
    names = {one.model for one in failed}
    return [one for one in loads if one.model not in names]


def _cached(model: CachedModel, now: datetime) -> Cached:
    return Cached(
        model=model.model,
        vram_gb=model.vram_gb,
        loaded=model.state is ModelState.LOADED,
        last_used_at=model.last_used_at,
        holds=model.holds,
        loading=model.leased(now),
    )


def _tell(name: PoolName, settled: Settled) -> None:
    if settled.lost:
        LOST.inc(len(settled.lost))
        log.warning("models_lost", tenant=name.tenant_id, pool=name.pool_id, models=settled.lost)
    if settled.found:
        log.info("models_found", tenant=name.tenant_id, pool=name.pool_id, models=settled.found)
