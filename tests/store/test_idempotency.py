"""Answers by their key: given again, refused for another request, in one transaction with the work."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from store import idempotency
from store.idempotency import KEPT_FOR, Answer, KeyedRequest, KeyInFlight, KeyReused
from tests.estates import START, TENANT, Estate

REQUEST = KeyedRequest(tenant_id=TENANT, key="key-1", route="POST /v1/claims", fingerprint="abc")
ANSWER = Answer(status=201, body='{"b": 1,  "a": "ä"}', headers={"location": "/v1/claims/1"})


async def keep(estate: Estate, request: KeyedRequest, answer: Answer = ANSWER) -> None:
    async with estate.engine.begin() as connection:
        assert await idempotency.find_answer(connection, request, estate.clock()) is None
        await idempotency.keep_answer(connection, request, answer, estate.clock())


async def find(estate: Estate, request: KeyedRequest) -> Answer | None:
    async with estate.engine.begin() as connection:
        return await idempotency.find_answer(connection, request, estate.clock())


async def test_the_exact_answer_is_given_again(estate: Estate) -> None:
    await keep(estate, REQUEST)
    assert await find(estate, REQUEST) == ANSWER


async def test_another_request_with_the_key_is_told_when_it_was_used(estate: Estate) -> None:
    await keep(estate, REQUEST)
    with pytest.raises(KeyReused, match="another request to POST /v1/claims at 2030-01-01 12:00 UTC"):
        await find(estate, replace(REQUEST, fingerprint="def"))


@pytest.mark.parametrize("other", [{"tenant_id": "others"}, {"key": "key-2"}, {"route": "POST /v1/pools"}])
async def test_keys_are_apart_by_tenant_and_route(estate: Estate, other: dict[str, str]) -> None:
    await keep(estate, REQUEST)
    await keep(estate, replace(REQUEST, **other), Answer(202, "", {}))
    assert await find(estate, REQUEST) == ANSWER


async def test_a_request_in_flight_is_not_answered_twice(estate: Estate) -> None:
    async with estate.engine.begin() as connection:
        assert await idempotency.find_answer(connection, REQUEST, estate.clock()) is None
        with pytest.raises(KeyInFlight, match="is being answered right now"):
            await find(estate, REQUEST)
        await idempotency.keep_answer(connection, REQUEST, ANSWER, estate.clock())
    assert await find(estate, REQUEST) == ANSWER


async def test_work_that_was_rolled_back_has_no_answer(estate: Estate) -> None:
    async with estate.engine.connect() as connection:
        assert await idempotency.find_answer(connection, REQUEST, estate.clock()) is None
        await idempotency.keep_answer(connection, REQUEST, ANSWER, estate.clock())
        await connection.rollback()
    assert await find(estate, REQUEST) is None


async def test_a_day_later_the_key_is_free_again(estate: Estate) -> None:
    await keep(estate, REQUEST)
    estate.clock.at = START + KEPT_FOR - timedelta(microseconds=1)
    assert await find(estate, REQUEST) == ANSWER
    estate.clock.at = START + KEPT_FOR
    other = replace(REQUEST, fingerprint="def")
    await keep(estate, other, Answer(200, "new", {}))
    assert await find(estate, other) == Answer(200, "new", {})


async def test_old_answers_are_forgotten_and_others_kept(estate: Estate) -> None:
    await keep(estate, REQUEST)
    estate.clock.move(3600)
    await keep(estate, replace(REQUEST, key="key-2"))
    async with estate.engine.begin() as connection:
        assert await idempotency.forget_old(connection, START + KEPT_FOR) == 1
    assert await estate.rows("SELECT key FROM idempotency_keys") == [("key-2",)]
