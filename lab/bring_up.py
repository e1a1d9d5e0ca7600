"""Make a control plane ready on a running stack: schema, cloud, pools, processes, first ranking."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal

import sqlalchemy as sa
from prometheus_client import CollectorRegistry

from domain.pool import PoolState
from lab import launches
from lab.control_plane import API, CLOUD, GRPC, ISSUER, MODELS, RELAY, SECRETS, WORKER, ControlPlane
from lab.logins import ensure_logins
from lab.seed import PARTITIONS, TENANT, seed
from lab.serving import SERVED
from lab.stack.errors import StackError
from store import registry
from store.budget import BudgetStore
from store.engine import Engine, create_engine
from store.migrate import upgrade
from workers.assemble import open_provider, read_cloud_settings

SEED = 20_260
RANKING_SECONDS = 90.0
POLL_SECONDS = 0.1
OPEN_RANKINGS = sa.text(
    """
    SELECT count(DISTINCT partition_id) FROM rankings r
    WHERE EXISTS (SELECT FROM jsonb_array_elements(r.scores) s WHERE (s->>'depth')::numeric > 0)
    """
)
Echo = Callable[[str], None]


def _say_nothing(line: str) -> None:
    """No progress wanted."""


def bring_up(plane: ControlPlane, echo: Echo = _say_nothing, *, api: bool = True) -> None:
    """Start what does not run yet and wait until placements can be made. Raises StackError."""
    upgrade(plane.stack.postgres_dsn)
    ensure_logins(plane.stack.postgres_dsn, plane.data_dir)
    echo("the schema is up to date")
    plane.start(CLOUD)
    echo(f"the simulated cloud runs at {plane.cloud_url}, {plane.pace.cloud_speed:g} times real time")
    added = asyncio.run(_seed(plane))
    echo(f"{added} pools registered" if added else "the pools are registered already")
    plane.start(SECRETS)
    plane.start(MODELS)
    echo(f"{len(SERVED)} pools serve models; OpenBao keeps the credentials of their endpoints")
    plane.start(RELAY)
    echo("the provider's node bus, notice relay and metadata service run")
    plane.start(WORKER)
    echo(f"the worker runs, metrics at {plane.metrics_url}")
    if api:
        plane.start(ISSUER)
        echo(f"the issuer for development runs at {plane.issuer_url}")
        plane.start(API)
        echo(f"the API runs at {plane.api_url}")
        plane.start(GRPC)
        echo(f"gRPC is served at {plane.grpc_address}")
    asyncio.run(_wait_for_rankings(plane))
    echo("every partition has a ranking")


async def _seed(plane: ControlPlane) -> int:
    settings = read_cloud_settings(plane.provider_file)
    budgets = BudgetStore(plane.stack.postgres_dsn, tenant_id=TENANT)
    engine = create_engine(plane.stack.postgres_dsn)
    per_second = plane.pace.provider_calls_per_second
    try:
        for region in settings.regions:
            budgets.set_budget(region, burst=2 * per_second, refill_per_second=Decimal(per_second))
        provider = open_provider(settings, budgets, CollectorRegistry())
        try:
            today = datetime.now(UTC).date()
            added = await seed(engine, provider.catalog, settings.regions, today=today, number=SEED)
            return added + await _seed_serving(engine, plane)
        finally:
            provider.close()
    finally:
        budgets.close()
        await engine.dispose()


async def _seed_serving(engine: Engine, plane: ControlPlane) -> int:
    """Register the pools that serve models, each with the address of its endpoint in this laboratory."""
    async with engine.begin() as connection:
        added = await registry.register_pools(connection, [one.facts() for one in SERVED], PoolState.ACTIVE)
        for one in SERVED:
            endpoint = launches.endpoint_of(plane, one.pool_id)
            await registry.set_endpoint(connection, TENANT, one.pool_id, endpoint)
    return added


async def _wait_for_rankings(plane: ControlPlane) -> None:
    engine = create_engine(plane.stack.postgres_dsn)
    try:
        await _until_ranked(engine)
    finally:
        await engine.dispose()


async def _until_ranked(engine: Engine) -> None:
    deadline = time.monotonic() + RANKING_SECONDS
    while True:
        async with engine.connect() as connection:
            ranked = (await connection.execute(OPEN_RANKINGS)).scalar_one()
        if ranked >= len(PARTITIONS):
            return
        if time.monotonic() > deadline:
            raise StackError(
                f"Only {ranked} of {len(PARTITIONS)} partitions have a ranking after {RANKING_SECONDS:.0f} s."
                " See the worker's log for the reason."
            )
        await asyncio.sleep(POLL_SECONDS)
