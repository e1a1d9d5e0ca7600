"""Where a pool serves models: registered with it or changed later, and never at a forbidden place."""

from __future__ import annotations

import pytest

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
