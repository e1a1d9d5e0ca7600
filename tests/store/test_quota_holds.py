"""Quota holds: twice as long for each refusal in a row, once for refusals of one moment."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from decimal import Decimal

import pytest_asyncio

from store import quota_holds
from store.budget import BudgetStore
from store.engine import Engine
from tests.estates import REGION, START, TENANT

NOT_ENOUGH = "Quota exceeded for cores: Requested 8, but already used 396 of 400 cores"


class Holder:
    """Holds and looks, each in a transaction of its own."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    async def hold(self, at: datetime, region: str = REGION, **bounds: float) -> datetime | None:
        async with self.engine.begin() as connection:
            return await quota_holds.hold(connection, TENANT, region, NOT_ENOUGH, at, **bounds)

    async def clear(self, until: datetime | None = None) -> bool:
        async with self.engine.begin() as connection:
            return await quota_holds.clear(connection, TENANT, REGION, until=until)

    async def held_until(self, region: str = REGION) -> datetime | None:
        async with self.engine.connect() as connection:
            return await quota_holds.held_until(connection, TENANT, region)


@pytest_asyncio.fixture
async def holder(engine: Engine, dsn: str) -> AsyncIterator[Holder]:
    budgets = BudgetStore(dsn, tenant_id=TENANT)
    for region in (REGION, "eu-west"):
        await asyncio.to_thread(budgets.set_budget, region, burst=5, refill_per_second=Decimal(1))
    yield Holder(engine)
    budgets.close()


async def test_each_refusal_in_a_row_holds_twice_as_long_up_to_a_bound(holder: Holder) -> None:
    at, held = START, []
    for _ in range(8):
        until = await holder.hold(at)
        assert until is not None
        held.append((until - at).total_seconds())
        assert await holder.held_until() == until
        at = until
    assert held == [60, 120, 240, 480, 960, 1920, 3600, 3600]


async def test_refusals_of_one_moment_count_once(holder: Holder) -> None:
    first = await holder.hold(START)
    ends = await asyncio.gather(*(holder.hold(START + timedelta(seconds=one)) for one in range(6)))
    assert set(ends) == {first}
    assert first is not None
    assert await holder.hold(first) == first + timedelta(seconds=120)


async def test_regions_are_held_alone(holder: Holder) -> None:
    await holder.hold(START)
    assert await holder.held_until("eu-west") is None


async def test_what_is_cleared_starts_anew(holder: Holder) -> None:
    assert await holder.clear() is False
    await holder.hold(START)
    await holder.hold(START + timedelta(hours=1))
    assert await holder.clear() is True
    assert await holder.held_until() is None
    assert await holder.hold(START) == START + timedelta(seconds=60)


async def test_a_hold_that_was_not_seen_is_not_cleared(holder: Holder) -> None:
    seen = await holder.hold(START)
    newer = await holder.hold(START + timedelta(hours=1))
    assert await holder.clear(until=seen) is False
    assert await holder.held_until() == newer
    assert await holder.clear(until=newer) is True


async def test_bounds_are_those_of_the_caller(holder: Holder) -> None:
    first = await holder.hold(START, base_seconds=5, most_seconds=8)
    assert first == START + timedelta(seconds=5)
    assert await holder.hold(first, base_seconds=5, most_seconds=8) == first + timedelta(seconds=8)


async def test_a_region_without_a_budget_remembers_nothing(holder: Holder) -> None:
    assert await holder.hold(START, "eu-moon") is None
    assert await holder.held_until("eu-moon") is None
