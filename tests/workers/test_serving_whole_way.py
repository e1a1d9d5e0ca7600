"""A worker of serving pools as it runs: a real database, Temporal, NATS and HTTP, and nothing faked."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from typing import Any

import nats
import pytest_asyncio
from prometheus_client import REGISTRY, CollectorRegistry
from pydantic import SecretStr

from activities.reporting import report_endpoint
from domain.policy import Policy
from domain.serving.health import HealthTerms
from domain.serving.utilization import UtilizationTerms
from lab.logins import WORKER_LOGIN, dsn_of, ensure_logins
from lab.stack import Stack
from lab.stack.nats import taken_in
from store.engine import Engine, of_tenant
from tests.activities.serving.model_servers import terms_for
from tests.activities.serving.moody_endpoint import Mood, MoodyEndpoint
from tests.database import opened
from tests.estates import TENANT, Clock
from tests.serving_pools import ServingPools, serving_facts, utilization
from tests.workers.post_office import until
from wire.reports import letter, report_subject
from workers.main import run
from workers.settings import WorkerSettings

HEALTH = HealthTerms(probe_timeout_seconds=1, report_every_seconds=0)


class UsageService:
    """Takes pool hours over HTTP and remembers the last word on each."""

    def __init__(self) -> None:
        self.told: dict[tuple[str, str, str], int] = {}
        self.server: asyncio.Server | None = None
        self.url = ""

    async def open(self) -> None:
        self.server = await asyncio.start_server(self._answer, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self.server.sockets[0].getsockname()[1]}/hours"

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
            length = int(head.split("content-length:")[1].split("\r\n")[0])
            for one in json.loads(await reader.readexactly(length))["poolHours"]:
                self.told[one["tenantId"], one["poolId"], one["hour"]] = one["seconds"]
            writer.write(b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n")
            await writer.drain()
        writer.close()


class Live:
    """A running worker, one serving pool, and what stands around it."""

    def __init__(
        self, stack: Stack, pools: ServingPools, endpoint: MoodyEndpoint, usage: UsageService
    ) -> None:
        self.stack = stack
        self.pools = pools
        self.endpoint = endpoint
        self.usage = usage

    async def reports(self) -> None:
        """One letter of the pool's agent."""
        client = await nats.connect(self.stack.nats_url)
        body = letter(utilization=utilization("gpu-1", now()).utilization, queue_depth=3, reported_at=now())
        await client.publish(report_subject(TENANT, "gpu-1"), body)
        await taken_in(client)
        await client.close()

    async def becomes(
        self, what: str, value: Any, meanwhile: Callable[[], Awaitable[None]] | None = None
    ) -> None:
        """Until a column of the pool has a value."""

        async def has() -> bool:
            if meanwhile is not None:
                await meanwhile()
            return bool(await self.pools.serving(what) == value)

        await until(has)


def now() -> datetime:
    return datetime.now(UTC)


@asynccontextmanager
async def running(settings: WorkerSettings, policy: Policy) -> AsyncIterator[None]:
    stop = asyncio.Event()
    working = asyncio.create_task(run(settings, policy, stop, CollectorRegistry()))
    try:
        yield
    finally:
        stop.set()
        await working


@pytest_asyncio.fixture
async def live(own_stack: Stack, stack: Stack, engine: Engine, dsn: str) -> AsyncIterator[Live]:
    """The database is the session's; Temporal and NATS are servers that a test may kill."""
    ensure_logins(dsn, stack.data_dir)
    endpoint, usage = MoodyEndpoint(), UsageService()
    await endpoint.open()
    await usage.open()
    pools = ServingPools(engine, Clock(now()))
    await pools.add(serving_facts(), endpoint=endpoint.reference)
    settings = WorkerSettings(
        database_url=SecretStr(dsn_of(WORKER_LOGIN, dsn, stack.data_dir)),
        temporal_address=own_stack.temporal_address,
        nats_url=own_stack.nats_url,
        sandbox=True,
        usage_url=usage.url,
        collector_seconds=1,
        pool_probe_seconds=1,
    )
    policy = Policy(
        endpoints=terms_for(endpoint.port), health=HEALTH, utilization=UtilizationTerms(staleness_seconds=2)
    )
    async with running(settings, policy):
        yield Live(own_stack, pools, endpoint, usage)
    await endpoint.close()


async def test_the_life_of_a_serving_pool(live: Live, dsn: str) -> None:
    """Silent and unknown, then reported and healthy, then dead, reported dead, and back again."""
    pools = live.pools
    await live.becomes("stale_since IS NOT NULL", True)
    await live.becomes("stale_since IS NULL AND health = 'healthy'", True, meanwhile=live.reports)
    assert (await pools.capacity())[1] == 3
    await live.endpoint.close()
    await live.becomes("health", "degraded")
    await live.endpoint.open()
    await live.becomes("health", "healthy")
    live.endpoint.mood = Mood.FAILING
    async with opened(dsn) as own:
        await report_endpoint(
            of_tenant(own, "acme"), "acme", TENANT, "gpu-1", "HTTP 500", now(), terms=HEALTH
        )
    await live.becomes("health", "degraded")
    live.endpoint.mood = Mood.WELL
    await live.becomes("health", "healthy")
    await live.becomes("stale_since IS NOT NULL", True)

    async def told() -> bool:
        recorded = await pools.rows("SELECT sum(seconds) FROM usage_records")
        return 0 < sum(live.usage.told.values()) == int(recorded[0][0])

    await until(told)
    shown = {"tenant": TENANT, "pool": "gpu-1", "health": "healthy"}

    async def is_shown() -> bool:
        return REGISTRY.get_sample_value("sco_pool_health", shown) == 1

    await until(is_shown)


async def test_without_temporal_reports_still_count_and_reported_endpoints_are_still_probed(
    live: Live, own_stack: Stack
) -> None:
    await live.becomes("health", "healthy", meanwhile=live.reports)
    await asyncio.to_thread(own_stack.kill_one, "temporal")
    try:
        await asyncio.sleep(1.5)
        live.endpoint.mood = Mood.FAILING
        await report_endpoint(live.pools.engine, "acme", TENANT, "gpu-1", "down", now(), terms=HEALTH)
        await live.becomes("health", "degraded", meanwhile=live.reports)
        await live.becomes("stale_since IS NULL", True, meanwhile=live.reports)
    finally:
        await asyncio.to_thread(own_stack.start_one, "temporal")
    live.endpoint.mood = Mood.WELL
    await live.becomes("health", "healthy")
