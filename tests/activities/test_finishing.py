"""Closing a placement: what is recorded says how far it really came."""

from __future__ import annotations

from uuid import uuid4

import pytest

from activities.finishing import FinishingActivities
from activities.placement_calls import Finished, FinishRequest, WorkloadRequest
from domain.acquisition import Failure
from domain.reasons import ShortfallReason
from store import slots, workloads
from tests.activities.deciding import Placer, counts_are_right, halls, new_workload
from tests.estates import TENANT, Estate, contract

EVENTS = "SELECT count(*) FROM outbox WHERE key = :w AND topic LIKE '%finished'"


async def finish(opened: Placer, workload: str, request: FinishRequest | None = None) -> Finished:
    asked = request or FinishRequest(tenant_id=TENANT, workload_id=workload, finish_id=uuid4())
    return await FinishingActivities(opened.estate.engine).finish_placement(asked)


async def phase_of(opened: Placer, workload: str) -> str:
    query = "SELECT phase FROM workloads WHERE workload_id = :w"
    return str(await opened.estate.value(query, w=workload))


async def test_what_was_planned_and_does_not_run_is_not_called_placed(opened: Placer) -> None:
    workload = await new_workload(opened, "not-reached")
    await opened.place(6, workload)
    finished = await finish(opened, workload)
    assert (finished.phase, finished.placed_units, finished.active_instances) == ("planned", 6, 0)
    assert await phase_of(opened, workload) == "planned"


async def test_what_runs_is_placed(opened: Placer) -> None:
    workload = await new_workload(opened, "all-runs")
    await opened.place(6, workload)
    await opened.run()
    finished = await finish(opened, workload)
    assert (finished.phase, finished.active_instances, finished.shortfall_units) == ("placed", 6, 0)
    assert not finished.newer_claim


async def test_launches_that_failed_are_a_shortfall(opened: Placer) -> None:
    workload = await new_workload(opened, "some-failed")
    await opened.place(6, workload)
    query = "SELECT slot_key, pool_id FROM instances WHERE workload_id = :w ORDER BY 1 LIMIT 2"
    failures = [Failure(key, pool, "no host") for key, pool in await opened.estate.rows(query, w=workload)]
    async with opened.estate.engine.begin() as connection:
        await slots.mark_failed(connection, TENANT, workload, failures)
    await opened.run()
    finished = await finish(opened, workload)
    assert (finished.phase, finished.placed_units, finished.shortfall_units) == ("shortfall", 4, 2)
    assert finished.shortfall_reason == ShortfallReason.LAUNCHES_FAILED


async def test_a_claim_that_came_meanwhile_is_told_of(opened: Placer) -> None:
    workload = await new_workload(opened, "overtaken")
    await opened.place(4, workload)
    await opened.estate.claim(5, workload)
    assert (await finish(opened, workload)).newer_claim


async def test_asked_again_it_is_the_same_event(opened: Placer) -> None:
    workload = await new_workload(opened, "asked-again")
    await opened.place(4, workload)
    request = FinishRequest(tenant_id=TENANT, workload_id=workload, finish_id=uuid4())
    first = await finish(opened, workload, request)
    assert await finish(opened, workload, request) == first
    assert await opened.estate.value(EVENTS, w=workload) == 1


async def test_a_planned_shortfall_keeps_its_reason(opened: Placer) -> None:
    await opened.estate.workload("too-tight", contract("tight", pool="0.05", group="0.05"))
    await opened.place(100, "too-tight")
    await opened.run()
    finished = await finish(opened, "too-tight")
    assert (finished.phase, finished.placed_units, finished.shortfall_units) == ("shortfall", 40, 60)
    assert finished.shortfall_reason == ShortfallReason.CAPS_UNSATISFIABLE


async def test_the_event_tells_how_far_it_came(opened: Placer) -> None:
    workload = await new_workload(opened, "told")
    await opened.place(6, workload)
    await opened.run()
    await finish(opened, workload)
    query = "SELECT payload FROM outbox WHERE key = :w AND topic LIKE '%finished'"
    assert await opened.estate.value(query, w=workload) == {
        "tenantId": TENANT,
        "workloadId": workload,
        "phase": "placed",
        "units": 6,
        "placedUnits": 6,
        "activeInstances": 6,
        "shortfallUnits": 0,
        "shortfallReason": None,
    }


async def test_a_workload_that_nobody_knows(opened: Placer) -> None:
    with pytest.raises(workloads.UnknownWorkload, match="'nobody'"):
        await finish(opened, "nobody")


async def test_what_does_not_run_is_given_back_first_and_then_the_youngest(estate: Estate) -> None:
    """Three run, two more are planned, and only two are wanted; asked again it is the same."""
    await estate.open(halls(1, per_hall=1))
    await estate.workload("orders", contract("free", pool="1", group="1"))
    placer = Placer(estate)
    await placer.place(2)
    await placer.run()
    oldest = await estate.rows("SELECT slot_key FROM instances ORDER BY 1")
    await placer.place(3)
    await placer.run()
    await placer.place(5)
    await placer.place(2)
    hands = FinishingActivities(estate.engine)
    request = WorkloadRequest(tenant_id=TENANT, workload_id="orders")
    plan = await hands.plan_release(request)
    assert plan.regions == ("eu-north",)
    assert await hands.plan_release(request) == plan
    assert await placer.slots() == {"active": 2, "releasing": 1, "gone": 2}
    assert await estate.rows("SELECT slot_key FROM instances WHERE state = 'active' ORDER BY 1") == oldest
    await counts_are_right(estate)
