"""Decisions while others change what they depend on, and decisions that cannot be made."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from uuid import uuid4

import pytest
from temporalio.exceptions import ApplicationError

from activities import placing
from activities.placement_calls import CAPACITY_CONTENDED, NO_RANKING, NOTHING_TO_PLACE
from domain.acquisition import Failure
from domain.backoff import BackoffTerms
from domain.placement.liveness import PoolPulse
from store import backoffs, decisions, outbox, slots, workloads
from store.engine import Connection
from tests.activities.deciding import Placer, counts_are_right, halls, new_workload
from tests.estates import PARTITION, TENANT, Estate, contract, demand


@pytest.mark.parametrize("change", ["claim", "contract"])
async def test_what_is_committed_while_it_waits_is_decided_on(opened: Placer, change: str) -> None:
    """The decision waits for a transaction that makes another claim or contract the workload's own."""
    name = await new_workload(opened, f"waits-for-{change}")
    await opened.place(6, name)
    async with opened.estate.engine.begin() as connection:
        if change == "claim":
            await workloads.add_claim(
                connection, tenant_id=TENANT, workload_id=name, demand=demand(9), source="t", intake={}
            )
        else:
            await workloads.put_contract(connection, TENANT, contract("floorless-new", pool="0.5", group="1"))
            await workloads.put_workload(
                connection,
                tenant_id=TENANT,
                workload_id=name,
                partition_id=PARTITION,
                contract_id="floorless-new",
                owner_team="orders",
            )
        deciding = asyncio.create_task(opened.decide(name))
        await waits_for_a_lock(opened.estate)
    decided = await deciding
    assert decided.units == (9 if change == "claim" else 6)


LOCK_WAITS = """
    SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()
"""


async def waits_for_a_lock(estate: Estate) -> None:
    for _ in range(500):
        if await estate.value(LOCK_WAITS):
            return
        await asyncio.sleep(0.01)
    raise AssertionError("nobody waits")


async def test_failed_slots_lower_what_is_to_be_held_and_their_pools_rest(opened: Placer) -> None:
    name = await new_workload(opened, "failing")
    await opened.place(6, name)
    pool, (units, instances) = next(iter((await opened.held(name)).items()))
    assert (units, instances) == (1, 1)
    await fail_in(opened, name, pool, 300)
    assert pool not in await opened.held(name)
    moved = await opened.decide(name)
    assert (moved.generation, moved.placed_units, moved.shortfall_units) == (2, 6, 0)
    assert pool not in await opened.held(name)
    await opened.place(20, name)
    assert pool not in await opened.held(name)
    opened.estate.clock.move(300)
    await opened.estate.report(1000)
    await opened.place(24, name)
    assert pool in await opened.held(name), "the time is over"


async def fail_in(placer: Placer, name: str, pool: str, backoff_seconds: float) -> None:
    """Every planned slot of the workload in one pool fails there."""
    rows = await placer.estate.rows(
        "SELECT slot_key FROM instances WHERE workload_id = :w AND pool_id = :p AND state = 'planned'",
        w=name,
        p=pool,
    )
    async with placer.estate.engine.begin() as connection:
        failures = [Failure(row[0], pool, "no valid host") for row in rows]
        await slots.mark_failed(connection, TENANT, name, failures)
        await backoffs.back_off(
            connection,
            tenant_id=TENANT,
            workload_id=name,
            pool_id=pool,
            now=placer.estate.clock(),
            terms=BackoffTerms(backoff_seconds=backoff_seconds),
            problem="no valid host",
        )


async def test_a_failed_slot_beyond_the_plan_costs_it_nothing(opened: Placer) -> None:
    """Ten slots are on their way when the claim shrinks; those that fail then were too many already."""
    name = "shrinks-while-building"
    await opened.estate.workload(name, contract("one-pool", pool="1", group="1"))
    await opened.place(10, name)
    await opened.place(4, name)
    held = await opened.held(name)
    pool = next(iter(held))
    rows = await opened.estate.rows(
        "SELECT slot_key FROM instances WHERE workload_id = :w AND pool_id = :p ORDER BY 1", w=name, p=pool
    )
    spare = len(rows) - held[pool][1]
    assert spare > 0
    for number, (key,) in enumerate(rows):
        async with opened.estate.engine.begin() as connection:
            await slots.mark_failed(connection, TENANT, name, [Failure(key, pool, "no valid host")])
        left = max(0, min(held[pool][1], len(rows) - number - 1))
        assert (await opened.held(name)).get(pool, (0, 0)) == (left, left)
    await counts_are_right(opened.estate)


async def test_capacity_that_others_took_is_planned_around(estate: Estate) -> None:
    """Two processes read the pools' state before either planned: the later one sees it fresh."""
    await estate.open(halls(4, per_hall=1), free=5)
    one = Placer(estate, pulse_age=timedelta(hours=1))
    two = Placer(estate, pulse_age=timedelta(hours=1))
    free = contract("free", pool="1", group="1")
    for name in ("first", "second", "third"):
        await estate.workload(name, free)
    await two.place(1, "third")
    await one.place(14, "first")
    decided = await two.place(8, "second")
    assert (decided.placed_units, decided.shortfall_units, decided.shortfall_reason) == (5, 3, "capacity")
    assert await two.generations("second") == 1
    await counts_are_right(estate)
    assert await estate.value("SELECT sum(reserved_instances) FROM pool_capacity") == 20


async def test_capacity_that_keeps_changing_is_told_after_six_decisions(
    opened: Placer, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = await new_workload(opened, "contended")
    await opened.estate.claim(6, name)
    reads = []
    real = decisions.read_pulses

    async def too_much(connection: Connection, tenant_id: str) -> dict[str, PoolPulse]:
        reads.append(1)
        await connection.exec_driver_sql("UPDATE pool_capacity SET capacity_instances = reserved_instances")
        pulses = await real(connection, tenant_id)
        return {pool: pulse._replace(free=100) for pool, pulse in pulses.items()}

    monkeypatch.setattr(decisions, "read_pulses", too_much)
    with pytest.raises(ApplicationError, match="6 decisions in a row") as refused:
        await opened.decide(name)
    assert (refused.value.type, refused.value.non_retryable) == (CAPACITY_CONTENDED, False)
    assert len(reads) == placing.ATTEMPTS_WHEN_CONTENDED
    assert await opened.generations(name) == 0
    monkeypatch.undo()
    opened.estate.clock.move(5)
    assert (await opened.decide(name)).placed_units == 6


async def test_a_decision_that_is_not_committed_leaves_nothing(
    opened: Placer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither in the store nor in memory: the shortlist that was to be stored is stored next time."""
    name = await new_workload(opened, "not-committed")
    await opened.estate.rank()
    await opened.estate.claim(6, name)

    async def fails(*_: object, **__: object) -> None:
        raise ConnectionError("the server went away")

    monkeypatch.setattr(outbox, "add_event", fails)
    decision_id = uuid4()
    with pytest.raises(ConnectionError):
        await opened.decide(name, decision_id)
    monkeypatch.undo()
    assert (await opened.generations(name), await opened.slots(name)) == (0, {})
    decided = await opened.decide(name, decision_id)
    assert (decided.decision_id, decided.generation, decided.placed_units) == (decision_id, 1, 6)


async def test_what_cannot_be_decided_says_why(estate: Estate) -> None:
    placer = Placer(estate)
    with pytest.raises(ApplicationError, match="'nobody' has no claim") as unknown:
        await placer.decide("nobody")
    assert (unknown.value.type, unknown.value.non_retryable) == (NOTHING_TO_PLACE, True)
    await estate.open(halls())
    await estate.workload()
    with pytest.raises(ApplicationError, match="has no claim"):
        await placer.decide()
    await estate.claim(3)
    await estate.rows("DELETE FROM rankings")
    with pytest.raises(ApplicationError, match="has no ranking yet") as unranked:
        await placer.decide()
    assert (unranked.value.type, unranked.value.non_retryable) == (NO_RANKING, False)
    await estate.rank()
    assert (await placer.decide()).placed_units == 3


async def test_one_decision_plans_thousands_of_instances(estate: Estate) -> None:
    await estate.open(halls(), free=2000)
    await estate.workload()
    placer = Placer(estate)
    decided = await placer.place(9000)
    assert decided.placed_units == 9000
    assert await placer.slots() == {"planned": 9000}
    await counts_are_right(estate)
    batches = "SELECT max(n) FROM (SELECT count(*) n FROM instances GROUP BY batch_key) b"
    assert await estate.value(batches) == 50


async def test_a_database_that_restarted_is_found_again(opened: Placer) -> None:
    """Sessions that died while nobody used them are replaced before the next decision uses them."""
    name = await new_workload(opened, "sessions-died")
    await opened.estate.claim(6, name)
    async with opened.estate.engine.connect() as connection:
        await connection.exec_driver_sql(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
    assert (await opened.decide(name)).placed_units == 6
