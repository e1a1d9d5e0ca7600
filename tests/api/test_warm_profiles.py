"""Warm profiles over REST: written at a version, read with where they keep models, one tenant's own."""

from __future__ import annotations

from typing import Any

import pytest

from api.sign_in.principal import Role
from tests.api.door import Door, problem
from tests.api.test_pools import FACTS, POOLS

PROFILES = "/factory/warm-profiles"
CHAT = f"{PROFILES}/chat"
BODY: dict[str, Any] = {
    "models": [{"model": "llama3.3:70b", "vramGb": 42}],
    "pools": {"regions": ["eu-north"], "boundaries": ["regional"]},
    "copies": 2,
    "windows": [{"days": ["monday", "friday"], "start": "08:00", "until": "18:00"}],
}
ANY = {"If-Match": "*"}


async def serving_pool(door: Door, pool_id: str, **other: Any) -> None:
    endpoint = f"ollama+https://{pool_id}.example.net"
    facts = FACTS | {"poolId": pool_id, "vramGb": 80, "gpuCount": 1, "endpointRef": endpoint} | other
    assert (await door.post(POOLS, facts)).status_code == 201
    assert (await door.post(f"{POOLS}/{pool_id}/activate", headers=ANY)).status_code == 200


async def test_a_profile_is_created_and_read_back_whole(door: Door) -> None:
    made = await door.put(CHAT, BODY)
    assert (made.status_code, made.headers["etag"]) == (201, '"1"')
    told = made.json()
    assert {name: told[name] for name in ("models", "copies")} == {
        name: BODY[name] for name in ("models", "copies")
    }
    assert told["pools"] == BODY["pools"] | {"poolIds": [], "kinds": [], "gpuTypes": []}
    assert told["windows"] == [{"days": ["monday", "friday"], "start": "08:00:00", "until": "18:00:00"}]
    assert (told["profileId"], told["enabled"], told["version"]) == ("chat", True, 1)
    again = await door.get(CHAT)
    assert (again.json(), again.headers["etag"]) == (told, '"1"')


async def test_the_same_again_changes_nothing_and_needs_no_version(door: Door) -> None:
    first = await door.put(CHAT, BODY)
    again = await door.put(CHAT, BODY)
    assert (again.status_code, again.json()) == (200, first.json())


async def test_a_change_names_the_version_that_it_replaces(door: Door) -> None:
    await door.put(CHAT, BODY)
    other = BODY | {"copies": 3}
    missing = problem(await door.put(CHAT, other), 428, "version_required")
    assert missing["currentVersion"] == 1
    for tag in ('"7"', 'W/"1"', '"1", "2"', "1"):
        stale = await door.put(CHAT, other, headers={"If-Match": tag})
        assert problem(stale, 412, "version_conflict")["currentVersion"] == 1
        assert stale.headers["etag"] == '"1"'
    changed = await door.put(CHAT, other, headers={"If-Match": '"1"'})
    assert (changed.status_code, changed.json()["copies"], changed.headers["etag"]) == (200, 3, '"2"')
    assert (await door.put(CHAT, BODY, headers=ANY)).headers["etag"] == '"3"'


async def test_a_version_of_what_is_not_there_is_refused(door: Door) -> None:
    problem(await door.put(CHAT, BODY, headers={"If-Match": '"1"'}), 412, "version_conflict")
    problem(await door.get(CHAT), 404, "unknown_warm_profile")
    problem(await door.delete(CHAT, headers=ANY), 404, "unknown_warm_profile")


async def test_a_profile_is_removed_at_its_version(door: Door) -> None:
    await door.put(CHAT, BODY)
    problem(await door.delete(CHAT), 428, "version_required")
    problem(await door.delete(CHAT, headers={"If-Match": '"2"'}), 412, "version_conflict")
    assert (await door.delete(CHAT, headers={"If-Match": '"1"'})).status_code == 204
    problem(await door.get(CHAT), 404, "unknown_warm_profile")


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"models": []}, "models"),
        ({"models": [{"model": "a b", "vramGb": 1}]}, "models.0.model"),
        ({"models": [{"model": "a", "vramGb": 0}]}, "models.0.vramGb"),
        ({"copies": 0}, "copies"),
        ({"windows": [{"start": "8", "until": "18:00"}]}, "windows.0.start"),
        ({"windows": [{"start": "08:00", "until": "24:00"}]}, "windows.0.until"),
        ({"windows": [{"days": ["someday"], "start": "08:00", "until": "18:00"}]}, "windows.0.days.0"),
        ({"pools": {"kinds": ["toaster"]}}, "pools.kinds.0"),
        ({"pools": {"colour": ["red"]}}, "pools.colour"),
        ({"profileId": "other"}, "profileId"),
    ],
)
async def test_a_profile_that_cannot_be_is_refused_by_field(
    door: Door, change: dict[str, Any], field: str
) -> None:
    told = problem(await door.put(CHAT, BODY | change), 422, "invalid_request")
    assert field in {error["field"] for error in told["errors"]}


async def test_a_profile_without_models_is_told_so(door: Door) -> None:
    told = problem(await door.put(CHAT, BODY | {"models": []}), 422, "invalid_request")
    assert told["detail"] == "body models is an empty list; allowed is at least 1 of them"


async def test_a_model_stands_once(door: Door) -> None:
    twice = [{"model": "a", "vramGb": 1}, {"model": "a:latest", "vramGb": 2}]
    told = problem(await door.put(CHAT, BODY | {"models": twice}), 422, "invalid_request")
    assert "more than once" in told["detail"]
    assert told["whatToDo"] == "Name each model once."


async def test_profiles_are_listed_in_pages(door: Door) -> None:
    for name in ("c", "a", "b"):
        assert (await door.put(f"{PROFILES}/{name}", BODY)).status_code == 201
    first = (await door.get(PROFILES, pageSize=2)).json()
    assert [one["profileId"] for one in first["items"]] == ["a", "b"]
    rest = (await door.get(PROFILES, pageSize=2, pageToken=first["nextPageToken"])).json()
    assert ([one["profileId"] for one in rest["items"]], rest["nextPageToken"]) == (["c"], None)


async def test_a_profile_says_where_its_models_are_kept(door: Door) -> None:
    for number in range(1, 4):
        await serving_pool(door, f"gpu-{number}")
    always = BODY | {"windows": []}
    told = (await door.put(CHAT, always)).json()
    (kept,) = told["kept"]
    assert (told["inForce"], kept["model"], len(kept["pools"]), kept["warm"]) == (True, "llama3.3:70b", 2, [])
    await door.estate.rows(
        "INSERT INTO cached_models (tenant_id, pool_id, model, vram_gb, state, loaded_at, last_used_at)"
        " VALUES ('platform', :pool, 'llama3.3:70b', 42, 'loaded', now(), now()) RETURNING 1",
        pool=kept["pools"][0],
    )
    assert (await door.get(CHAT)).json()["kept"][0]["warm"] == kept["pools"][:1]
    off = (await door.put(CHAT, always | {"enabled": False}, headers=ANY)).json()
    assert (off["inForce"], off["kept"]) == (False, [])


async def test_profiles_belong_to_their_tenant(door: Door) -> None:
    await door.put(CHAT, BODY)
    async with door.as_(tenant_id="acme") as other:
        assert (await other.get(PROFILES)).json()["items"] == []
        problem(await other.get(CHAT), 404, "unknown_warm_profile")
        assert (await other.put(CHAT, json=BODY)).status_code == 201
    assert (await door.get(CHAT)).json()["version"] == 1


async def test_only_administrators_write(door: Door) -> None:
    await door.put(CHAT, BODY)
    async with door.as_(roles=[Role.OPERATOR]) as operator:
        assert (await operator.get(CHAT)).status_code == 200
        problem(await operator.put(CHAT, json=BODY), 403, "not_allowed")
        problem(await operator.delete(CHAT, headers=ANY), 403, "not_allowed")
