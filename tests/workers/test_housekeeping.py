"""What is too old is forgotten, of every tenant, by the role that sees them all."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
import sqlalchemy as sa

from store.engine import Engine, of_tenant
from store.idempotency import KEPT_FOR
from tests.activities.model_placing import ServingEstate
from tests.domain.drains import AT as DRAINED_AT
from tests.domain.drains import honest
from tests.domain.serving.pools import wanted
from tests.estates import Clock
from tests.store.histories import keep, own
from workers import housekeeping
from workers.housekeeping import keep_tidy

AT = datetime(2030, 1, 1, tzinfo=UTC)
ADD = """
    INSERT INTO idempotency_keys (tenant_id, key, route, body_sha256, status, answer, created_at)
    VALUES (:tenant, :key, '/x', 'f', 200, '{}', :at)
"""

NEXT_MONTH = """
    SELECT to_regclass('history.lifecycle_events_' || to_char(now() + interval '1 month', 'YYYYMM'))
"""


async def keys(engine: Engine) -> set[tuple[str, str]]:
    async with engine.connect() as connection:
        found = await connection.execute(sa.text("SELECT tenant_id, key FROM idempotency_keys"))
        return {tuple(row) for row in found}


async def remembered(engine: Engine, tenant_id: str, key: str, at: datetime) -> None:
    async with of_tenant(engine, tenant_id).begin() as connection:
        await connection.execute(sa.text(ADD), {"tenant": tenant_id, "key": key, "at": at})


async def test_old_answers_of_every_tenant_are_forgotten(
    engine: Engine, tenant_engine: Engine, service_engine: Engine
) -> None:
    for tenant_id in ("platform", "acme"):
        await remembered(tenant_engine, tenant_id, "old", AT - KEPT_FOR)
        await remembered(tenant_engine, tenant_id, "new", AT - KEPT_FOR + timedelta(seconds=1))
    stop = asyncio.Event()
    tidying = asyncio.create_task(keep_tidy(service_engine, stop, now=lambda: AT))
    asyncio.get_running_loop().call_later(0.5, stop.set)
    await tidying
    assert await keys(engine) == {("platform", "new"), ("acme", "new")}


async def test_placements_that_ended_are_forgotten_after_their_time(
    engine: Engine, tenant_engine: Engine, service_engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(housekeeping, "PLACEMENTS_AT_ONCE", 2)
    serving = ServingEstate(engine, tenant_engine, Clock())
    await serving.pool()
    names = []
    for number in range(7):
        placed = await serving.place(wanted(model=f"model-{number % 2}"))
        names.append(placed.record.placement_id)
    for name in names[:5]:
        await serving.hand.release("acme", name)
    serving.clock.move(3600)
    await serving.place(wanted(regions=("us-east",)))
    stop = asyncio.Event()
    at = serving.later(90 * 24 * 3600 - 1800)
    tidying = asyncio.create_task(keep_tidy(service_engine, stop, now=lambda: at))
    asyncio.get_running_loop().call_later(0.5, stop.set)
    await tidying
    left = await serving.run("SELECT state FROM model_placements ORDER BY state")
    assert left == [("held",), ("held",), ("none",)]
    await serving.memory_is_right()


async def test_a_database_that_is_away_is_asked_again(service_engine: Engine) -> None:
    """The chore outlives what it cannot reach: only `stop` ends it."""
    stop = asyncio.Event()

    def broken() -> datetime:
        asyncio.get_running_loop().call_later(0.05, stop.set)
        raise OSError("gone")

    async with asyncio.timeout(30):
        await keep_tidy(service_engine, stop, now=broken)


async def test_the_history_of_nodes_is_tended(engine: Engine, service_engine: Engine) -> None:
    """The months to come are there, and drains of more than 400 days ago are forgotten."""
    await own(engine, "n1")
    await keep(service_engine, "n1", honest())
    for days, left in ((400, 1), (401, 0)):
        stop = asyncio.Event()
        tidying = asyncio.create_task(
            keep_tidy(service_engine, stop, now=Clock(DRAINED_AT + timedelta(days=days)))
        )
        asyncio.get_running_loop().call_later(0.5, stop.set)
        await tidying
        async with engine.connect() as connection:
            found = await connection.execute(sa.text("SELECT count(*) FROM node_drains"))
            assert found.scalar() == left
            assert (await connection.execute(sa.text(NEXT_MONTH))).scalar() is not None
