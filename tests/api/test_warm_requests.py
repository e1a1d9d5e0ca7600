"""Warming over REST: asked for once, followed, and refused where it cannot be."""

from __future__ import annotations

from typing import Any
from uuid import UUID, uuid4

import pytest

from api.sign_in.principal import Role
from domain.ids import warm_keep_workflow_id
from tests.api.door import Door, problem
from tests.api.test_pools import FACTS, POOLS
from tests.api.test_warm_profiles import ANY, serving_pool

WARM = f"{POOLS}/gpu-1/warm"
BODY: dict[str, Any] = {"model": "llama3.3:70b", "vramGb": 42}


async def test_a_request_is_kept_told_and_can_be_followed(door: Door) -> None:
    await serving_pool(door, "gpu-1")
    answer = await door.post(WARM, BODY)
    told = answer.json()
    assert answer.status_code == 202
    assert answer.headers["location"] == f"{WARM}/{told['requestId']}"
    assert (told["status"], told["started"], told["problem"]) == ("requested", True, None)
    assert (told["model"], told["vramGb"], told["requestedBy"]) == ("llama3.3:70b", 42, "ada")
    assert told["workflowId"] == warm_keep_workflow_id("platform", "gpu-1")
    assert told["temporalUrl"].endswith("warm-keep%2Fplatform%2Fgpu-1")
    assert door.starter.warm == [("platform", "gpu-1")]
    followed = await door.get(answer.headers["location"])
    assert followed.json() == told
    await door.estate.rows(
        "UPDATE warm_requests SET status = 'failed', problem = '42 GB do not fit', finished_at = now()"
        " RETURNING 1"
    )
    ended = (await door.get(answer.headers["location"])).json()
    assert (ended["status"], ended["problem"]) == ("failed", "42 GB do not fit")


async def test_the_same_key_asks_once(door: Door) -> None:
    await serving_pool(door, "gpu-1")
    key = {"Idempotency-Key": "k"}
    first, again = [await door.post(WARM, BODY, headers=key) for _ in range(2)]
    assert (again.status_code, again.json()) == (202, first.json())
    assert again.headers["idempotency-replayed"] == "true"
    assert again.headers["location"] == first.headers["location"]
    problem(await door.post(WARM, BODY | {"vramGb": 43}, headers=key), 422, "idempotency_key_reused")
    assert await door.estate.value("SELECT count(*) FROM warm_requests") == 1


async def test_without_temporal_it_is_kept_for_the_next_look(door: Door) -> None:
    await serving_pool(door, "gpu-1")
    door.starter.down = True
    answer = await door.post(WARM, BODY)
    assert (answer.status_code, answer.json()["started"]) == (202, "queued")
    assert await door.estate.value("SELECT status FROM warm_requests") == "requested"


async def test_the_default_tag_is_left_out(door: Door) -> None:
    await serving_pool(door, "gpu-1")
    assert (await door.post(WARM, BODY | {"model": "qwen3-8b:latest"})).json()["model"] == "qwen3-8b"


@pytest.mark.parametrize(
    ("body", "reason", "words"),
    [
        (BODY | {"vramGb": 81}, "model_too_large", "at most 80"),
        (BODY | {"vramGb": 0}, "invalid_request", "vramGb"),
        (BODY | {"model": "a b"}, "invalid_request", "model"),
        ({"model": "a"}, "invalid_request", "vramGb"),
    ],
)
async def test_what_cannot_be_is_refused(door: Door, body: dict[str, Any], reason: str, words: str) -> None:
    await serving_pool(door, "gpu-1")
    told = problem(await door.post(WARM, body), 422, reason)
    assert words in told["detail"]
    assert door.starter.warm == []


async def test_a_pool_that_serves_no_models_refuses(door: Door) -> None:
    problem(await door.post(WARM, BODY), 404, "unknown_pool")
    assert (await door.post(POOLS, FACTS)).status_code == 201
    told = problem(await door.post(f"{POOLS}/{FACTS['poolId']}/warm", BODY), 409, "pool_not_serving")
    assert "is draft, without an endpoint, and has 0 GB" in told["detail"]
    await serving_pool(door, "gpu-1")
    assert (await door.post(f"{POOLS}/gpu-1/drain", headers=ANY)).status_code == 200
    problem(await door.post(WARM, BODY), 409, "pool_not_serving")


async def test_what_nobody_asked_for_is_unknown(door: Door) -> None:
    await serving_pool(door, "gpu-1")
    problem(await door.get(f"{WARM}/{uuid4()}"), 404, "unknown_warm_request")
    asked = UUID((await door.post(WARM, BODY)).json()["requestId"])
    problem(await door.get(f"{POOLS}/gpu-2/warm/{asked}"), 404, "unknown_warm_request")


async def test_requests_are_their_tenants_and_administrators_business(door: Door) -> None:
    await serving_pool(door, "gpu-1")
    answer = await door.post(WARM, BODY)
    async with door.as_(tenant_id="acme") as other:
        problem(await other.get(answer.headers["location"]), 404, "unknown_warm_request")
        problem(await other.post(WARM, json=BODY), 404, "unknown_pool")
    async with door.as_(roles=[Role.OPERATOR]) as operator:
        assert (await operator.get(answer.headers["location"])).status_code == 200
        problem(await operator.post(WARM, json=BODY), 403, "not_allowed")
