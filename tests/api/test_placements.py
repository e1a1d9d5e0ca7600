"""Placements over REST: how far they are, their plans, and every pool with its reason."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest

from domain.reasons import REASON_TEXT, Reason
from tests.api.door import ORDERS, Door, problem

WHY = "/placements/orders-daily/explanation"


async def test_progress_is_told_from_claim_to_fleet(door: Door) -> None:
    await door.open_estate()
    where = "/placements/orders-daily"
    before = (await door.get(where)).json()
    assert (before["phase"], before["claimVersion"], before["units"]) == ("requested", 0, 0)
    await door.placed(42)
    planned = (await door.get(where)).json()
    assert (planned["phase"], planned["units"], planned["placedUnits"]) == ("planned", 42, 42)
    assert (planned["claimVersion"], planned["plannedVersion"], planned["generation"]) == (1, 1, 1)
    assert planned["activeInstances"] == 0
    await door.placer.run()
    running = (await door.get(where)).json()
    assert running["instancesByState"] == {"active": running["activeInstances"]}
    assert running["activeInstances"] > 0
    assert running["workflowId"] == "placement/k8s-eu-north/orders-daily"
    assert running["temporalUrl"].endswith("/workflows/placement%2Fk8s-eu-north%2Forders-daily")
    problem(await door.get("/placements/nobody"), 404, "unknown_workload")


async def test_placing_again_tells_the_placement(door: Door) -> None:
    await door.open_estate()
    body = {"workloadId": "orders-daily"}
    problem(await door.post("/placements", body), 409, "no_claim")
    await door.placed(42)
    answer = await door.post("/placements", body)
    assert (answer.status_code, answer.json()["placement"]["started"]) == (202, True)
    assert len(door.starter.started) == 2
    problem(await door.post("/placements", {"workloadId": "nobody"}), 404, "unknown_workload")
    problem(await door.post("/placements", {}), 422, "invalid_request")


async def test_placing_again_is_promised_only_where_it_will_happen(door: Door) -> None:
    await door.open_estate()
    door.starter.down = True
    await door.claim(42)
    body = {"workloadId": "orders-daily"}
    unplanned = await door.post("/placements", body)
    assert (unplanned.status_code, unplanned.json()["placement"]["started"]) == (202, "queued")
    await door.placer.decide("orders-daily")
    told = await door.post("/placements", body)
    problem(told, 503, "not_ready")
    assert told.headers["retry-after"] == "2"


async def test_generations_come_newest_first_in_pages(door: Door) -> None:
    await door.open_estate()
    for units in (10, 20, 30):
        await door.placed(units)
    where = "/placements/orders-daily/generations"
    first = (await door.get(where, pageSize=2)).json()
    rest = (await door.get(where, pageSize=2, pageToken=first["nextPageToken"])).json()
    listed = first["items"] + rest["items"]
    assert [one["generation"] for one in listed] == [3, 2, 1]
    assert [one["units"] for one in listed] == [30, 20, 10]
    assert rest["nextPageToken"] is None
    assert listed[0]["costPerHour"]["currency"] == "USD"
    problem(await door.get("/placements/nobody/generations"), 404, "unknown_workload")


async def test_every_pool_of_the_ranking_is_told_once_with_one_reason(read_door: Door) -> None:
    told = (await read_door.get(WHY)).json()
    candidates = told["candidates"]
    names = [one["poolId"] for one in candidates]
    pools = (await read_door.get("/factory/compute-pools", pageSize=1000)).json()["items"]
    assert sorted(names) == sorted(pool["poolId"] for pool in pools)
    for one in candidates:
        assert one["kept"] == (one["reason"] is None) == (one["units"] > 0)
        if one["reason"] is not None:
            assert one["text"] == REASON_TEXT[Reason(one["reason"])]
    assert sum(one["units"] for one in candidates) == told["placedUnits"] == 42
    counts = {one["reason"]: one["pools"] for one in told["countsByReason"]}
    assert sum(counts.values()) == sum(not one["kept"] for one in candidates)
    assert {"arch", "gpu", "outscored"} <= set(counts)


async def test_kept_come_before_listed_before_refused(read_door: Door) -> None:
    candidates = (await read_door.get(WHY)).json()["candidates"]
    stages = [0 if one["kept"] else 1 if one["rank"] else 2 for one in candidates]
    assert stages == sorted(stages)
    assert set(stages) == {0, 1, 2}
    fill = [
        one["rank"]
        for one in candidates
        if not one["kept"] and one["rank"] and one["purchaseModel"] == "reclaimable"
    ]
    assert fill == sorted(fill)


async def test_one_pool_or_one_reason_can_be_asked_for(read_door: Door) -> None:
    one = (await read_door.get(WHY, poolId="eu-north-h1-ga-m")).json()["candidates"]
    assert [(found["poolId"], found["reason"]) for found in one] == [("eu-north-h1-ga-m", "arch")]
    for_arch = (await read_door.get(WHY, reason="arch")).json()
    counts = {one["reason"]: one["pools"] for one in for_arch["countsByReason"]}
    assert len(for_arch["candidates"]) == counts["arch"] > 0
    assert (await read_door.get(WHY, poolId="eu-north-h1-ga-m", reason="gpu")).json()["candidates"] == []


@pytest.mark.parametrize(
    "query", [{"generation": 0}, {"reason": "luck"}, {"pool": "x"}, {"generation": 2**40}]
)
async def test_a_wrong_question_is_refused(read_door: Door, query: dict[str, Any]) -> None:
    problem(await read_door.get(WHY, **query), 422, "invalid_request")


async def test_a_decision_that_is_not_there_is_unknown(read_door: Door) -> None:
    problem(await read_door.get(WHY, generation=9), 404, "unknown_placement")
    problem(await read_door.get("/placements/nobody/explanation"), 404, "unknown_workload")
    await read_door.put("/workloads/idle", ORDERS)
    problem(await read_door.get("/placements/idle/explanation"), 404, "unknown_placement")
    problem(await read_door.post("/placements/idle/replay"), 404, "unknown_placement")
    missing = f"/factory/compute-pools/placements/{uuid4()}"
    problem(await read_door.get(missing), 404, "unknown_placement")
    problem(await read_door.get("/factory/compute-pools/placements/one"), 422, "invalid_request")


async def test_a_decision_is_found_by_its_id_too(read_door: Door) -> None:
    by_workload = (await read_door.get(WHY)).json()
    by_id = await read_door.get(f"/factory/compute-pools/placements/{by_workload['decisionId']}")
    assert by_id.json() == by_workload


async def test_an_old_decision_is_told_as_it_was(door: Door) -> None:
    await door.open_estate()
    await door.placed(10)
    then = (await door.get(WHY, generation=1)).json()
    await door.estate.report(0)
    await door.estate.rank(
        [one.model_copy(update={"free_instances": 0, "episodes": 50}) for one in door.estate.pools]
    )
    await door.placed(200)
    assert (await door.get(WHY, generation=1)).json() == then
    now = (await door.get(WHY)).json()
    assert (now["generation"], now["rankingId"] == then["rankingId"]) == (2, False)
