"""Which workloads a placement has to look at again, with the weightiest reason, and which not yet."""

from __future__ import annotations

import pytest
import pytest_asyncio

from domain.acquisition import Failure
from store import needs, slots
from tests.activities.deciding import Placer, halls
from tests.estates import PARTITION, TENANT, Estate, contract

UNPLANNED = "its newest claim is not planned"
LOST = "it lost instances"
NOT_RUNNING = "it has slots without a running server"
FORBIDDEN = "it holds units in a pool that may hold none"
BEYOND = "it holds instances beyond its plan"
MISSING = "units of it are not placed"


async def found(estate: Estate, limit: int = 100, partition: str = PARTITION) -> list[tuple[str, str]]:
    async with estate.engine.connect() as connection:
        return await needs.workloads_in_need(connection, TENANT, partition, limit)


async def ago(estate: Estate, seconds: int, workload_id: str = "orders") -> None:
    await estate.rows(
        "UPDATE workloads SET updated_at = now() - make_interval(secs => :s) WHERE workload_id = :w",
        s=seconds,
        w=workload_id,
    )


@pytest_asyncio.fixture
async def placed(estate: Estate) -> Placer:
    """Six units run as planned, and their placement is over."""
    await estate.open(halls(), free=20)
    await estate.workload()
    placer = Placer(estate)
    await placer.place(6)
    await placer.run()
    await estate.rows("UPDATE workloads SET phase = 'placed'")
    return placer


async def test_what_runs_as_planned_needs_nothing(placed: Placer) -> None:
    await ago(placed.estate, 86_400)
    assert await found(placed.estate) == []


@pytest.mark.parametrize(("seconds", "needed"), [(5, False), (15, True)])
async def test_a_claim_that_nobody_plans(placed: Placer, seconds: int, needed: bool) -> None:
    await placed.estate.claim(9)
    await ago(placed.estate, seconds)
    assert await found(placed.estate) == ([("orders", UNPLANNED)] if needed else [])


@pytest.mark.parametrize(
    ("phase", "seconds", "needed"),
    [("placed", 0, True), ("shortfall", 0, True), ("planned", 200, False), ("planned", 400, True)],
)
@pytest.mark.parametrize("state", ["planned", "building", "releasing"])
async def test_slots_that_were_left_on_their_way(
    placed: Placer, state: str, phase: str, seconds: int, needed: bool
) -> None:
    """While a placement runs, its slots are on their way; after five silent minutes nobody is with them."""
    if state == "releasing":
        await placed.estate.rows("UPDATE instances SET state = 'releasing'")
    else:
        await placed.place(9)
        if state == "building":
            await placed.estate.rows(
                "UPDATE instances SET state = 'building', server_id = 'a' || slot_key WHERE state = 'planned'"
            )
    await placed.estate.rows("UPDATE workloads SET phase = :p", p=phase)
    await ago(placed.estate, seconds)
    assert await found(placed.estate) == ([("orders", NOT_RUNNING)] if needed else [])


@pytest.mark.parametrize(
    "closing",
    [
        "UPDATE pools SET state = 'draining' WHERE pool_id = :p",
        "UPDATE pool_capacity SET standing = 'excluded' WHERE pool_id = :p",
        "UPDATE pool_capacity SET hall_lost = true WHERE pool_id = :p",
    ],
)
async def test_units_in_a_pool_that_closed(placed: Placer, closing: str) -> None:
    held = sorted(await placed.held())
    empty = next(one.facts.pool_id for one in placed.estate.pools if one.facts.pool_id not in held)
    await placed.estate.rows(closing, p=empty)
    assert await found(placed.estate) == []
    await placed.estate.rows(closing, p=held[0])
    assert await found(placed.estate) == [("orders", FORBIDDEN)]


async def test_instances_that_were_not_given_back(placed: Placer) -> None:
    await placed.place(2)
    assert await found(placed.estate) == []
    await placed.estate.rows("UPDATE workloads SET phase = 'placed'")
    assert await found(placed.estate) == [("orders", BEYOND)]
    await placed.give_back()
    assert await found(placed.estate) == []


async def test_units_whose_servers_were_lost(placed: Placer) -> None:
    estate = placed.estate
    slot, pool = (await estate.rows("SELECT slot_key, pool_id FROM instances ORDER BY 1 LIMIT 1"))[0]
    async with estate.engine.begin() as connection:
        loss = Failure(slot, pool, "its server is gone")
        await slots.mark_lost(connection, TENANT, "orders", [loss], estate.clock())
    assert await found(estate) == [("orders", LOST)]
    await placed.decide()
    assert await found(estate) == []


@pytest.mark.parametrize(("seconds", "needed"), [(200, False), (400, True)])
async def test_units_that_found_no_place(placed: Placer, seconds: int, needed: bool) -> None:
    await placed.estate.rows("UPDATE workloads SET shortfall_units = 1, phase = 'shortfall'")
    await ago(placed.estate, seconds)
    assert await found(placed.estate) == ([("orders", MISSING)] if needed else [])


async def test_one_reason_each_in_the_order_of_the_ids(placed: Placer) -> None:
    """The weightiest reason counts, and a limit takes the first of them."""
    for name in ("zebra", "alpha"):
        await placed.estate.workload(name, contract())
        await placed.place(3, name)
        await placed.estate.rows("UPDATE workloads SET phase = 'shortfall', shortfall_units = 1")
        await placed.estate.claim(4, name)
        await ago(placed.estate, 400, name)
    await placed.estate.rows("UPDATE workloads SET shortfall_units = 0 WHERE workload_id = 'orders'")
    everyone = [("alpha", UNPLANNED), ("zebra", UNPLANNED)]
    assert await found(placed.estate) == everyone
    assert await found(placed.estate, limit=1) == everyone[:1]
    assert await found(placed.estate, partition="slurm-eu-west") == []
