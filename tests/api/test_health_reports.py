"""What the API says of serving pools' health, and what a router may say of it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import httpx2
import pytest
import pytest_asyncio

from domain.pool import PoolState, SecurityBoundary
from tests.api.door import Door, problem
from tests.estates import START, TENANT
from tests.serving_pools import ServingPools, listed, serving_facts

POOLS = "/factory/compute-pools"
ACME = "acme"
HOLD = """
    INSERT INTO model_placements (tenant_id, placement_id, deployment_id, model, requirements, candidates,
      outcome, pool_tenant_id, pool_id, vram_gb, state, decided_at, expires_at)
    VALUES (:tenant, gen_random_uuid(), 'chat', :model, '{}', '{}', 'placed', 'platform', 'gpu-1', 10,
      'held', :at, CAST(:at AS timestamptz) + interval '1 hour')
"""


@pytest_asyncio.fixture
async def pools(door: Door) -> ServingPools:
    """A shared pool and a private one of the platform, and one of another tenant."""
    own = ServingPools(door.estate.engine, door.estate.clock)
    await own.add(serving_facts(), serving_facts("secret", boundary=SecurityBoundary.PRIVATE))
    await own.add(serving_facts("mine", ACME, boundary=SecurityBoundary.PRIVATE))
    await own.add(serving_facts("plain", vram_gb=0))
    return own


async def ids(door: Door, client: httpx2.AsyncClient | None = None, **query: Any) -> list[str]:
    answer = await (client or door.http).get(POOLS, params=query)
    assert answer.status_code == 200, answer.text
    return [one["poolId"] for one in answer.json()["items"]]


async def test_a_pool_tells_its_health_silence_memory_and_models(door: Door, pools: ServingPools) -> None:
    await pools.report(models=(listed("llama", START, 30),))
    await pools.settle("llama")
    await pools.rows(HOLD, tenant=TENANT, model="mistral", at=START)
    await pools.rows(
        "UPDATE pool_serving SET health = 'degraded', health_problem = 'HTTP 500', health_changed_at = :at,"
        " probed_at = :at, stale_since = :at, learned_cold_start_seconds = 42 WHERE pool_id = 'gpu-1'",
        at=START,
    )
    told = (await door.get(f"{POOLS}/gpu-1")).json()
    moment = START.isoformat().replace("+00:00", "Z")
    assert (told["health"], told["healthProblem"], told["healthChangedAt"]) == (
        "degraded",
        "HTTP 500",
        moment,
    )
    assert (told["probedAt"], told["staleSince"]) == (moment, moment)
    assert (told["committedVramGb"], told["vramGb"], told["learnedColdStartSeconds"]) == (40, 80, 42)
    assert [(one["model"], one["vramGb"], one["state"]) for one in told["cachedModels"]] == [
        ("llama", 30, "loaded"),
        ("mistral", 10, "promised"),
    ]
    (in_list,) = [one for one in (await door.get(POOLS)).json()["items"] if one["poolId"] == "gpu-1"]
    assert {name: told[name] for name in in_list} == in_list


async def test_a_pool_without_accelerator_memory_has_no_health(door: Door, pools: ServingPools) -> None:
    told = (await door.get(f"{POOLS}/plain")).json()
    names = ("health", "staleSince", "committedVramGb", "learnedColdStartSeconds")
    assert [told[name] for name in names] == [None] * 4
    assert told["cachedModels"] == []


async def test_of_a_shared_pool_a_tenant_sees_the_models_that_it_holds(
    door: Door, pools: ServingPools
) -> None:
    """What others run there is nobody's business; the owner sees all."""
    await pools.rows(HOLD, tenant=ACME, model="ours", at=START)
    await pools.rows(HOLD, tenant="beta", model="theirs", at=START)
    async with door.as_(tenant_id=ACME) as acme:
        for path in (f"{POOLS}/gpu-1?tenantId=platform", POOLS):
            answer = (await acme.get(path)).json()
            (one,) = [each for each in answer.get("items", [answer]) if each["poolId"] == "gpu-1"]
            assert [each["model"] for each in one["cachedModels"]] == ["ours"]
            assert "theirs" not in str(answer)
            assert one["committedVramGb"] == 20
    own = (await door.get(f"{POOLS}/gpu-1")).json()
    assert [each["model"] for each in own["cachedModels"]] == ["ours", "theirs"]


async def test_pools_are_listed_by_health_silence_kind_type_and_boundary(
    door: Door, pools: ServingPools
) -> None:
    await pools.rows("UPDATE pool_serving SET health = 'healthy' WHERE pool_id = 'gpu-1'")
    await pools.rows("UPDATE pool_serving SET stale_since = :at WHERE pool_id = 'secret'", at=START)
    assert await ids(door) == ["gpu-1", "plain", "secret"]
    assert await ids(door, health="healthy") == ["gpu-1"]
    assert await ids(door, health="unknown") == ["secret"]
    assert await ids(door, stale="true") == ["secret"]
    assert await ids(door, stale="false") == ["gpu-1"]
    assert await ids(door, boundary="private") == ["secret"]
    assert await ids(door, gpuType="a100") == ["gpu-1", "plain", "secret"]
    assert await ids(door, gpuType="l4") == []
    assert await ids(door, kind="local_gpu_server", boundary="shared") == ["gpu-1", "plain"]
    assert await ids(door, kind="azure") == []
    async with door.as_(tenant_id=ACME) as acme:
        assert await ids(door, acme) == ["gpu-1", "mine", "plain"]
        assert await ids(door, acme, health="unknown") == ["mine"]
    problem(await door.get(POOLS, health="ill"), 422, "invalid_request")
    problem(await door.get(POOLS, stale="perhaps"), 422, "invalid_request")


async def test_filters_hold_on_every_page(door: Door, pools: ServingPools) -> None:
    await pools.add(*(serving_facts(f"more-{number}") for number in range(5)))
    await pools.rows("UPDATE pool_serving SET health = 'healthy' WHERE pool_id LIKE 'more-%'")
    found, token = [], None
    for _ in range(10):
        query = {"health": "healthy", "pageSize": 2} | ({"pageToken": token} if token else {})
        answer = (await door.get(POOLS, **query)).json()
        found += [one["poolId"] for one in answer["items"]]
        token = answer["nextPageToken"]
        if token is None:
            break
    assert found == [f"more-{number}" for number in range(5)]


async def report(
    client: httpx2.AsyncClient, pool_id: str = "gpu-1", *, problem: Any = "refused", **more: Any
) -> httpx2.Response:
    return await client.post(f"{POOLS}/{pool_id}/endpoint-reports", json={"problem": problem} | more)


async def test_a_report_is_taken_and_says_what_it_does(door: Door, pools: ServingPools) -> None:
    async with door.as_(tenant_id=ACME, roles=["Operator"], scope="factory.compute.read") as acme:
        first = await report(acme, poolTenantId=TENANT)
        again = await report(acme, poolTenantId=TENANT)
        own = await report(acme, "mine")
    assert [one.status_code for one in (first, again, own)] == [202] * 3
    until = (START + timedelta(seconds=60)).isoformat().replace("+00:00", "Z")
    assert first.json() == {"tenantId": TENANT, "poolId": "gpu-1", "kept": True, "avoidedUntil": until}
    assert (again.json()["kept"], own.json()["kept"]) == (False, True)
    rows = await pools.rows("SELECT tenant_id, pool_tenant_id, pool_id FROM endpoint_reports ORDER BY 3")
    assert rows == [(ACME, TENANT, "gpu-1"), (ACME, ACME, "mine")]
    assert await pools.serving("health") == "unknown", "a word alone is no probe"


async def test_what_may_not_be_reported(door: Door, pools: ServingPools) -> None:
    """A pool that the caller may not see is told of as one that does not exist."""
    async with door.as_(tenant_id=ACME) as acme:
        hidden = problem(await report(acme, "secret", poolTenantId=TENANT), 404, "unknown_pool")
        nowhere = problem(await report(acme, "absent", poolTenantId=TENANT), 404, "unknown_pool")
        assert hidden["detail"] == nowhere["detail"].replace("absent", "secret")
        problem(await report(acme), 404, "unknown_pool")
        idle = problem(await report(acme, "plain", poolTenantId=TENANT), 409, "no_endpoint")
        assert "no endpoint, or no accelerator memory" in idle["detail"]
    assert await pools.rows("SELECT count(*) FROM endpoint_reports") == [(0,)]


@pytest.mark.parametrize(
    "body",
    [{}, {"problem": ""}, {"problem": "x" * 301}, {"problem": "two\nlines"}, {"problem": 7}, {"reason": "x"}],
)
async def test_a_report_without_a_plain_problem_is_refused(
    door: Door, pools: ServingPools, body: dict[str, Any]
) -> None:
    problem(await door.post(f"{POOLS}/gpu-1/endpoint-reports", body), 422, "invalid_request")


async def test_an_observer_reports_nothing(door: Door, pools: ServingPools) -> None:
    async with door.as_(roles=["Observer"], scope="factory.compute.read") as observer:
        problem(await report(observer), 403, "not_allowed")


async def test_a_pool_that_was_retired_keeps_its_record(door: Door, pools: ServingPools) -> None:
    await pools.add(serving_facts("gone"), state=PoolState.RETIRED)
    assert (await door.get(f"{POOLS}/gone")).json()["health"] == "unknown"
