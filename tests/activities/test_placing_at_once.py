"""Many decisions at once: nothing is booked twice, nobody waits for ever, every unit is accounted for."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine
from typing import Any
from uuid import uuid4

import pytest

from activities.placement_calls import Decided
from domain.acquisition import Failure
from domain.backoff import BackoffTerms
from store import backoffs, slots
from tests.activities.deciding import Placer, counts_are_right, halls
from tests.estates import TENANT, Estate, contract

MANY = 16
PATIENCE_SECONDS = 60
DEADLOCKS = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"


async def all_of(*running: Coroutine[Any, Any, Any]) -> list[Any]:
    """Every answer. A deadlock that Postgres does not see would end in a timeout."""
    return await asyncio.wait_for(asyncio.gather(*running), PATIENCE_SECONDS)


async def no_deadlock(estate: Estate) -> None:
    """Sessions report what they count when they end."""
    await estate.engine.dispose()
    assert await estate.value("SELECT pg_stat_force_next_flush()") is not None
    assert await estate.value(DEADLOCKS) == 0


async def test_scarce_capacity_is_divided_and_never_exceeded(estate: Estate) -> None:
    """Sixteen workloads want twelve units each of the sixty that there are."""
    await estate.open(halls(4, per_hall=3), free=5)
    names = [f"workload-{number:02d}" for number in range(MANY)]
    for name in names:
        await estate.workload(name, contract("free", pool="1", group="1"))
        await estate.claim(12, name)
    placers = [Placer(estate), Placer(estate), Placer(estate)]
    answers: list[Decided] = await all_of(
        *(placers[number % 3].decide(name) for number, name in enumerate(names))
    )
    assert sum(one.placed_units for one in answers) == 60
    for one in answers:
        assert one.placed_units + one.shortfall_units == one.units == 12
        assert one.shortfall_reason == ("capacity" if one.shortfall_units else None)
    rows = await estate.rows("SELECT sum(shortfall_units), count(shortfall_reason) FROM workloads")
    assert rows == [(MANY * 12 - 60, sum(one.shortfall_units > 0 for one in answers))]
    assert await estate.value("SELECT count(*) FROM instances WHERE state = 'planned'") == 60
    await counts_are_right(estate)
    await no_deadlock(estate)


async def test_one_decision_asked_for_at_once_is_one_generation(estate: Estate) -> None:
    await estate.open(halls())
    await estate.workload()
    await estate.claim(8)
    decision_id = uuid4()
    placers = [Placer(estate) for _ in range(4)]
    answers = await all_of(*(placers[number % 4].decide("orders", decision_id) for number in range(MANY)))
    assert answers == [answers[0]] * MANY
    assert await placers[0].generations() == 1
    assert await placers[0].slots() == {"planned": 8}
    assert await estate.value("SELECT count(*) FROM outbox") == 1


async def test_different_decisions_for_one_claim_change_something_once(estate: Estate) -> None:
    await estate.open(halls())
    await estate.workload()
    await estate.claim(8)
    placers = [Placer(estate) for _ in range(4)]
    answers = await all_of(*(placers[number % 4].decide() for number in range(MANY)))
    assert len({one.decision_id for one in answers}) == 1
    assert await placers[0].generations() == 1
    assert await placers[0].slots() == {"planned": 8}


@pytest.mark.parametrize("seed", range(3))
async def test_decisions_failures_and_releases_do_not_lock_each_other_out(estate: Estate, seed: int) -> None:
    """Four workloads share twelve pools; claims change while slots fail, run and are given back."""
    rng = random.Random(seed)
    await estate.open(halls(4, per_hall=3), free=8)
    placer = Placer(estate)
    names = [f"workload-{number}" for number in range(4)]
    for name in names:
        await estate.workload(name, contract("free", pool="0.5", group="1"))
        await placer.place(10, name)
    for _ in range(4):
        acts = [act(placer, name, rng) for name in names for act in (_claim, _decide, _fail, _give_back)]
        rng.shuffle(acts)
        await all_of(*acts)
        await counts_are_right(estate)
        await estate.report(8)
    await no_deadlock(estate)


async def _claim(placer: Placer, name: str, rng: random.Random) -> None:
    await placer.estate.claim(rng.randint(0, 20), name)


async def _decide(placer: Placer, name: str, rng: random.Random) -> None:
    await asyncio.sleep(rng.random() / 100)
    await placer.decide(name)


async def _fail(placer: Placer, name: str, rng: random.Random) -> None:
    await asyncio.sleep(rng.random() / 50)
    async with placer.estate.engine.begin() as connection:
        live = await slots.live_slots(connection, TENANT, name, "eu-north")
        chosen = rng.sample(list(live), min(3, len(live)))
        failures = [Failure(row["slot_key"], row["pool_id"], "no valid host") for row in chosen]
        await slots.mark_failed(connection, TENANT, name, failures)
        for pool_id in sorted({one.pool_id for one in failures}):
            await backoffs.back_off(
                connection,
                tenant_id=TENANT,
                workload_id=name,
                pool_id=pool_id,
                now=placer.estate.clock(),
                terms=BackoffTerms(backoff_seconds=1),
                problem="no valid host",
            )


async def _give_back(placer: Placer, name: str, rng: random.Random) -> None:
    await asyncio.sleep(rng.random() / 50)
    await placer.give_back(name)
