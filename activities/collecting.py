"""The hand that collects, for the pools of all tenants: silence, cold starts, expiries and pool hours.

Its parts are transactions of their own that may be done again at any time. One that fails keeps no other
from being done; the failure is told when all were tried.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime, timedelta

import structlog
from prometheus_client import Counter, Gauge
from temporalio import activity

from activities.collecting_calls import COLLECT, Collected, CollectRequest
from activities.usage_sinks import UsageSink
from domain.policy import Policy
from domain.serving.cold_start import learned
from domain.serving.usage import counted
from store import model_loads, model_placements, pool_health, pool_reports, usage_records
from store.engine import Engine
from store.usage_records import UsageRecord

POOLS_AT_ONCE = 500
EXPIRED_AT_ONCE = 200
# A control plane that was away may have thousands to end; the next run takes what is left.
EXPIRY_BATCHES = 50
REPORTS_KEPT = timedelta(hours=2)
SENT_AT_ONCE = 1000
SEND_BATCHES = 50
SEND_SECONDS = 10.0
# A process that starts tells the usage service again what it may have missed.
SENT_AGAIN = timedelta(hours=24)

COLLECTED_AT = Gauge("sco_collector_timestamp_seconds", "When the collector last did all of its parts")
FAILED = Counter("sco_collector_failures_total", "Parts of the collector that failed", ["part"])
EXPIRED = Counter("sco_model_placements_expired_total", "Placements of models that were not renewed in time")
METERED = Counter("sco_pool_hours_recorded_total", "Usage records of pool hours that were written")
UNTOLD = Counter("sco_usage_sink_failures_total", "Times that the usage service took no pool hours")
log = structlog.get_logger("collector")

Part = Callable[[], Awaitable[Mapping[str, object]]]


class CollectingActivities:
    """Collects in one database, and tells pool hours to one usage service."""

    def __init__(
        self, engine: Engine, sink: UsageSink, *, policy: Policy, now: Callable[[], datetime]
    ) -> None:
        self._engine = engine
        self._sink = sink
        self._policy = policy
        self._now = now
        self._told: UsageRecord | None = None
        self._sink_fails = False
        self._parts: Mapping[str, Part] = {
            "mark_stale": self.mark_stale,
            "learn": self.learn,
            "expire": self.expire,
            "meter": self.meter,
            "purge": self.purge,
        }

    @activity.defn(name=COLLECT)
    async def collect(self, request: CollectRequest) -> Collected:
        """Do every part once. The first failure is raised in the end, when all others were tried."""
        del request
        done, failure = Collected(), None
        for name, part in self._parts.items():
            try:
                done = done.model_copy(update=await part())
            except Exception as error:
                FAILED.labels(name).inc()
                log.warning("collector_part_failed", part=name, problem=str(error)[:200])
                failure = failure or error
        await self._tell_usage()
        if failure is not None:
            raise failure
        COLLECTED_AT.set(self._now().timestamp())
        return done

    async def mark_stale(self) -> Mapping[str, object]:
        """Mark pools that fell silent; those that were heard again lost their mark with the report."""
        seconds = self._policy.utilization.staleness_seconds
        async with self._engine.begin() as connection:
            changed = await pool_reports.mark_stale(connection, self._now(), seconds)
        stale = tuple(f"{one.tenant_id}/{one.pool_id}" for one in changed if one.since is not None)
        fresh = tuple(f"{one.tenant_id}/{one.pool_id}" for one in changed if one.since is None)
        if stale:
            log.warning("pools_stale", pools=stale, staleness_seconds=seconds)
        if fresh:
            log.info("pools_fresh", pools=fresh)
        return {"stale": stale, "fresh": fresh}

    async def learn(self) -> Mapping[str, object]:
        """Learn cold starts from the loads that were seen."""
        terms = self._policy.cold_start
        since = self._now() - timedelta(days=terms.history_days)
        async with self._engine.begin() as connection:
            loads = await model_loads.recent(connection, since)
            known = {name: learned(seen, terms) for name, seen in loads.items()}
            figures = {name: seconds for name, seconds in known.items() if seconds is not None}
            return {"learned": await model_loads.learn(connection, figures)}

    async def expire(self) -> Mapping[str, object]:
        """End placements that were not renewed in time, and so free what they hold."""
        ended = 0
        for _ in range(EXPIRY_BATCHES):
            async with self._engine.begin() as connection:
                batch = await model_placements.expire(connection, self._now(), EXPIRED_AT_ONCE)
            EXPIRED.inc(len(batch))
            ended += len(batch)
            if len(batch) < EXPIRED_AT_ONCE:
                break
        return {"expired": ended}

    async def meter(self) -> Mapping[str, object]:
        """Count pool hours on from where they were counted to."""
        after, hours = ("", ""), 0
        while True:
            async with self._engine.begin() as connection:
                await usage_records.lock(connection)
                found = await usage_records.meters(connection, after, POOLS_AT_ONCE)
                now = self._now()
                records = [
                    UsageRecord(*name, one)
                    for name, meter in found
                    for one in counted(meter, now, self._policy.usage)
                ]
                await usage_records.write(connection, records)
            METERED.inc(len(records))
            hours += len(records)
            if len(found) < POOLS_AT_ONCE:
                return {"hours": hours}
            after = found[-1][0]

    async def purge(self) -> Mapping[str, object]:
        """Forget routers' reports that keep nobody away any more."""
        async with self._engine.begin() as connection:
            await pool_health.purge_reports(connection, self._now() - REPORTS_KEPT)
        return {}

    async def _tell_usage(self) -> None:
        """Tell the usage service what was counted since it last listened. It may only delay itself."""
        try:
            for _ in range(SEND_BATCHES):
                async with self._engine.connect() as connection:
                    records = await usage_records.counted_since(
                        connection, self._now() - SENT_AGAIN, self._told, SENT_AT_ONCE
                    )
                if records:
                    async with asyncio.timeout(SEND_SECONDS):
                        await self._sink.record(records)
                    self._told = records[-1]
                if len(records) < SENT_AT_ONCE:
                    break
        except Exception as error:
            UNTOLD.inc()
            if not self._sink_fails:
                log.warning("usage_not_told", problem=f"{type(error).__name__}: {error}"[:200])
            self._sink_fails = True
        else:
            if self._sink_fails:
                log.info("usage_told_again")
            self._sink_fails = False
