"""Compute pools over REST: registered once, listed in pages, activated step by step."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from api.pools import PoolRegistration
from domain.pool import PoolFacts
from tests.api.door import Door, problem

POOLS = "/factory/compute-pools"
FACTS: dict[str, Any] = {
    "poolId": "eu-north-h1-gp-m",
    "region": "eu-north",
    "hall": "eu-north-h1",
    "skuFamily": "gp",
    "size": "m",
    "cpuCores": 8,
    "ramGb": 32,
    "purchaseModel": "reclaimable",
    "groupId": "eu-north-h1-a1",
    "pricePerHourUsd": "0.35",
    "guaranteedPricePerHourUsd": "1.00",
    "flavor": "gp.m.reclaimable",
}


def test_a_registration_has_every_fact_but_the_tenant() -> None:
    facts = set(PoolFacts.model_fields) - {"tenant_id"}
    assert set(PoolRegistration.model_fields) == facts | {"endpoint_ref"}


async def test_a_new_pool_is_a_draft_and_its_registration_is_an_event(door: Door) -> None:
    answer = await door.post(POOLS, FACTS)
    assert answer.status_code == 201
    assert answer.headers["etag"] == '"1"'
    assert answer.headers["location"] == f"{POOLS}/eu-north-h1-gp-m"
    pool = answer.json()
    assert (pool["state"], pool["tenantId"], pool["pricePerHourUsd"]) == ("draft", "platform", "0.350000")
    assert (pool["placeable"], pool["notPlaceableReason"]) == (False, "state")
    ((topic, key, payload),) = await door.estate.rows("SELECT topic, key, payload FROM outbox")
    assert topic == "compute-pools.pools.v1.compute-pool-registered"
    assert (key, payload["poolId"], payload["tenantId"]) == (pool["poolId"], pool["poolId"], "platform")


async def test_the_same_facts_again_change_nothing(door: Door) -> None:
    first = await door.post(POOLS, FACTS)
    again = await door.post(POOLS, FACTS | {"pricePerHourUsd": "0.36"})
    assert (first.status_code, again.status_code) == (201, 200)
    assert again.json() == first.json()
    assert await door.estate.value("SELECT count(*) FROM outbox") == 1


async def test_other_facts_under_the_same_id_are_refused(door: Door) -> None:
    await door.post(POOLS, FACTS)
    told = problem(await door.post(POOLS, FACTS | {"ramGb": 64}), 409, "duplicate_pool")
    assert "another ramGb:" in told["detail"]
    assert (await door.get(f"{POOLS}/eu-north-h1-gp-m")).json()["ramGb"] == 32


async def test_a_group_has_one_basis_whoever_joins_it(door: Door) -> None:
    assert (await door.post(POOLS, FACTS)).status_code == 201
    joining = FACTS | {"poolId": "eu-north-h1-gp-l", "groupBasis": "hall"}
    for _ in range(2):
        told = problem(await door.post(POOLS, joining), 409, "group_differs")
        assert "aggregate" in told["detail"]
        assert "hall" in told["detail"]
    assert await door.estate.value("SELECT count(*) FROM pools") == 1
    joined = await door.post(POOLS, joining | {"groupBasis": "aggregate"})
    assert (joined.status_code, joined.json()["groupBasis"]) == (201, "aggregate")
    theirs = await door.as_(tenant_id="acme").post(POOLS, json=joining)
    assert (theirs.status_code, theirs.json()["groupBasis"]) == (201, "hall")


async def test_a_pool_has_no_id_that_is_the_path_of_something_else(door: Door) -> None:
    told = problem(await door.post(POOLS, FACTS | {"poolId": "placements"}), 422, "invalid_request")
    assert told["detail"].startswith("body poolId is placements; allowed is another id")
    assert await door.estate.value("SELECT count(*) FROM pools") == 0
    assert (await door.post(POOLS, FACTS | {"poolId": "placements-1"})).status_code == 201


async def test_wrong_facts_are_told_by_field_with_value_and_what_is_allowed(door: Door) -> None:
    wrong = FACTS | {"cpuCores": 0, "purchaseModel": "spot", "colour": "red", "pricePerHourUsd": "1e400"}
    told = problem(await door.post(POOLS, wrong), 422, "invalid_request")
    errors = {error["field"]: error for error in told["errors"]}
    assert errors["cpuCores"]["value"] == "0"
    assert errors["cpuCores"]["allowed"] == "a number of at least 1"
    assert errors["purchaseModel"]["value"] == "spot"
    assert "'committed'" in errors["purchaseModel"]["allowed"]
    assert set(errors) == {"cpuCores", "purchaseModel", "colour", "pricePerHourUsd"}
    assert await door.estate.value("SELECT count(*) FROM pools") == 0


async def test_what_a_pool_of_the_private_cloud_lacks_is_told_in_our_words(door: Door) -> None:
    told = problem(await door.post(POOLS, {**FACTS, "hall": None, "flavor": None}), 422, "invalid_request")
    lacks = "a pool of kind private_cloud needs hall, flavor; other kinds may leave them out"
    assert told["detail"] == f"body: {lacks}"
    assert told["errors"][0]["allowed"] == told["errors"][0]["message"] == lacks


async def test_a_body_of_another_shape_is_told_once(door: Door) -> None:
    told = problem(await door.post(POOLS, [1]), 422, "invalid_request")
    assert told["detail"] == "body is a list; allowed is an object"


async def test_snake_case_is_no_name_of_ours(door: Door) -> None:
    told = problem(await door.post(POOLS, FACTS | {"nic_gbps": 25}), 422, "invalid_request")
    assert [error["field"] for error in told["errors"]] == ["nic_gbps"]


async def test_activation_takes_one_step_and_says_so_once(door: Door) -> None:
    await door.post(POOLS, FACTS)
    where = f"{POOLS}/eu-north-h1-gp-m/activate"
    problem(await door.post(where, headers={"If-Match": '"7"'}), 412, "version_conflict")
    problem(await door.post(where, headers={"If-Match": "seven"}), 412, "version_conflict")
    problem(await door.post(where), 428, "version_required")
    answer = await door.post(where, headers={"If-Match": '"1"'})
    assert (answer.status_code, answer.json()["state"], answer.headers["etag"]) == (200, "active", '"2"')
    problem(await door.post(where, headers={"If-Match": "*"}), 409, "no_such_step")
    problem(await door.post(f"{POOLS}/nobody/activate"), 404, "unknown_pool")
    events = await door.estate.rows("SELECT topic, payload FROM outbox ORDER BY sequence")
    assert [topic.rpartition(".")[2] for topic, _ in events] == [
        "compute-pool-registered",
        "compute-pool-state-changed",
    ]
    assert {name: events[1][1][name] for name in ("fromState", "toState", "version")} == {
        "fromState": "draft",
        "toState": "active",
        "version": 2,
    }


async def test_pages_join_to_the_whole_list_without_gap_or_repeat(door: Door) -> None:
    await door.open_estate()
    whole = (await door.get(POOLS, pageSize=1000)).json()
    assert whole["nextPageToken"] is None
    joined, token = [], None
    for _ in range(20):
        query = {"pageSize": 37} | ({"pageToken": token} if token else {})
        page = (await door.get(POOLS, **query)).json()
        joined += page["items"]
        token = page["nextPageToken"]
        if token is None:
            break
    assert joined == whole["items"]
    assert len(joined) == 180


async def test_every_filter_restricts(door: Door) -> None:
    await door.open_estate()
    await door.post(POOLS, FACTS | {"poolId": "draft-one", "region": "elsewhere"})
    for name, value, expected in (
        ("region", "elsewhere", 1),
        ("hall", "eu-north-h2", 45),
        ("state", "draft", 1),
        ("purchaseModel", "committed", 36),
        ("skuFamily", "st", 20),
    ):
        found = (await door.get(POOLS, **{name: value}, pageSize=1000)).json()["items"]
        assert len(found) == expected, name
        assert {pool[name] for pool in found} == {value}


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ({"pageSize": 0}, "invalid_request"),
        ({"pageSize": 1001}, "invalid_request"),
        ({"pageSize": "many"}, "invalid_request"),
        ({"pagesize": 5}, "invalid_request"),
        ({"state": "asleep"}, "invalid_request"),
        ({"pageToken": "not one of ours"}, "bad_page_token"),
        ({"pageToken": "W10"}, "bad_page_token"),
        ({"pageToken": ""}, "bad_page_token"),
    ],
)
async def test_a_wrong_query_is_refused_by_name(read_door: Door, query: dict[str, Any], reason: str) -> None:
    problem(await read_door.get(POOLS, **query), 422, reason)


async def test_a_token_of_other_filters_is_refused(read_door: Door) -> None:
    page = (await read_door.get(POOLS, hall="eu-north-h1", pageSize=5)).json()
    told = await read_door.get(POOLS, hall="eu-north-h2", pageToken=page["nextPageToken"])
    problem(told, 422, "bad_page_token")
    other = await read_door.get("/workloads", pageToken=page["nextPageToken"])
    problem(other, 422, "bad_page_token")


async def test_a_pool_whose_report_is_old_takes_no_units(door: Door) -> None:
    await door.open_estate()
    fresh = (await door.get(f"{POOLS}/eu-north-h1-gp-m")).json()
    assert (fresh["placeable"], fresh["freeInstances"]) == (True, 100)
    door.estate.clock.move(121)
    stale = (await door.get(f"{POOLS}/eu-north-h1-gp-m")).json()
    assert (stale["placeable"], stale["notPlaceableReason"]) == (False, "stale")
    assert "staleness" in stale["notPlaceableText"]


async def test_many_registrations_at_once_are_one(door: Door) -> None:
    answers = await asyncio.gather(*(door.post(POOLS, FACTS) for _ in range(8)))
    assert sorted(answer.status_code for answer in answers) == [200] * 7 + [201]
    assert await door.estate.value("SELECT count(*) FROM outbox") == 1
