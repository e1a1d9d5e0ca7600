"""What a worker of serving pools does besides its queue: it shows figures, and probes what is reported.

Figures and probes do not wait for Temporal: what is seen of pools, and the answer to a router, go on.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import datetime

import structlog
from prometheus_client import Counter
from temporalio.client import Client

from activities.drain_calls import PoolDrainInput
from activities.drain_start import start_drain
from activities.model_placement_start import ModelPlacementStarter
from activities.model_placement_sweep import start_lost
from activities.pool_gauges import PoolGauges
from activities.probing import ProbingActivities
from activities.probing_calls import ProbeRequest
from activities.warm_calls import WarmKeepInput
from activities.warm_keep_start import start_warm_keep
from domain.serving.health import HealthTerms
from store import pool_health, pool_life, serving_pools
from store.engine import Engine
from store.pool_health import PoolName

LOOK_SECONDS = 1.0
# A pool that could not be asked is not asked again at once.
AGAIN_SECONDS = 5.0
MOST_AT_ONCE = 50
DRAINS_EVERY_SECONDS = 60.0
# Whoever was placed there waits for the model.
PLACEMENTS_EVERY_SECONDS = 20.0
DRAINS_AT_ONCE = 1000
KEEPING_EVERY_SECONDS = 60.0
POOLS_AT_ONCE = 500
FIRST = serving_pools.PoolName("", "")

FAILED = Counter(
    "sco_serving_chore_failures_total", "Rounds of a chore of serving pools that failed", ["chore"]
)
log = structlog.get_logger("serving")


async def show_pools(gauges: PoolGauges, stop: asyncio.Event, every_seconds: float) -> None:
    """Publish the figures of pools until told to stop."""
    await _again("show_pools", gauges.refresh, stop, every_seconds)


class ReportedProbes:
    """Probes the endpoints that routers reported down, without waiting for the next round."""

    def __init__(
        self,
        engine: Engine,
        probing: ProbingActivities,
        *,
        terms: HealthTerms,
        now: Callable[[], datetime],
    ) -> None:
        self._engine = engine
        self._probing = probing
        self._terms = terms
        self._now = now
        self._asked: dict[PoolName, float] = {}

    async def run(self, stop: asyncio.Event) -> None:
        """Look for reports until told to stop. Another process that does the same is no harm."""
        await _again("probe_reported", self.look, stop, LOOK_SECONDS)

    async def look(self) -> int:
        """Probe what was reported since it was last probed; returns how many pools that were."""
        async with self._engine.connect() as connection:
            reported = await pool_health.reported_unprobed(
                connection, self._now(), self._terms.report_hold_seconds, MOST_AT_ONCE
            )
        now = time.monotonic()
        self._asked = {name: at for name, at in self._asked.items() if now - at < AGAIN_SECONDS}
        due = [name for name in reported if name not in self._asked]
        self._asked |= dict.fromkeys(due, now)
        await asyncio.gather(*(self._probing.probe_pools(ProbeRequest(only=name)) for name in due))
        return len(due)


async def start_lost_drains(
    engine: Engine, client: Client, stop: asyncio.Event, every_seconds: float = DRAINS_EVERY_SECONDS
) -> None:
    """Start the drains of all tenants whose start was lost, until told to stop. One that runs goes on."""

    async def start() -> None:
        async with engine.connect() as connection:
            draining = await pool_life.draining(connection, DRAINS_AT_ONCE)
        for tenant_id, pool_id in draining:
            await start_drain(client, PoolDrainInput(tenant_id=tenant_id, pool_id=pool_id))

    await _again("start_lost_drains", start, stop, every_seconds)


async def keep_pools_warm(
    engine: Engine, client: Client, stop: asyncio.Event, every_seconds: float = KEEPING_EVERY_SECONDS
) -> None:
    """See that every pool of all tenants that serves models is kept warm. A keeping that runs goes on."""

    async def start() -> None:
        after = FIRST
        while not stop.is_set():
            async with engine.connect() as connection:
                found = await serving_pools.wanting_warm_keep(connection, after, POOLS_AT_ONCE)
            for name in found:
                await start_warm_keep(client, WarmKeepInput(**name._asdict()))
            if len(found) < POOLS_AT_ONCE:
                return
            after = found[-1]

    await _again("keep_pools_warm", start, stop, every_seconds)


async def start_lost_placements(
    engine: Engine,
    client: Client,
    stop: asyncio.Event,
    *,
    now: Callable[[], datetime],
    every_seconds: float = PLACEMENTS_EVERY_SECONDS,
) -> None:
    """Start what sees to models that are placed and that nobody loads, until told to stop."""
    starter = ModelPlacementStarter(client)

    async def start() -> None:
        await start_lost(engine, starter, now=now)

    await _again("start_lost_placements", start, stop, every_seconds)


async def _again(
    chore: str, work: Callable[[], Awaitable[object]], stop: asyncio.Event, every_seconds: float
) -> None:
    """Work, again and again. Every failure is counted, but only a new one is logged."""
    problem = ""
    while not stop.is_set():
        try:
            await work()
            problem = ""
        except Exception as error:
            FAILED.labels(chore).inc()
            found = f"{type(error).__name__}: {error}"[:200]
            if found != problem:
                log.warning("serving_chore_failed", chore=chore, problem=found)
            problem = found
        with suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), every_seconds)
