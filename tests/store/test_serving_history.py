"""What happened on one pool: its own loads, events and days, newest first, and nobody else's."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any
from uuid import uuid4

import pytest_asyncio
import sqlalchemy as sa

from store import outbox, serving_history
from store.engine import Engine
from store.serving_pools import PoolName
from store.tables import LoadCause, LoadOutcome
from tests.activities.model_placing import ACME, PLATFORM, ServingEstate
from tests.estates import START, Clock
from wire.payloads import ComputePoolStateChanged, ModelWarmed, PlacementDecided, PlacementFinished

GPU = PoolName(PLATFORM, "gpu-1")


@pytest_asyncio.fixture
async def estate(engine: Engine) -> ServingEstate:
    """The pool gpu-1 of two tenants, and another pool."""
    own = ServingEstate(engine, engine, Clock())
    await own.pool("gpu-1", PLATFORM)
    await own.pool("gpu-1", ACME)
    await own.pool("gpu-2", PLATFORM)
    return own


async def load(estate: ServingEstate, name: PoolName, at: datetime, **other: Any) -> None:
    values = {"outcome": None, "finished_at": None, "seconds": None} | other
    await estate.run(
        "INSERT INTO model_loads (tenant_id, pool_id, load_id, model, vram_gb, cause, started_at, outcome,"
        " finished_at, seconds) VALUES (:tenant_id, :pool_id, :id, 'qwen3:8b', 8, 'warm_keep', :at, :outcome,"
        " :finished_at, :seconds)",
        **name._asdict() | {"id": uuid4(), "at": at} | values,
    )


async def test_the_newest_loads_of_the_pool_come_first(estate: ServingEstate) -> None:
    for minutes in (3, 1, 2):
        await load(estate, GPU, START - timedelta(minutes=minutes))
    await load(estate, GPU, START, outcome="loaded", finished_at=START, seconds=Decimal("4.5"))
    await load(estate, PoolName(ACME, "gpu-1"), START)
    await load(estate, PoolName(PLATFORM, "gpu-2"), START)
    async with estate.owner.connect() as connection:
        found = await serving_history.loads_of(connection, GPU, 3)
    assert [one.started_at for one in found] == [START - timedelta(minutes=minutes) for minutes in (0, 1, 2)]
    assert (found[0].outcome, found[0].seconds) == (LoadOutcome.LOADED, Decimal("4.500"))
    assert (found[1].outcome, found[1].cause) == (None, LoadCause.WARM_KEEP)


async def test_only_what_is_told_of_the_pool_is_its_event(estate: ServingEstate) -> None:
    def warmed(name: PoolName) -> ModelWarmed:
        return ModelWarmed(**name._asdict(), model="qwen3:8b", vram_gb=8)

    stepped = ComputePoolStateChanged(**GPU._asdict(), from_state="active", to_state="draining", version=2)
    decided = PlacementDecided(
        tenant_id=PLATFORM, placement_id=uuid4(), deployment_id="gpu-1", outcome="no_capacity"
    )
    namesake = PlacementFinished(
        tenant_id=PLATFORM,
        workload_id="gpu-1",
        phase="placed",
        units=1,
        placed_units=1,
        active_instances=1,
        shortfall_units=0,
        shortfall_reason=None,
    )
    others = (PoolName(ACME, "gpu-1"), PoolName(PLATFORM, "gpu-2"))
    async with estate.owner.begin() as connection:
        for number, one in enumerate((warmed(GPU), decided, namesake, *map(warmed, others), stepped)):
            await outbox.add_event(connection, one, once=str(number))
    async with estate.owner.connect() as connection:
        found = await serving_history.events_of(connection, GPU, 10)
        newest = await serving_history.events_of(connection, GPU, 1)
    assert [one.topic for one in found] == [ComputePoolStateChanged.topic, ModelWarmed.topic]
    assert found[0].payload["toState"] == "draining"
    assert newest == found[:1]


async def test_a_day_is_one_in_utc_wherever_the_database_is(estate: ServingEstate) -> None:
    midnight = datetime(2030, 1, 1, tzinfo=UTC)
    for hours, seconds in ((-25, 1), (-24, 600), (-1, 1200), (0, 3600)):
        await estate.run(
            "INSERT INTO usage_records (tenant_id, pool_id, hour, seconds, price_per_hour_usd, amount_usd)"
            " VALUES (:tenant_id, :pool_id, :hour, :seconds, 2, :amount)",
            **GPU._asdict(),
            hour=(midnight + timedelta(hours=hours)).astimezone(timezone(timedelta(hours=5, minutes=30))),
            seconds=seconds,
            amount=Decimal(seconds) / 1800,
        )
    async with estate.owner.connect() as connection:
        await connection.execute(sa.text("SET LOCAL timezone TO 'Pacific/Auckland'"))
        found = await serving_history.usage_of(connection, GPU, midnight - timedelta(days=1))
    assert [(one.day.isoformat(), one.seconds, one.amount_usd) for one in found] == [
        ("2030-01-01", 3600, Decimal("2.000000")),
        ("2029-12-31", 1800, Decimal("1.000000")),
    ]
