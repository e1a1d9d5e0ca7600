"""The hand that observes: what a provider's region offers now, written into the registry."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

import structlog
from prometheus_client import Gauge
from temporalio import activity

from activities import metrics
from activities.errors import application_error
from activities.ports import Catalog, PoolObservation, ProviderError, QuotaState
from activities.scoring_calls import OBSERVE, Observed, ObserveRequest
from domain.policy import ScoringPolicy
from domain.pool import Pool
from domain.quota import (
    Headroom,
    InstanceSize,
    Launching,
    Level,
    QuotaUsage,
    Usage,
    headroom,
    levels,
    share_left,
)
from store import observations, quota_holds, quota_reports, registry
from store.engine import Connection, Engine
from store.observations import PoolReport
from store.registry import PoolFilter

POOLS_PER_REGION = 100_000
GIB_MIB = 1024

QUOTA_LEFT = Gauge("sco_quota_left_ratio", "The smallest share of a provider quota that is left", ["region"])
QUOTA_ALARM = Gauge("sco_quota_alarm", "1 while a provider quota is at or below its alarm share", ["region"])
QUOTA_HOLD = Gauge(
    "sco_quota_hold_seconds",
    "How long launches are still held after a refusal for quota; 0 without",
    ["region"],
)
log = structlog.get_logger("observing")


@dataclass(frozen=True, slots=True)
class _Said:
    """What the provider said of one region, and the quota hold from before it was asked."""

    pools: Sequence[PoolObservation]
    usage: QuotaUsage
    lost_halls: frozenset[str]
    held_until: datetime | None


class ObservingActivities:
    """Reports pools of one region from the provider's rate card, forward capacity, quota and hall status."""

    def __init__(
        self, engine: Engine, catalog: Catalog, *, policy: ScoringPolicy, now: Callable[[], datetime]
    ) -> None:
        self._engine = engine
        self._catalog = catalog
        self._policy = policy
        self._now = now

    @activity.defn(name=OBSERVE)
    async def observe_region(self, request: ObserveRequest) -> Observed:
        """Refresh capacity, outlook, quota, prices and lost halls of one region."""
        region = request.region
        said = await self._ask(request)
        async with self._engine.begin() as connection:
            pools = await registry.list_pools(
                connection, request.tenant_id, PoolFilter(region=region), limit=POOLS_PER_REGION
            )
            # One lock for all that follows, in the order of everyone.
            await registry.lock_capacity(connection, request.tenant_id, [pool.pool_id for pool in pools])
            planned = await observations.unlaunched(connection, request.tenant_id, region)
            pending = _pending(pools, planned)
            reports = self._reports(pools, said.pools, pending, said.usage)
            await observations.report_pools(connection, request.tenant_id, reports, self._now())
            for hall in sorted({pool.hall for pool in pools}):
                await observations.set_hall_lost(
                    connection, request.tenant_id, hall, lost=hall in said.lost_halls
                )
            await self._report_quota(connection, request, said, pending)
        metrics.OBSERVED_AT.labels(region).set(self._now().timestamp())
        return Observed(region=region, pools=len(reports), lost_halls=tuple(sorted(said.lost_halls)))

    async def _ask(self, request: ObserveRequest) -> _Said:
        """What the provider says now. A hold is read first: what is said later may end it."""
        region = request.region
        async with self._engine.connect() as connection:
            held_until = await quota_holds.held_until(connection, request.tenant_id, region)
        try:
            return _Said(
                pools=await asyncio.to_thread(self._catalog.observe, region),
                usage=_usage(await asyncio.to_thread(self._catalog.quota, region)),
                lost_halls=await asyncio.to_thread(self._catalog.lost_halls, region),
                held_until=held_until,
            )
        except ProviderError as error:
            raise application_error(error) from error

    async def _report_quota(
        self, connection: Connection, request: ObserveRequest, said: _Said, pending: Sequence[Launching]
    ) -> None:
        """Record every quota, say once that one runs low, and end a hold when none is near its limit."""
        tenant_id, region = request.tenant_id, request.region
        found = levels(said.usage, pending, alarm_share=self._policy.quota_alarm_share)
        began = await quota_reports.report(connection, tenant_id, region, found, self._now())
        eased = said.held_until is not None and not any(one.alarm for one in found)
        if eased and await quota_holds.clear(connection, tenant_id, region, until=said.held_until):
            log.info("quota_hold_cleared", region=region)
        held_until = await quota_holds.held_until(connection, tenant_id, region)
        for one in found:
            if one.resource in began:
                log.warning("quota_low", region=region, **one.model_dump(mode="json"), left=one.left)
        held = 0.0 if held_until is None else max(0.0, (held_until - self._now()).total_seconds())
        QUOTA_HOLD.labels(region).set(held)
        _tell(region, found)

    def _reports(
        self,
        pools: Sequence[Pool],
        seen: Sequence[PoolObservation],
        pending: Sequence[Launching],
        usage: QuotaUsage,
    ) -> list[PoolReport]:
        """One report for every registered pool that the provider spoke of."""
        observed = {(one.hall, one.flavor, one.purchase_model): one for one in seen}
        rooms: dict[InstanceSize, Headroom] = {}
        reports = []
        for pool in pools:
            one = observed.get((pool.hall, pool.flavor, pool.purchase_model.value))
            if one is None:
                continue
            size = _size(pool)
            room = rooms.get(size)
            if room is None:
                room = rooms[size] = headroom(
                    usage,
                    size,
                    pending,
                    alarm_share=self._policy.quota_alarm_share,
                )
            reports.append(
                PoolReport(
                    pool_id=pool.pool_id,
                    free_instances=one.free_instances,
                    free_24h_instances=one.free_24h_instances,
                    quota_instances=room.instances,
                    price_per_hour_usd=Decimal(one.price_per_hour_usd),
                    guaranteed_price_per_hour_usd=Decimal(one.guaranteed_price_per_hour_usd),
                )
            )
        return reports


def _size(pool: Pool) -> InstanceSize:
    return InstanceSize(cores=pool.cpu_cores, ram_mib=pool.ram_gb * GIB_MIB)


def _pending(pools: Sequence[Pool], planned: Mapping[str, int]) -> list[Launching]:
    """Planned instances that no quota contains yet, so that two plans do not count on the same room."""
    return [
        Launching(size=_size(pool), asked=planned[pool.pool_id], listed=0)
        for pool in pools
        if pool.pool_id in planned
    ]


def _usage(quota: QuotaState) -> QuotaUsage:
    return QuotaUsage(
        instances=Usage(limit=quota.instances_limit, used=quota.instances_used),
        cores=Usage(limit=quota.cores_limit, used=quota.cores_used),
        ram_mib=Usage(limit=quota.ram_mib_limit, used=quota.ram_mib_used),
    )


def _tell(region: str, found: Sequence[Level]) -> None:
    share = share_left(found)
    QUOTA_LEFT.labels(region).set(1.0 if share is None else float(share))
    QUOTA_ALARM.labels(region).set(int(any(one.alarm for one in found)))
