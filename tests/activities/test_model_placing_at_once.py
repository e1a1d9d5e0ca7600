"""Many callers at once: memory is never promised twice, and everybody gets an answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from typing import Any
from uuid import uuid4

import pytest
import pytest_asyncio
import sqlalchemy as sa

from activities.model_placing import Placed
from domain.pool import SecurityBoundary
from domain.reasons import Reason
from domain.serving.placing import PlacementOutcome
from domain.serving.record import candidates
from store import model_placements
from store.engine import Engine
from tests.activities.model_placing import ACME, PLATFORM, ServingEstate
from tests.database import opened
from tests.domain.serving.pools import wanted
from tests.estates import Clock

CALLERS = 16
PATIENCE_SECONDS = 60
DEADLOCKS = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"


@pytest_asyncio.fixture
async def crowd(engine: Engine, dsn: str, clock: Clock) -> AsyncIterator[ServingEstate]:
    """A hand with a connection for each caller, so that none waits for another before it decides."""
    async with opened(dsn, pool_size=CALLERS, role="sco_tenant") as own:
        yield ServingEstate(engine, own, clock)


async def all_of(running: list[Coroutine[Any, Any, Any]]) -> list[Any]:
    """Every answer. A lock that is never let go would end in a timeout."""
    return await asyncio.wait_for(asyncio.gather(*running), PATIENCE_SECONDS)


async def no_deadlock(serving: ServingEstate) -> None:
    """Sessions report what they count when they end."""
    await serving.owner.dispose()
    await serving.run("SELECT pg_stat_force_next_flush()")
    assert await serving.run(DEADLOCKS) == [(0,)]


async def test_scarce_memory_is_divided_and_never_promised_twice(crowd: ServingEstate) -> None:
    """Sixteen models of 70 GB want a place; three pools of 160 GB have room for two each."""
    for number in range(3):
        await crowd.pool(f"gpu-{number}")
    answers: list[Placed] = await all_of(
        [crowd.place(wanted(model=f"model-{number}")) for number in range(CALLERS)]
    )
    placed = [one.record for one in answers if one.record.held]
    assert len(placed) == 6
    assert sorted(one.pool_id or "" for one in placed) == [
        "gpu-0",
        "gpu-0",
        "gpu-1",
        "gpu-1",
        "gpu-2",
        "gpu-2",
    ]
    for one in answers:
        if not one.record.held:
            assert one.record.outcome is PlacementOutcome.NO_CAPACITY
            told = candidates(one.record.candidates, ACME)
            assert {candidate.reason for candidate in told} == {Reason.CAPACITY}
    await crowd.memory_is_right()
    await no_deadlock(crowd)


async def test_everybody_finds_the_one_place_that_is_left(crowd: ServingEstate) -> None:
    """As many pools as callers, each with room for one: all lose races, and none is sent away."""
    for number in range(CALLERS):
        await crowd.pool(f"gpu-{number:02d}", vram_gb=80)
    answers: list[Placed] = await all_of(
        [crowd.place(wanted(model=f"model-{number}")) for number in range(CALLERS)]
    )
    assert len({one.record.pool_id for one in answers}) == CALLERS
    await crowd.memory_is_right()


async def test_tenants_share_what_is_shared_and_no_more(crowd: ServingEstate) -> None:
    await crowd.pool("big", PLATFORM, vram_gb=640, security_boundary=SecurityBoundary.SHARED)
    answers: list[Placed] = await all_of(
        [
            crowd.place(
                wanted(model=f"model-{number}", boundary=SecurityBoundary.SHARED),
                tenant=f"tenant-{number % 4}",
            )
            for number in range(CALLERS)
        ]
    )
    assert sum(one.record.held for one in answers) == 640 // 70
    await crowd.memory_is_right()
    await no_deadlock(crowd)


async def test_one_request_sent_many_times_at_once_is_one_placement(crowd: ServingEstate) -> None:
    await crowd.pool()
    name = uuid4()
    answers: list[Placed] = await all_of([crowd.place(placement_id=name) for _ in range(CALLERS)])
    assert all(one.record == answers[0].record for one in answers)
    assert sum(not one.again for one in answers) == 1
    assert await crowd.run("SELECT count(*) FROM model_placements") == [(1,)]
    assert await crowd.run("SELECT count(*) FROM outbox") == [(1,)]
    await crowd.hand.settle()
    assert len(crowd.starts.started) == 1


async def test_places_releases_and_expiries_at_once_leave_right_counts(crowd: ServingEstate) -> None:
    """Two models come and go on two pools, while what is over is swept."""
    for number in range(2):
        await crowd.pool(f"gpu-{number}")

    async def comes_and_goes(number: int) -> None:
        for turn in range(6):
            placed = await crowd.place(wanted(model=f"model-{(number + turn) % 3}"))
            if placed.record.held and turn % 3:
                await crowd.hand.release(ACME, placed.record.placement_id)

    async def sweeps() -> None:
        for _ in range(20):
            async with crowd.owner.begin() as connection:
                await model_placements.expire(connection, crowd.later(3600), 3)

    await all_of([*(comes_and_goes(number) for number in range(8)), sweeps(), sweeps()])
    await crowd.memory_is_right()
    await no_deadlock(crowd)


async def test_a_pool_that_starts_to_drain_meanwhile_takes_nothing(crowd: ServingEstate) -> None:
    """A step in the life of the best pool is under way while a placement is decided."""
    await crowd.pool("best", price_per_hour_usd=1)
    await crowd.pool("next")
    async with crowd.owner.begin() as drain:
        await drain.execute(sa.text("UPDATE pools SET state = 'draining' WHERE pool_id = 'best'"))
        deciding = asyncio.create_task(crowd.place())
        await _waits_for_a_lock(crowd)
    placed = await asyncio.wait_for(deciding, PATIENCE_SECONDS)
    assert placed.record.pool_id == "next"
    told = {one.pool_id: one.reason for one in candidates(placed.record.candidates, ACME)}
    assert told == {"next": None, "best": Reason.STATE}
    await crowd.memory_is_right()


async def test_a_pool_that_nobody_can_win_counts_as_full(
    crowd: ServingEstate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is read says that there is room, and the constraint says that there is none, again and again."""
    await crowd.pool("gpu-1", vram_gb=80)
    await crowd.run("UPDATE pool_serving SET vram_gb = 60")
    of_pool = model_placements.CANDIDATES.replace("s.vram_gb,", "p.vram_gb,")
    monkeypatch.setattr(model_placements, "CANDIDATES", of_pool)
    placed = await asyncio.wait_for(crowd.place(), PATIENCE_SECONDS)
    assert placed.record.outcome is PlacementOutcome.NO_CAPACITY
    told = {one.pool_id: one.reason for one in candidates(placed.record.candidates, ACME)}
    assert told == {"gpu-1": Reason.CAPACITY}


async def _waits_for_a_lock(serving: ServingEstate) -> None:
    waiting = (
        "SELECT count(*) FROM pg_stat_activity"
        " WHERE wait_event_type = 'Lock' AND query LIKE '%INSERT INTO model_placements%'"
    )
    for _ in range(int(PATIENCE_SECONDS / 0.05)):
        if (await serving.run(waiting))[0][0]:
            return
        await asyncio.sleep(0.05)
    raise AssertionError("the placement never came to wait for the drain")
