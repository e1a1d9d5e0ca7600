"""No byte of one tenant reaches another: every route is asked, by list, by id and with nonsense.

One tenant fills everything that it can with a word that stands nowhere else. Another tenant then asks every
route that there is. No answer has the word, and for an id that the first tenant really has, the answer is
the one for an id that nobody has: nothing tells the two apart.
"""

from __future__ import annotations

import re
from typing import Any
from uuid import uuid4

import httpx2
import pytest

from api.app import routes
from api.sign_in.needs import routes_of
from domain.lifecycle import EventType
from tests.api.door import Door, pods
from tests.domain.drains import happened, honest
from tests.store.histories import keep, own

CANARY = "canary"
OWNER, OTHER = "tenant-a", "tenant-b"
POOLS = "/factory/compute-pools"
ANY = {"If-Match": "*"}
POOL = {
    "kind": "local_gpu_server",
    "region": "canary-region",
    "securityBoundary": "private",
    "gpuType": "canary-gpu",
    "gpuCount": 1,
    "vramGb": 80,
    "cpuCores": 8,
    "ramGb": 64,
    "pricePerHourUsd": "1.25",
    "endpointRef": "https://canary.models.example.net",
}
MODEL = {
    "deploymentId": "canary-deployment",
    "model": "canary-model",
    "vramGb": 40,
    "boundary": "private",
    "regions": ["canary-region"],
}
SHARED = POOL | {
    "region": "eu-north",
    "gpuType": "a100",
    "securityBoundary": "shared",
    "endpointRef": "https://shared.models.example.net",
}
UNSHOWN = re.compile(r'"(?:requestId|instance)": ?"[^"]*"|Request [0-9a-f]{32}')


async def _ok(answer: httpx2.Response) -> Any:
    assert answer.status_code < 300, f"{answer.request.method} {answer.request.url}: {answer.text}"
    return answer.json()


async def _fill(door: Door) -> dict[str, str]:
    """What the owner has, as the parameters of paths: every id that it could choose has the word in it."""
    platform = door.http
    await _ok(await platform.post(POOLS, json=SHARED | {"poolId": "shared-gpu"}))
    await _ok(await platform.post(f"{POOLS}/shared-gpu/activate", headers=ANY))
    owner = door.as_(tenant_id=OWNER)
    await _ok(await owner.post(POOLS, json=POOL | {"poolId": "canary-pool"}))
    await _ok(await owner.post(f"{POOLS}/canary-pool/activate", headers=ANY))
    await door.estate.rows("UPDATE pool_capacity SET reported_at = :at", at=door.estate.clock())
    placed = await _ok(await owner.post(f"{POOLS}/placements", json=MODEL))
    assert placed["chosenPoolId"] == "canary-pool", placed
    on_shared = MODEL | {"boundary": "shared", "regions": ["eu-north"]}
    held = await _ok(await owner.post(f"{POOLS}/placements", json=on_shared))
    assert held["chosenPoolId"] == "shared-gpu", held
    warm = {"model": "canary-warm", "vramGb": 10}
    request = await _ok(await owner.post(f"{POOLS}/canary-pool/warm", json=warm))
    profile = {
        "models": [{"model": "canary-kept", "vramGb": 10}],
        "pools": {"poolIds": ["canary-pool"]},
        "copies": 1,
    }
    await _ok(await owner.put("/factory/warm-profiles/canary-profile", json=profile))
    partition = {"region": "canary-region", "scheduler": "kubernetes"}
    await _ok(await owner.put("/partitions/canary-partition", json=partition))
    await _ok(await owner.put("/contracts/canary-contract", json={"tier": "T4", "floorShare": "0"}))
    workload = {
        "partitionId": "canary-partition",
        "contractId": "canary-contract",
        "ownerTeam": "canary-team",
    }
    await _ok(await owner.put("/workloads/canary-workload", json=workload))
    await _ok(await owner.post("/workloads/canary-workload/claims", json=pods(3)))
    audit = await _ok(await owner.post("/factory/audits", json={}))
    await own(door.estate.engine, "canary-instance", tenant=OWNER, pool="canary-node-pool")
    drained = [happened(EventType.CHECKPOINTED, 1, detail="canary-detail"), *honest()]
    await keep(door.estate.engine, "canary-instance", drained)
    return {
        "poolId": "canary-pool",
        "step": "drain",
        "placementId": placed["placementId"],
        "requestId": request["requestId"],
        "profileId": "canary-profile",
        "partitionId": "canary-partition",
        "contractId": "canary-contract",
        "workloadId": "canary-workload",
        "auditId": audit["auditId"],
        "instanceId": "canary-instance",
    }


def _missing(name: str, real: str) -> str:
    """An id of the same shape that nobody has."""
    return str(uuid4()) if name in ("placementId", "requestId", "auditId") else real.replace(CANARY, "nobody")


def _paths(template: str, ids: dict[str, str]) -> tuple[str, str]:
    """The path with the owner's ids, and with ids that nobody has."""
    names = re.findall(r"{(\w+)}", template)
    real = {name: ids[name] for name in names}
    none = {name: _missing(name, ids[name]) for name in names}
    return template.format(**real), template.format(**none)


def _plain(answer: httpx2.Response, path: str, ids: dict[str, str]) -> tuple[int, str]:
    """Status and body, without what only repeats the request."""
    body = UNSHOWN.sub("", answer.text)
    for word in sorted({*path.split("/"), *ids.values()}, key=len, reverse=True):
        if len(word) > 3:
            body = body.replace(word, "ID")
    return answer.status_code, body


@pytest.fixture
def operations() -> list[tuple[str, str]]:
    """Every method and path template of the service."""
    return sorted(set(routes_of(routes())))


async def test_no_byte_of_a_tenant_reaches_another(door: Door, operations: list[tuple[str, str]]) -> None:
    ids = await _fill(door)
    stranger = door.as_(tenant_id=OTHER)
    asked = 0
    for method, template in operations:
        if method == "ANY" or template.startswith("/sign-"):
            continue
        real, none = _paths(template, ids)
        answers = []
        for path in (real, none):
            body: dict[str, Any] | None = {} if method in ("POST", "PUT", "PATCH") else None
            answers.append(await stranger.request(method, path, json=body, headers=ANY))
        told, control = (
            _plain(one, path, {**ids, "none": none}) for one, path in zip(answers, (real, none), strict=True)
        )
        assert told[0] < 500, (method, real, answers[0].text)
        assert CANARY not in told[1], (method, real)
        assert CANARY not in str({k: v for k, v in answers[0].headers.items() if k != "location"})
        assert told == control, (method, template)
        asked += 1
    assert asked > 30


async def test_the_owner_finds_the_word_everywhere(door: Door) -> None:
    """The same question to the owner has it: the test above looks where something is to be seen."""
    await _fill(door)
    owner = door.as_(tenant_id=OWNER)
    for path in (
        POOLS,
        f"{POOLS}/placements",
        "/factory/warm-profiles",
        "/partitions",
        "/contracts",
        "/workloads",
        "/nodes",
        "/drains",
        "/drains/canary-instance",
        "/ui/nodes",
        "/ui/drains",
        "/ui/drains/canary-instance",
        "/ui/pools",
        "/ui/workloads",
    ):
        answer = await owner.get(path, headers={"Accept": "text/html" if "/ui/" in path else "*/*"})
        assert answer.status_code == 200, path
        assert CANARY in answer.text, path


async def test_a_word_of_its_own_on_a_shared_pool_stays_its_own(door: Door) -> None:
    """Who holds which model on a shared pool is told to nobody but them and the platform."""
    await _fill(door)
    for path in (
        POOLS,
        f"{POOLS}/shared-gpu?tenantId=platform",
        "/ui/pools",
        "/ui/pools/shared-gpu?tenantId=platform",
    ):
        answer = await door.as_(tenant_id=OTHER).get(path, headers={"Accept": "text/html,*/*"})
        assert answer.status_code == 200, (path, answer.text)
        assert "shared-gpu" in answer.text, path
        assert CANARY not in answer.text, path


async def test_ids_of_another_tenant_can_be_taken_as_if_they_were_free(door: Door) -> None:
    await _fill(door)
    other = door.as_(tenant_id=OTHER)
    own = POOL | {"region": "eu-south", "gpuType": "b", "endpointRef": "https://b.models.example.net"}
    assert (await other.post(POOLS, json=own | {"poolId": "canary-pool"})).status_code == 201
    assert (
        await other.put("/contracts/canary-contract", json={"tier": "T4", "floorShare": "0"})
    ).status_code == 201
    facts = (await other.get(f"{POOLS}/canary-pool")).json()
    assert (facts["tenantId"], facts["region"]) == (OTHER, "eu-south")


async def test_events_of_a_tenant_speak_of_that_tenant_alone(door: Door) -> None:
    """Whoever consumes one tenant's events reads nothing of another's, whatever pool they share."""
    await _fill(door)
    rows = await door.estate.rows("SELECT tenant_id, topic, payload::text FROM outbox")
    assert {tenant for tenant, _, _ in rows} == {"platform", OWNER}
    for tenant, topic, payload in rows:
        assert tenant == OWNER or CANARY not in payload, (tenant, topic)
    async with door.as_(tenant_id=OTHER) as other:
        for path in ("/ui/pools/canary-pool", f"{POOLS}/canary-pool/history"):
            answer = await other.get(path, headers={"Accept": "text/html,*/*"})
            assert answer.status_code == 404, path
