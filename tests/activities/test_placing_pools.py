"""Pools that may not be used any more, or not yet: what stays, what moves, and what comes first."""

from __future__ import annotations

import pytest

from domain.policy import PlacementPolicy
from domain.pool_life import PoolAction
from store import pool_life
from store.pool_life import Stepped
from tests.activities.deciding import Placer, counts_are_right, halls
from tests.estates import TENANT, Estate, contract

STALENESS = PlacementPolicy().staleness_seconds
POOL = "eu-north-h1-p1"
AWAY = {
    "draining": "UPDATE pools SET state = 'draining' WHERE pool_id = :pool",
    "excluded": "UPDATE pool_capacity SET standing = 'excluded' WHERE pool_id = :pool",
    "hall lost": "UPDATE pool_capacity SET hall_lost = true WHERE pool_id = :pool",
}
BACK = {
    "draining": "UPDATE pools SET state = 'active' WHERE pool_id = :pool",
    "excluded": "UPDATE pool_capacity SET standing = 'eligible' WHERE pool_id = :pool",
    "hall lost": "UPDATE pool_capacity SET hall_lost = false WHERE pool_id = :pool",
}
CLOSED = {
    **AWAY,
    "degraded": "UPDATE pool_capacity SET degraded = true WHERE pool_id = :pool",
    "never reported": "UPDATE pool_capacity SET reported_at = NULL WHERE pool_id = :pool",
    "old report": "UPDATE pool_capacity SET reported_at = reported_at - interval '9 m' WHERE pool_id = :pool",
}


async def running(estate: Estate) -> Placer:
    """Nine units run in five of eight pools, two in each but the last."""
    await estate.open(halls(), free=20)
    await estate.workload("orders", contract("spread", pool="0.25", group="0.5"))
    placer = Placer(estate)
    await placer.place(9)
    await placer.run()
    assert (await placer.held())[POOL] == (2, 2)
    return placer


@pytest.mark.parametrize("why", AWAY)
async def test_units_move_away_and_the_old_ones_run_until_the_new_ones_do(estate: Estate, why: str) -> None:
    placer = await running(estate)
    await estate.rows(AWAY[why], pool=POOL)
    moved = await placer.decide()
    assert (moved.generation, moved.placed_units, moved.releases) == (2, 9, True)
    assert POOL not in await placer.held()
    assert await placer.slots() == {"active": 9, "planned": 2}
    await placer.run()
    assert await placer.slots() == {"active": 11}
    await placer.give_back()
    assert await placer.slots() == {"active": 9, "gone": 2}
    still = await estate.value(
        "SELECT count(*) FROM instances WHERE pool_id = :p AND state = 'active'", p=POOL
    )
    assert still == 0
    await counts_are_right(estate)


@pytest.mark.parametrize("why", AWAY)
async def test_a_pool_that_is_back_before_the_move_keeps_what_it_has(estate: Estate, why: str) -> None:
    """What was about to be given back is taken again and nothing new is launched there."""
    placer = await running(estate)
    await estate.rows(AWAY[why], pool=POOL)
    await placer.decide()
    await estate.rows(BACK[why], pool=POOL)
    await placer.place(16)
    assert (await placer.held())[POOL][1] >= 2
    in_pool = await estate.value("SELECT count(*) FROM instances WHERE pool_id = :p", p=POOL)
    assert in_pool == (await placer.held())[POOL][1]
    await counts_are_right(estate)


@pytest.mark.parametrize("why", CLOSED)
async def test_a_closed_pool_gets_no_new_units(estate: Estate, why: str) -> None:
    await estate.open(halls(), free=20)
    await estate.workload()
    await estate.rows(CLOSED[why], pool=POOL)
    placer = Placer(estate)
    decided = await placer.place(7)
    assert decided.placed_units == 7
    assert POOL not in await placer.held()


@pytest.mark.parametrize("why", sorted(set(CLOSED) - set(AWAY)))
async def test_what_runs_stays_where_only_the_report_is_missing(estate: Estate, why: str) -> None:
    placer = await running(estate)
    await estate.rows(CLOSED[why], pool=POOL)
    await placer.decide()
    assert (await placer.held())[POOL] == (2, 2)
    await placer.place(20)
    assert (await placer.held())[POOL] == (2, 2)
    assert await placer.slots() == {"active": 9, "planned": 11}


async def test_reports_that_are_all_old_close_every_pool(estate: Estate) -> None:
    await estate.open(halls(), free=20)
    await estate.workload()
    placer = Placer(estate)
    estate.clock.move(STALENESS - 2)
    assert (await placer.place(4)).placed_units == 4
    estate.clock.move(1)
    decided = await placer.place(8)
    assert (decided.placed_units, decided.shortfall_units, decided.shortfall_reason) == (
        4,
        4,
        "caps_unsatisfiable",
    )
    await estate.report(20)
    assert (await placer.decide()).placed_units == 8


async def test_a_pool_in_probation_takes_its_small_share(estate: Estate) -> None:
    await estate.open(halls(), free=100)
    await estate.rows("UPDATE pool_capacity SET standing = 'probation' WHERE pool_id = :p", p=POOL)
    await estate.workload()
    placer = Placer(estate)
    await placer.place(100)
    held = await placer.held()
    assert held[POOL] == (5, 5)
    assert max(units for units, _ in held.values()) == 15


async def test_a_pool_is_drained_through_its_own_life(estate: Estate) -> None:
    """The registry's step is what the next decision sees, and resuming opens the pool again."""
    placer = await running(estate)
    async with estate.engine.begin() as connection:
        done = await pool_life.take_step(
            connection, TENANT, POOL, PoolAction.DRAIN, 1, by="ada", at=estate.clock()
        )
    assert isinstance(done, Stepped)
    assert (done.before, done.pool.state, done.pool.version) == ("active", "draining", 2)
    await placer.decide()
    assert POOL not in await placer.held()
    async with estate.engine.begin() as connection:
        await pool_life.take_step(connection, TENANT, POOL, PoolAction.RESUME, 2, by="ada", at=estate.clock())
    await placer.give_back()
    await placer.place(30)
    assert POOL in await placer.held()
