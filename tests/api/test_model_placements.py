"""Placements of models over REST: placed once, explained, listed, released, and nobody else's."""

from __future__ import annotations

from decimal import Decimal
from typing import Any
from uuid import uuid4

import httpx2
import pytest
import pytest_asyncio

from domain.pool import SecurityBoundary
from domain.reasons import MODEL_REASON_TEXT, Reason
from tests.activities.model_placing import MODEL, PLATFORM, ServingEstate
from tests.api.door import Door, problem

WHERE = "/factory/compute-pools/placements"
ASKED: dict[str, Any] = {
    "deploymentId": "assistant",
    "model": MODEL,
    "vramGb": 70,
    "boundary": "private",
    "regions": ["eu-north"],
}


@pytest_asyncio.fixture
async def serving(door: Door) -> ServingEstate:
    """Three pools of the platform's own, as in the example: too small, fitting, cheap and forbidden."""
    estate = ServingEstate(door.estate.engine, door.estate.engine, door.estate.clock)
    await estate.pool("local-gpu", PLATFORM, vram_gb=24, price_per_hour_usd=Decimal(0))
    await estate.pool("cloud-a", PLATFORM, vram_gb=80, price_per_hour_usd=Decimal("3.50"))
    await estate.pool("cloud-b", PLATFORM, vram_gb=80, price_per_hour_usd=Decimal("1.20"), region="us-east")
    return estate


async def place(door: Door, key: str | None = None, **other: Any) -> httpx2.Response:
    headers = {} if key is None else {"Idempotency-Key": key}
    return await door.post(WHERE, ASKED | other, headers=headers)


async def test_a_model_is_placed_and_every_pool_has_its_reason(door: Door, serving: ServingEstate) -> None:
    answer = await place(door)
    assert answer.status_code == 201, answer.text
    told = answer.json()
    assert (told["outcome"], told["chosenPoolTenantId"], told["chosenPoolId"]) == (
        "placed",
        PLATFORM,
        "cloud-a",
    )
    assert [(one["poolId"], one["kept"], one["reason"]) for one in told["candidates"]] == [
        ("cloud-a", True, None),
        ("cloud-b", False, "region"),
        ("local-gpu", False, "memory"),
    ]
    for one in told["candidates"]:
        if one["reason"] is not None:
            assert one["text"] == MODEL_REASON_TEXT[Reason(one["reason"])]
    assert {one["reason"]: one["pools"] for one in told["countsByReason"]} == {"region": 1, "memory": 1}
    assert told["candidates"][1]["pricePerHourUsd"] == "1.2"
    assert told["text"] == f"{MODEL} goes to pool cloud-a, where loading it takes about 40 s"
    assert (told["warm"], told["coldStartSeconds"], told["state"]) == (False, 40, "held")
    assert told["requirements"]["regions"] == ["eu-north"]
    assert answer.headers["location"] == f"{WHERE}/{told['placementId']}"
    assert await serving.committed("cloud-a", PLATFORM) == 70


async def test_endpoint_and_credential_are_for_whoever_places(door: Door, serving: ServingEstate) -> None:
    answer = await place(door)
    told = answer.json()
    assert told["endpointRef"] == "https://cloud-a.example.net"
    assert told["credential"]["token"] == "secret-1-of-cloud-a"
    assert answer.headers["cache-control"] == "no-store"
    later = (await door.get(f"{WHERE}/{told['placementId']}")).json()
    assert "credential" not in later
    assert later == {name: value for name, value in told.items() if name not in ("endpointRef", "credential")}


async def test_a_cold_placement_is_started_and_told_of_its_release(
    door: Door, serving: ServingEstate
) -> None:
    told = (await place(door)).json()
    await _settled(door)
    assert [str(one.placement_id) for one in door.starter.models] == [told["placementId"]]
    assert told["workflowId"] == f"placement/model/platform/{told['placementId']}"
    assert told["temporalUrl"].endswith(f"placement%2Fmodel%2Fplatform%2F{told['placementId']}")
    released = await door.post(f"{WHERE}/{told['placementId']}/release")
    await _settled(door)
    assert (released.status_code, released.json()["state"]) == (200, "released")
    assert [str(one.placement_id) for one in door.starter.models_told] == [told["placementId"]]
    assert await serving.committed("cloud-a", PLATFORM) == 0


async def test_a_warm_placement_needs_no_workflow(door: Door, serving: ServingEstate) -> None:
    await serving.load("cloud-a", PLATFORM)
    told = (await place(door)).json()
    assert (told["warm"], told["workflowId"], told["temporalUrl"]) == (True, None, None)
    assert told["text"] == f"{MODEL} goes to pool cloud-a, where it is loaded"
    await _settled(door)
    assert door.starter.models == []


async def test_temporal_away_keeps_nobody_from_placing(door: Door, serving: ServingEstate) -> None:
    door.starter.down = True
    assert (await place(door)).status_code == 201
    await _settled(door)


@pytest.mark.parametrize(
    ("asked", "outcome", "text"),
    [
        ({"regions": ["us-west"]}, "policy_denied", "no pool satisfies the boundary and the regions"),
        ({"vramGb": 100}, "no_capacity", "none of them can take it now"),
    ],
)
async def test_no_pool_is_an_answer(
    door: Door, serving: ServingEstate, asked: dict[str, Any], outcome: str, text: str
) -> None:
    answer = await place(door, **asked)
    told = answer.json()
    assert (answer.status_code, told["outcome"], told["state"]) == (201, outcome, "none")
    assert text in told["text"]
    for name in ("chosenPoolId", "endpointRef", "credential", "expiresAt", "workflowId"):
        assert told[name] is None
    assert len(told["candidates"]) == 3
    ended = await door.post(f"{WHERE}/{told['placementId']}/release")
    assert ended.json()["state"] == "none"


async def test_a_repeated_request_has_its_first_answer_and_a_new_credential(
    door: Door, serving: ServingEstate
) -> None:
    first, again = await place(door, "one"), await place(door, "one")
    assert (first.status_code, again.status_code) == (201, 201)
    assert again.headers["idempotency-replayed"] == "true"
    assert "idempotency-replayed" not in first.headers
    credentials = [one.json()["credential"]["token"] for one in (first, again)]
    assert credentials == ["secret-1-of-cloud-a", "secret-2-of-cloud-a"]
    assert again.json() | {"credential": None} == first.json() | {"credential": None}
    assert await serving.run("SELECT count(*) FROM model_placements") == [(1,)]
    assert "secret-" not in str(await serving.run("SELECT answer FROM idempotency_keys"))
    other = await place(door, "two")
    assert other.json()["placementId"] != first.json()["placementId"]


async def test_a_repeated_request_is_answered_as_at_first_after_its_release(
    door: Door, serving: ServingEstate
) -> None:
    first = (await place(door, "one")).json()
    await door.post(f"{WHERE}/{first['placementId']}/release")
    again = (await place(door, "one")).json()
    assert (again["state"], again["credential"]) == ("held", None)
    now = (await door.get(f"{WHERE}/{first['placementId']}")).json()
    assert now["state"] == "released"


async def test_a_key_stands_for_one_request(door: Door, serving: ServingEstate) -> None:
    await place(door, "one")
    problem(await place(door, "one", vramGb=60), 422, "idempotency_key_reused")
    door.estate.clock.move(24 * 3600 + 1)
    await serving.report()
    assert (await place(door, "one", vramGb=60)).status_code == 201


async def test_without_secrets_nothing_is_placed_and_the_key_stays_free(
    door: Door, serving: ServingEstate
) -> None:
    door.vault.down = True
    refused = await place(door, "one")
    problem(refused, 503, "secrets_unavailable")
    assert refused.headers["retry-after"] == "2"
    assert await serving.committed("cloud-a", PLATFORM) == 0
    door.vault.down = False
    assert (await place(door, "one")).status_code == 201


async def test_placements_are_listed_newest_first_in_pages(door: Door, serving: ServingEstate) -> None:
    names = []
    for number in range(5):
        names.append((await place(door, deploymentId=f"d-{number}")).json()["placementId"])
        door.estate.clock.move(1)
    found: list[Any] = []
    token = None
    for _ in range(3):
        query = {"pageSize": 2} | ({"pageToken": token} if token else {})
        page = (await door.get(WHERE, **query)).json()
        found += page["items"]
        token = page["nextPageToken"]
    assert token is None
    assert [one["placementId"] for one in found] == names[::-1]
    assert "candidates" not in found[0]


@pytest.mark.parametrize(
    ("query", "count"),
    [
        ({}, 3),
        ({"state": "held"}, 1),
        ({"outcome": "policy_denied"}, 1),
        ({"deploymentId": "assistant", "state": "released"}, 1),
        ({"model": "qwen"}, 0),
        ({"model": MODEL}, 3),
        ({"model": f"{MODEL}:latest"}, 3),
        ({"poolId": "cloud-a"}, 2),
    ],
)
async def test_lists_are_filtered(
    door: Door, serving: ServingEstate, query: dict[str, Any], count: int
) -> None:
    first = (await place(door)).json()
    await door.post(f"{WHERE}/{first['placementId']}/release")
    await place(door)
    await place(door, regions=["us-west"])
    assert len((await door.get(WHERE, **query)).json()["items"]) == count


async def test_a_page_token_belongs_to_its_filters(door: Door, serving: ServingEstate) -> None:
    for _ in range(2):
        await place(door)
    token = (await door.get(WHERE, pageSize=1)).json()["nextPageToken"]
    problem(await door.get(WHERE, pageSize=1, pageToken=token, state="held"), 422, "bad_page_token")
    problem(await door.get(WHERE, pageToken="nonsense"), 422, "bad_page_token")
    problem(await door.get(WHERE, page=1), 422, "invalid_request")


async def test_a_renewed_placement_is_held_longer(door: Door, serving: ServingEstate) -> None:
    told = (await place(door)).json()
    where = f"{WHERE}/{told['placementId']}"
    door.estate.clock.move(300)
    renewed = await door.post(f"{where}/renew")
    assert renewed.status_code == 200
    assert renewed.json()["expiresAt"] > told["expiresAt"]
    door.estate.clock.move(601)
    over = problem(await door.post(f"{where}/renew"), 409, "placement_ended")
    assert "expired at" in over["detail"]
    await door.post(f"{where}/release")
    assert "released at" in problem(await door.post(f"{where}/renew"), 409, "placement_ended")["detail"]


async def test_what_is_not_there_is_unknown(door: Door) -> None:
    for method, path in (
        ("GET", f"{WHERE}/{uuid4()}"),
        ("POST", f"{WHERE}/{uuid4()}/release"),
        ("POST", f"{WHERE}/{uuid4()}/renew"),
    ):
        problem(await door.http.request(method, path), 404, "unknown_placement")
    problem(await door.get(f"{WHERE}/one"), 422, "invalid_request")


@pytest.mark.parametrize(
    "wrong",
    [
        {"vramGb": 0},
        {"vramGb": None},
        {"boundary": "open"},
        {"regions": ["EU"]},
        {"regions": ["eu-north"] * 65},
        {"model": "a b"},
        {"maxPricePerHourUsd": "-1"},
        {"maxPricePerHourUsd": "0.1234567"},
        {"latencyClass": "soon"},
        {"poolId": "cloud-a"},
    ],
)
async def test_a_wrong_request_is_refused(door: Door, wrong: dict[str, Any]) -> None:
    problem(await place(door, **wrong), 422, "invalid_request")


async def test_another_tenant_sees_and_ends_nothing(door: Door, serving: ServingEstate) -> None:
    await serving.pool("shared", PLATFORM, security_boundary=SecurityBoundary.SHARED)
    ours = (await place(door)).json()
    async with door.as_(tenant_id="acme") as acme:
        for path in (f"{WHERE}/{ours['placementId']}",):
            problem(await acme.get(path), 404, "unknown_placement")
        for action in ("release", "renew"):
            problem(await acme.post(f"{WHERE}/{ours['placementId']}/{action}"), 404, "unknown_placement")
        assert (await acme.get(WHERE)).json()["items"] == []
        theirs = await acme.post(WHERE, json=ASKED | {"boundary": "shared"}, headers={"Idempotency-Key": "k"})
        assert {one["poolId"] for one in theirs.json()["candidates"]} == {"shared"}
        again = await acme.post(WHERE, json=ASKED | {"boundary": "shared"}, headers={"Idempotency-Key": "k"})
        assert again.json()["placementId"] == theirs.json()["placementId"]
    assert len((await door.get(WHERE)).json()["items"]) == 1


@pytest.mark.parametrize(
    ("role", "scope", "status"),
    [
        ("Operator", "factory.compute.read", 201),
        ("PlatformAdmin", "factory.compute.admin", 201),
        ("Observer", "factory.compute.read", 403),
        ("Observer", "factory.compute.admin", 403),
    ],
)
async def test_who_may_place(door: Door, serving: ServingEstate, role: str, scope: str, status: int) -> None:
    async with door.as_(tenant_id=PLATFORM, roles=[role], scope=scope) as somebody:
        assert (await somebody.post(WHERE, json=ASKED)).status_code == status
        assert (await somebody.get(WHERE)).status_code == 200


async def test_placements_are_counted_for_operators(door: Door, serving: ServingEstate) -> None:
    name, labels = (
        "connectsoft_factory_compute_pools_placements_total",
        {
            "tenant": PLATFORM,
            "outcome": "policy_denied",
        },
    )
    before = door.registry.get_sample_value(name, labels) or 0
    await place(door, regions=["us-west"])
    assert door.registry.get_sample_value(name, labels) == before + 1


async def _settled(door: Door) -> None:
    """Wait for what Temporal is told in the background."""
    app: Any = door.app
    while not hasattr(app, "state"):
        app = app._app
    await app.state.placing.settle()
