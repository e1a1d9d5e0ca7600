"""The life of a pool over REST: versions, steps, refusals that say what is allowed, and what may change."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx2
import pytest

from api.pool_life import FACTS as FIXED
from api.pool_life import MAY_CHANGE
from tests.api.door import Door, problem
from tests.api.test_pools import FACTS, POOLS

POOL = f"{POOLS}/{FACTS['poolId']}"
VERBS = ("activate", "drain", "resume", "retire")
ANY = {"If-Match": "*"}
PLACED = "eu-north-h1-gp-m"


async def step(door: Door, verb: str, tag: str = "*", **headers: str) -> httpx2.Response:
    return await door.post(f"{POOL}/{verb}", headers={"If-Match": tag} | headers)


async def in_state(door: Door, state: str) -> None:
    """The pool, taken through its life to this state."""
    assert (await door.post(POOLS, FACTS)).status_code == 201
    path = {"draft": 0, "active": 1, "draining": 2, "retired": 4}[state]
    for verb in ("activate", "drain", None, "retire")[:path]:
        if verb is not None:
            assert (await step(door, verb)).status_code == 200, verb


async def version(door: Door) -> int:
    return int(await door.estate.value("SELECT version FROM pools"))


async def state_events(door: Door) -> list[tuple[str, str]]:
    rows = await door.estate.rows(
        "SELECT payload FROM outbox WHERE topic = 'compute-pools.pools.v1.compute-pool-state-changed'"
        " ORDER BY sequence"
    )
    return [(row[0]["fromState"], row[0]["toState"]) for row in rows]


@pytest.mark.parametrize("state", ["draft", "active", "draining", "retired"])
async def test_every_state_takes_its_steps_and_says_them(door: Door, state: str) -> None:
    leads = {
        "draft": {"activate": "active"},
        "active": {"drain": "draining"},
        "draining": {"resume": "active", "retire": "retired"},
        "retired": {},
    }
    await in_state(door, state)
    told = (await door.get(POOL)).json()
    assert told["state"] == state
    assert set(told["allowedActions"]) - {"change"} == set(leads[state])
    before = await version(door)
    for verb in VERBS:
        if verb in leads[state]:
            continue
        refused = problem(await step(door, verb), 409, "no_such_step")
        assert (refused["state"], refused["currentVersion"]) == (state, before)
        assert set(refused["allowedActions"]) - {"change"} == set(leads[state])
        assert await version(door) == before


async def test_a_whole_life_is_told_step_by_step(door: Door) -> None:
    await in_state(door, "draft")
    for number, verb in enumerate(("activate", "drain", "resume", "drain", "retire"), start=1):
        answer = await step(door, verb, f'"{number}"')
        assert (answer.status_code, answer.headers["etag"]) == (200, f'"{number + 1}"')
    assert await state_events(door) == [
        ("draft", "active"),
        ("active", "draining"),
        ("draining", "active"),
        ("active", "draining"),
        ("draining", "retired"),
    ]
    retired = (await door.get(POOL)).json()
    assert retired["drainedAt"] is not None
    assert retired["allowedActions"] == []


@pytest.mark.parametrize("verb", [*VERBS, None])
async def test_without_a_version_nothing_is_done(door: Door, verb: str | None) -> None:
    await in_state(door, "draft")
    answer = await (
        door.patch(POOL, {"coldStartSeconds": 9}) if verb is None else door.post(f"{POOL}/{verb}")
    )
    refused = problem(answer, 428, "version_required")
    assert (refused["currentVersion"], answer.headers["etag"]) == (1, '"1"')
    assert refused["allowedActions"] == ["activate", "change"]
    assert "If-Match" in refused["whatToDo"]
    assert await version(door) == 1


@pytest.mark.parametrize("verb", ["activate", None])
@pytest.mark.parametrize(
    "tag",
    ['"2"', '"0"', '"999999999999999999"', 'W/"1"', "1", '"one"', '""', '"1', '"1", "2"', '"-1"', '"\u0661"'],
)
async def test_another_version_is_refused_with_the_newest(door: Door, verb: str | None, tag: str) -> None:
    await in_state(door, "draft")
    headers = [(b"If-Match", tag.encode())]
    if verb is None:
        sent = door.http.request("PATCH", POOL, json={"coldStartSeconds": 9}, headers=headers)
    else:
        sent = door.http.request("POST", f"{POOL}/{verb}", headers=headers)
    answer = await sent
    refused = problem(answer, 412, "version_conflict")
    assert (refused["currentVersion"], answer.headers["etag"]) == (1, '"1"')
    assert await version(door) == 1


@pytest.mark.parametrize("tag", ['"1"', "*", ' "1" '])
async def test_the_newest_version_or_any_is_taken(door: Door, tag: str) -> None:
    await in_state(door, "draft")
    assert (await door.get(POOL)).headers["etag"] == '"1"'
    assert (await step(door, "activate", tag)).status_code == 200


@pytest.mark.parametrize("tag", ['"1"', "*", None])
async def test_a_pool_that_does_not_exist_is_told_first(door: Door, tag: str | None) -> None:
    headers = {"If-Match": tag} if tag else {}
    for verb in VERBS:
        problem(await door.post(f"{POOLS}/nobody/{verb}", headers=headers), 404, "unknown_pool")
    problem(
        await door.patch(f"{POOLS}/nobody", {"coldStartSeconds": 9}, headers=headers), 404, "unknown_pool"
    )


async def test_of_many_at_one_version_one_is_taken(door: Door) -> None:
    await in_state(door, "draft")
    answers = await asyncio.gather(*(step(door, "activate", '"1"') for _ in range(16)))
    assert sorted(answer.status_code for answer in answers) == [200] + [412] * 15
    assert await state_events(door) == [("draft", "active")]


async def test_a_repeated_step_is_answered_as_the_first_time(door: Door) -> None:
    await in_state(door, "active")
    first = await step(door, "drain", '"2"', **{"Idempotency-Key": "drain-1"})
    again = await step(door, "drain", '"2"', **{"Idempotency-Key": "drain-1"})
    assert (again.status_code, again.content) == (200, first.content)
    assert again.headers["idempotency-replayed"] == "true"
    assert again.headers["etag"] == first.headers["etag"] == '"3"'
    problem(await step(door, "drain", '"3"', **{"Idempotency-Key": "drain-1"}), 422, "idempotency_key_reused")
    assert (await state_events(door)).count(("active", "draining")) == 1


async def test_a_refused_step_leaves_its_key_free(door: Door) -> None:
    await in_state(door, "draft")
    problem(await step(door, "drain", **{"Idempotency-Key": "k"}), 409, "no_such_step")
    await step(door, "activate")
    assert (await step(door, "drain", **{"Idempotency-Key": "k"})).status_code == 200


async def test_a_change_is_one_version_and_changes_nothing_else(door: Door) -> None:
    await in_state(door, "active")
    before = (await door.get(POOL)).json()
    wanted = {
        "pricePerHourUsd": "0.4",
        "guaranteedPricePerHourUsd": "1.25",
        "endpointRef": "https://pool.example/v1",
        "coldStartSeconds": 90,
    }
    answer = await door.patch(POOL, wanted, headers={"If-Match": '"2"'})
    assert (answer.status_code, answer.headers["etag"]) == (200, '"3"')
    after = answer.json()
    differing = {name for name in after if after[name] != before[name]}
    assert differing == {*wanted, "version"}
    assert (after["pricePerHourUsd"], after["coldStartSeconds"]) == ("0.400000", 90)
    again = await door.patch(POOL, wanted, headers={"If-Match": '"3"'})
    assert (again.json(), again.headers["etag"]) == (after, '"3"')
    gone = await door.patch(POOL, {"endpointRef": None}, headers={"If-Match": '"3"'})
    assert (gone.json()["endpointRef"], gone.json()["coldStartSeconds"]) == (None, 90)


async def test_a_change_is_told_with_the_values_before_and_after(door: Door) -> None:
    await in_state(door, "active")
    price = (await door.get(POOL)).json()["pricePerHourUsd"]
    wanted = {"pricePerHourUsd": "0.4", "endpointRef": "https://pool.example/v1", "coldStartSeconds": 0}
    for tag in ('"2"', '"3"'):
        assert (await door.patch(POOL, wanted, headers={"If-Match": tag})).status_code == 200
    rows = await door.estate.rows(
        "SELECT payload FROM outbox WHERE topic = 'compute-pools.pools.v1.compute-pool-changed'"
    )
    assert [row[0] for row in rows] == [
        {
            "poolId": POOL.rpartition("/")[2],
            "tenantId": "platform",
            "version": 3,
            "changes": [
                {"name": "pricePerHourUsd", "old": price, "new": "0.400000"},
                {"name": "endpointRef", "old": None, "new": "https://pool.example/v1"},
            ],
            "changedBy": "ada",
        }
    ]


async def test_an_empty_change_changes_nothing(door: Door) -> None:
    await in_state(door, "draft")
    answer = await door.patch(POOL, {}, headers=ANY)
    assert (answer.status_code, answer.headers["etag"]) == (200, '"1"')


@pytest.mark.parametrize("name", sorted(FIXED))
async def test_a_fact_is_never_changed(door: Door, name: str) -> None:
    await in_state(door, "draft")
    before = (await door.get(POOL)).json()
    sent = {name: "other", "coldStartSeconds": 9}
    refused = problem(await door.patch(POOL, sent, headers=ANY), 422, "fixed_fact")
    assert name in refused["detail"]
    assert all(one in refused["detail"] for one in MAY_CHANGE)
    assert (await door.get(POOL)).json() == before


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("pricePerHourUsd", "-0.1"),
        ("pricePerHourUsd", None),
        ("pricePerHourUsd", "0.0000001"),
        ("guaranteedPricePerHourUsd", "0"),
        ("endpointRef", ""),
        ("endpointRef", "a\nb"),
        ("coldStartSeconds", -1),
        ("coldStartSeconds", 2**31),
        ("utilization", "0.5"),
        ("queueDepth", 3),
        ("state", "retired"),
        ("version", 9),
    ],
)
async def test_a_change_that_cannot_be_is_refused_by_field(door: Door, field: str, value: Any) -> None:
    await in_state(door, "draft")
    refused = problem(await door.patch(POOL, {field: value}, headers=ANY), 422, "invalid_request")
    assert [error["field"] for error in refused["errors"]] == [field]
    assert await version(door) == 1


async def test_a_retired_pool_changes_no_more(door: Door) -> None:
    await in_state(door, "retired")
    refused = problem(await door.patch(POOL, {"coldStartSeconds": 9}, headers=ANY), 409, "no_such_step")
    assert refused["allowedActions"] == []


async def test_a_drain_is_started_and_a_resume_is_told(door: Door) -> None:
    await door.open_estate()
    where = f"{POOLS}/{PLACED}"
    drained = (await door.post(f"{where}/drain", headers=ANY)).json()
    assert drained["drainWorkflowId"] == f"pool-drain/platform/{PLACED}"
    assert drained["drainTemporalUrl"].endswith(f"pool-drain%2Fplatform%2F{PLACED}")
    assert drained["drainingSince"] is not None
    assert drained["drainedAt"] is None
    assert door.starter.drains == [("platform", PLACED)]
    assert door.starter.told == []
    resumed = (await door.post(f"{where}/resume", headers=ANY)).json()
    assert (resumed["drainingSince"], resumed["drainWorkflowId"]) == (None, None)
    assert door.starter.told == [("platform", PLACED)]


async def test_without_temporal_the_step_is_committed(door: Door) -> None:
    await door.open_estate()
    door.starter.down = True
    where = f"{POOLS}/{PLACED}"
    assert (await door.post(f"{where}/drain", headers=ANY)).json()["state"] == "draining"
    assert (await door.post(f"{where}/resume", headers=ANY)).json()["state"] == "active"


async def test_a_pool_that_holds_units_is_not_retired(door: Door) -> None:
    await door.open_estate()
    await door.placed()
    holding = await door.estate.value(
        "SELECT pool_id FROM reservations WHERE instances > 0 ORDER BY pool_id LIMIT 1"
    )
    where = f"{POOLS}/{holding}"
    await door.estate.rows(
        "INSERT INTO cached_models VALUES ('platform', :pool, 'llama', :at, :at, 40)",
        pool=holding,
        at=door.estate.clock(),
    )
    told = (await door.post(f"{where}/drain", headers=ANY)).json()
    assert told["held"]["workloads"] == ["orders-daily"]
    assert [model["model"] for model in told["held"]["models"]] == ["llama"]
    refused = problem(await door.post(f"{where}/retire", headers=ANY), 409, "pool_holds")
    assert refused["held"] == told["held"]
    assert refused["allowedActions"] == ["resume", "change"]
    assert "of orders-daily; 1 model" in refused["detail"]
    page = (await door.get(f"/ui/pools/{holding}")).text
    for text in ("orders-daily", "llama", "Draining since", "not yet", "resume, change"):
        assert text in page


async def test_a_registration_tells_its_boundary(door: Door) -> None:
    await in_state(door, "draft")
    ((payload,),) = await door.estate.rows("SELECT payload FROM outbox")
    assert {"poolId", "tenantId", "kind", "region", "securityBoundary"} <= set(payload)
