"""Where a pool serves models: registered with it or changed later, and never at a forbidden place."""

from __future__ import annotations

import pytest

from tests.activities.model_placing import MODEL, PLATFORM, ServingEstate
from tests.api.door import Door, problem
from tests.api.test_pools import FACTS, POOLS
from tests.domain.serving.endpoints import CLOSED_REFERENCES, NEVER_REFERENCES

POOL = f"{POOLS}/{FACTS['poolId']}"
ANY = {"If-Match": "*"}
SERVED = "ollama+https://gpu-7.models.example.net:8443/pool"


async def test_an_endpoint_may_be_registered_with_its_pool(door: Door) -> None:
    answer = await door.post(POOLS, FACTS | {"endpointRef": SERVED})
    assert (answer.status_code, answer.json()["endpointRef"], answer.json()["version"]) == (201, SERVED, 1)
    again = await door.post(POOLS, FACTS | {"endpointRef": "https://other.example.net"})
    assert (again.status_code, again.json()["endpointRef"]) == (200, SERVED)


async def test_a_refused_endpoint_says_what_is_allowed_and_what_to_do(door: Door) -> None:
    told = problem(
        await door.post(POOLS, FACTS | {"endpointRef": "http://gpu-7.example.net"}), 422, "endpoint_refused"
    )
    assert "http is not allowed" in told["detail"]
    assert "8443" in told["allowed"]
    assert "policy" in told["whatToDo"]
    assert await door.estate.value("SELECT count(*) FROM pools") == 0


@pytest.mark.parametrize("way", ["registered", "changed"])
async def test_no_forbidden_reference_gets_in(door: Door, way: str) -> None:
    if way == "changed":
        assert (await door.post(POOLS, FACTS)).status_code == 201
    for reference in dict.fromkeys(NEVER_REFERENCES + CLOSED_REFERENCES):
        if way == "registered":
            answer = await door.post(POOLS, FACTS | {"endpointRef": reference})
        else:
            answer = await door.patch(POOL, {"endpointRef": reference}, headers=ANY)
        assert answer.status_code == 422, ascii(reference)
        assert answer.json()["reason"] in {"endpoint_refused", "invalid_request"}, ascii(reference)
    assert await door.estate.value("SELECT count(*) FROM pools WHERE endpoint_ref IS NOT NULL") == 0


@pytest.mark.parametrize("temporal", ["there", "away"])
async def test_nothing_is_warm_at_another_endpoint_before_it_was_asked(door: Door, temporal: str) -> None:
    serving = ServingEstate(door.estate.engine, door.estate.engine, door.estate.clock)
    await serving.pool("gpu-1", PLATFORM, loaded=MODEL)
    door.starter.down = temporal == "away"
    changed = await door.patch(f"{POOLS}/gpu-1", {"endpointRef": SERVED}, headers=ANY)
    assert [one["state"] for one in changed.json()["cachedModels"]] == ["loading"]
    assert door.starter.warm == ([] if door.starter.down else [(PLATFORM, "gpu-1")])
    asked = {"deploymentId": "assistant", "model": MODEL, "vramGb": 70, "boundary": "private"}
    told = (await door.post(f"{POOLS}/placements", asked)).json()
    assert (told["endpointRef"], told["warm"], told["coldStartSeconds"]) == (SERVED, False, 40)
    await serving.memory_is_right()


async def test_what_changes_nothing_of_an_endpoint_asks_nobody(door: Door) -> None:
    serving = ServingEstate(door.estate.engine, door.estate.engine, door.estate.clock)
    await serving.pool("gpu-1", PLATFORM, loaded=MODEL)
    changed = await door.patch(f"{POOLS}/gpu-1", {"pricePerHourUsd": "1.25"}, headers=ANY)
    assert [one["state"] for one in changed.json()["cachedModels"]] == ["loaded"]
    gone = await door.patch(f"{POOLS}/gpu-1", {"endpointRef": None}, headers=ANY)
    assert gone.status_code == 200
    assert door.starter.warm == []
