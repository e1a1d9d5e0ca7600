"""Closing a placement: what is recorded says how far it really came."""

from __future__ import annotations

from uuid import uuid4

from activities.finishing import FinishingActivities
from activities.placement_calls import Finished, FinishRequest
from domain.acquisition import Failure
from domain.reasons import ShortfallReason
from store import slots
from tests.activities.deciding import Placer, new_workload
from tests.estates import TENANT

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
