"""Idempotency-Key: work is done once, and its answer given again."""

from __future__ import annotations

import asyncio

import pytest
import sqlalchemy as sa

from store.idempotency import KeyedRequest, find_answer, forget_old
from tests.api.door import Door, pods, problem
from tests.api.test_pools import FACTS, POOLS

KEY = {"Idempotency-Key": "k-1"}
CLAIMS = "/workloads/orders-daily/claims"


async def test_a_repeated_claim_is_answered_and_not_repeated(door: Door) -> None:
    await door.open_estate()
    first = await door.post(CLAIMS, pods(3), headers=KEY)
    again = await door.post(CLAIMS, pods(3), headers=KEY)
    assert (again.status_code, again.content) == (first.status_code, first.content)
    assert again.headers["idempotency-replayed"] == "true"
    assert "idempotency-replayed" not in first.headers
    assert await door.estate.value("SELECT count(*) FROM claims") == 1
    assert len(door.starter.started) == 1


async def test_headers_belong_to_the_answer(door: Door) -> None:
    first = await door.post(POOLS, FACTS, headers=KEY)
    again = await door.post(POOLS, FACTS, headers=KEY)
    assert (again.status_code, again.headers["etag"]) == (201, first.headers["etag"])
    assert again.headers["location"] == first.headers["location"]


async def test_another_body_under_the_key_is_refused(door: Door) -> None:
    await door.open_estate()
    await door.post(CLAIMS, pods(3), headers=KEY)
    told = problem(await door.post(CLAIMS, pods(4), headers=KEY), 422, "idempotency_key_reused")
    assert CLAIMS in told["detail"]
    assert await door.estate.value("SELECT max(units) FROM claims") == 3


async def test_a_key_stands_for_one_path(door: Door) -> None:
    await door.open_estate()
    await door.post(CLAIMS, pods(3), headers=KEY)
    scaled = await door.post("/workloads/orders-daily/scale", {"units": 5}, headers=KEY)
    assert (scaled.status_code, scaled.json()["units"]) == (202, 5)


async def test_a_refused_request_leaves_its_key_free(door: Door) -> None:
    headers = KEY | {"If-Match": "*"}
    problem(
        await door.post(f"{POOLS}/eu-north-h1-gp-m/activate", headers=headers),
        404,
        "unknown_pool",
    )
    await door.post(POOLS, FACTS)
    answer = await door.post(f"{POOLS}/eu-north-h1-gp-m/activate", headers=headers)
    assert answer.status_code == 200
    again = await door.post(f"{POOLS}/eu-north-h1-gp-m/activate", headers=headers)
    assert (again.status_code, again.json()["state"]) == (200, "active")


async def test_while_a_request_is_in_flight_its_key_is_refused(door: Door) -> None:
    await door.open_estate()
    held = KeyedRequest("platform", "k-1", f"POST {CLAIMS}", "whatever")
    async with door.estate.engine.begin() as connection:
        assert await find_answer(connection, held, door.estate.clock()) is None
        answer = await door.post(CLAIMS, pods(3), headers=KEY)
        problem(answer, 409, "idempotency_key_in_flight")
        assert answer.headers["retry-after"] == "2"
    assert (await door.post(CLAIMS, pods(3), headers=KEY)).status_code == 202


async def test_many_at_once_do_the_work_once(door: Door) -> None:
    await door.open_estate()
    answers = await asyncio.gather(*(door.post(CLAIMS, pods(3), headers=KEY) for _ in range(8)))
    assert {answer.status_code for answer in answers} <= {202, 409}
    assert 202 in {answer.status_code for answer in answers}
    assert await door.estate.value("SELECT count(*) FROM claims") == 1


async def test_after_a_day_a_key_is_new_and_its_row_goes(door: Door) -> None:
    await door.open_estate()
    await door.post(CLAIMS, pods(3), headers=KEY)
    door.estate.clock.move(24 * 3600)
    answer = await door.post(CLAIMS, pods(4), headers=KEY)
    assert (answer.status_code, answer.json()["claimVersion"]) == (202, 2)
    async with door.estate.engine.begin() as connection:
        assert await forget_old(connection, door.estate.clock()) == 0
        door.estate.clock.move(24 * 3600)
        assert await forget_old(connection, door.estate.clock()) == 1
        assert (await connection.execute(sa.text("SELECT count(*) FROM idempotency_keys"))).scalar() == 0


@pytest.mark.parametrize("key", ["", "x" * 256, "two words"])
async def test_a_key_is_visible_ascii(door: Door, key: str) -> None:
    await door.open_estate()
    answer = await door.post(CLAIMS, pods(3), headers={"Idempotency-Key": key})
    problem(answer, 422, "invalid_request")


async def test_a_queued_answer_is_repeated_as_it_was(door: Door) -> None:
    await door.open_estate()
    door.starter.down = True
    first = await door.post(CLAIMS, pods(3), headers=KEY)
    door.starter.down = False
    again = await door.post(CLAIMS, pods(3), headers=KEY)
    assert first.json()["placement"]["started"] == again.json()["placement"]["started"] == "queued"
