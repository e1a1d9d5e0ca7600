"""What a known node is answered: its bundles, and nothing to whoever only says that it is the node."""

from __future__ import annotations

import json
import secrets
from datetime import timedelta
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from store import nodes as store_nodes
from tests.api.door import T1, Door, problem
from tests.api.node_ways import (
    NOVA,
    OTHER,
    VENDORDATA,
    ask_token,
    launched,
    node_at,
    read,
    registered,
    ring_of,
    token_of,
)
from tests.api.nodes_scene import BASIC, SERVER
from tests.api.sign_in.bare import bare
from tests.estates import Clock
from wire.node_requests import MAX_BODY_BYTES, MAX_SKEW, Asked
from wire.signing import KeyRing


async def test_a_changed_contract_is_with_the_node_at_its_next_request(door: Door) -> None:
    await launched(door)
    node = await registered(door)
    changed = T1 | {"drainBudgetSeconds": 60, "repoCommit": "abc123"}
    assert (await door.put("/contracts/orders-daily", changed)).status_code == 200
    answer = await node.bundle(held=2)
    bundle = read(answer.content, ring_of(door), newer_than=2)
    assert (bundle.version, bundle.drain.budget_seconds, bundle.contract_commit) == (3, 60, "abc123")
    assert (await node.bundle(held=3)).status_code == 304
    # What changes nothing for a node is no reason for another bundle.
    assert (await door.put("/contracts/orders-daily", changed | {"floorShare": "0.4"})).status_code == 200
    assert (await node.bundle(held=3)).status_code == 304


async def test_a_key_is_announced_before_it_signs_and_believed_after(door: Door) -> None:
    """A node follows every step with the keys of the bundle that it held before."""
    await launched(door)
    node = await registered(door)
    held = read((await node.bundle()).content, ring_of(door))
    now = door.estate.clock()
    door.keys.add("sco-2", signs_from=now + timedelta(hours=1))
    announced = read((await node.bundle()).content, KeyRing(held.trust.bundle_keys), held.version)
    assert set(announced.trust.bundle_keys) == {"sco-1", "sco-2"}
    door.estate.clock.move(3601)
    letter = (await node.bundle()).content
    assert json.loads(letter)["keyId"] == "sco-2"
    followed = read(letter, KeyRing(announced.trust.bundle_keys), announced.version)
    door.keys.drop("sco-1")
    last = read((await node.bundle()).content, KeyRing(followed.trust.bundle_keys), followed.version)
    assert set(last.trust.bundle_keys) == {"sco-2"}
    assert last.version == 5


async def test_old_versions_of_a_bundle_do_not_pile_up(door: Door) -> None:
    await launched(door)
    node = await registered(door)
    for budget in range(50, 65):
        await door.put("/contracts/orders-daily", T1 | {"drainBudgetSeconds": budget})
        assert (await node.bundle()).status_code == 200
    versions = await door.estate.rows("SELECT version FROM bundles ORDER BY 1")
    assert [version for (version,) in versions] == list(range(8, 18))


async def test_a_node_reads_no_bundle_but_its_own(door: Door) -> None:
    await launched(door, SERVER, OTHER)
    node, other = await registered(door), await registered(door, OTHER)
    path = f"/nodes/{OTHER}/bundle"
    for headers in (
        node.signed(Asked("GET", path)),
        node.signed(Asked("GET", path), instance_id=OTHER),
        other.signed(Asked("GET", f"/nodes/{SERVER}/bundle")),
    ):
        problem(await node.http.get(path, headers=headers), 401, "node_refused")
    assert (await other.bundle()).status_code == 200


async def test_a_request_is_answered_once(door: Door) -> None:
    await launched(door)
    node = await registered(door)
    path = f"/nodes/{SERVER}/bundle"
    headers = node.signed(Asked("GET", path))
    assert (await node.http.get(path, headers=headers)).status_code == 200
    problem(await node.http.get(path, headers=headers), 401, "node_refused")
    door.estate.clock.move(MAX_SKEW.total_seconds() + 1)
    problem(await node.http.get(path, headers=headers), 401, "node_refused")


async def test_what_is_remembered_of_requests_is_bounded(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_nodes, "REQUESTS_PER_WINDOW", 5)
    await launched(door)
    node = await registered(door)
    for _ in range(5):
        assert (await node.bundle()).status_code == 200
    refused = await node.bundle()
    problem(refused, 429, "too_many_requests")
    assert refused.headers["retry-after"]
    assert await door.estate.value("SELECT count(*) FROM node_nonces") == 5
    door.estate.clock.move(2 * MAX_SKEW.total_seconds() + 1)
    assert (await node.bundle()).status_code == 200
    assert await door.estate.value("SELECT count(*) FROM node_nonces") == 1


async def test_a_changed_request_is_not_the_nodes(door: Door) -> None:
    await launched(door)
    node = await registered(door)
    path = f"/nodes/{SERVER}/bus-credentials"
    body = json.dumps({"busKey": node.bus.public}).encode()
    json_type = {"Content-Type": "application/json"}

    def good(**changed: Any) -> dict[str, str]:
        return node.signed(Asked("POST", path, body), **changed) | json_type

    asked: list[tuple[str, str, bytes, dict[str, str]]] = [
        ("POST", path, body + b" ", good()),
        ("POST", path + "?x=1", body, good()),
        ("POST", path, body, good(at=door.estate.clock() - MAX_SKEW - timedelta(seconds=1))),
        ("POST", path, body, good(at=door.estate.clock() + MAX_SKEW + timedelta(seconds=1))),
        ("POST", path, body, good(key=Ed25519PrivateKey.generate())),
        ("POST", path, body, good() | {"SCO-Nonce": secrets.token_urlsafe(16)}),
        ("POST", path, body, json_type),
        ("GET", f"/nodes/{SERVER}/bundle", b"", good()),
    ]
    for method, target, content, headers in asked:
        answer = await node.http.request(method, target, content=content, headers=headers)
        problem(answer, 401, "node_refused")
        assert answer.headers["www-authenticate"] == "SCO-Node"
    assert (await node.bus_credentials()).status_code == 200


async def test_the_answer_to_whoever_is_no_node_is_always_the_same(door: Door) -> None:
    await launched(door)
    node, stranger = await registered(door), node_at(door, OTHER)
    path = f"/nodes/{SERVER}/bundle"
    answers = [
        await stranger.bundle(),
        await node.http.get(path),
        await node.http.get(path, headers=node.signed(Asked("GET", "/"))),
        await door.http.get(path),
        await node.register("wrong"),
    ]
    told = [{k: v for k, v in one.json().items() if k not in ("instance", "requestId")} for one in answers]
    assert all(one == told[0] for one in told)
    assert {one.headers["www-authenticate"] for one in answers} == {"SCO-Node"}


async def test_an_instance_that_has_ended_or_was_revoked_is_no_node(door: Door) -> None:
    await launched(door, SERVER, OTHER)
    node, other = await registered(door), await registered(door, OTHER)
    for state in ("active", "releasing"):
        await door.estate.rows(
            "UPDATE instances SET state = :state WHERE server_id = :s", state=state, s=SERVER
        )
        assert (await node.bundle()).status_code == 200, "a node that is given back still drains"
    await door.estate.rows("UPDATE instances SET state = 'gone' WHERE server_id = :s", s=SERVER)
    problem(await node.bundle(), 401, "node_refused")
    async with door.estate.engine.begin() as connection:
        await store_nodes.revoke(connection, "platform", OTHER, by="ada", at=door.estate.clock())
    problem(await other.bundle(), 401, "node_refused")
    assert (await ask_token(door, OTHER)).json() == {}


async def test_large_bodies_are_refused_before_anything_else(door: Door) -> None:
    await launched(door)
    node = await registered(door)
    path, body = f"/nodes/{SERVER}/bus-credentials", b" " * (MAX_BODY_BYTES + 1)
    headers = node.signed(Asked("POST", path, body)) | {"Content-Type": "application/json"}
    problem(await node.http.post(path, content=body, headers=headers), 413, "body_too_large")

    async def unsaid() -> Any:
        yield body

    headers = node.signed(Asked("POST", path, body)) | {"Content-Type": "application/json"}
    problem(await node.http.post(path, content=unsaid(), headers=headers), 413, "body_too_large")


async def test_a_body_is_not_read_for_who_is_no_node(door: Door) -> None:
    await launched(door)
    sent = 0

    async def body() -> Any:
        nonlocal sent
        sent += 1
        yield b"{}"

    path = f"/nodes/{SERVER}/bus-credentials"
    headers = node_at(door).signed(Asked("POST", path, b"{}")) | {"Content-Type": "application/json"}
    problem(await node_at(door).http.post(path, content=body(), headers=headers), 401, "node_refused")
    assert sent == 0


async def test_a_wrong_body_of_a_node_says_what_is_wrong(door: Door) -> None:
    await launched(door)
    node = await registered(door)
    path = f"/nodes/{SERVER}/bus-credentials"
    for body, status in ((b'{"busKey": "x"}', 422), (b"{", 400), (b"", 422)):
        headers = node.signed(Asked("POST", path, body)) | {"Content-Type": "application/json"}
        assert (await node.http.post(path, content=body, headers=headers)).status_code == status


async def test_a_hall_that_no_node_can_name_is_told(door: Door) -> None:
    await launched(door)
    await door.estate.rows("UPDATE pools SET hall = 'eu.north'")
    told = problem(await node_at(door).register(await token_of(door)), 409, "no_bundle")
    assert "hall" in told["detail"]


async def test_without_a_node_file_nodes_are_not_served() -> None:
    async with bare(Clock()) as service:
        problem(await service.http.post(VENDORDATA, json=NOVA, headers=BASIC), 404, "no_nodes")
        problem(await service.http.get(f"/nodes/{SERVER}/bundle"), 404, "no_nodes")
