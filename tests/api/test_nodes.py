"""A node's way in: a token through the provider, an identity, bundles and entry to the bus."""

from __future__ import annotations

import base64
import json
import secrets
from datetime import timedelta
from typing import Any

import httpx2
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from structlog.testing import capture_logs

from store import nodes as store_nodes
from store.nodes import NodeRow
from tests.activities.deciding import halls
from tests.api.door import ORDERS, T1, Door, client_of, problem
from tests.api.nodes_scene import BASIC, BUS, NOTICE_KEY, SECRET, SERVER, SERVERS, NodeClient
from tests.api.sign_in.bare import bare
from tests.estates import Clock
from wire.bundle import Bundle, DrainPath, DrainSignal, read_bundle
from wire.bus_credentials import agent_permissions
from wire.node_requests import MAX_BODY_BYTES, MAX_SKEW, Asked
from wire.signing import KeyRing

VENDORDATA = "/nodes/vendordata"
OTHER = SERVER.replace("0001", "0002")
NOVA = {
    "project-id": "p",
    "instance-id": SERVER,
    "image-id": "i",
    "user-data": None,
    "hostname": "sco-1",
    "metadata": {"sco_tenant": "someone-else"},
    "boot-roles": "",
}

NOT_THE_SECRET = (
    None,
    "Basic",
    "Basic !!!",
    f"Bearer {SECRET}x",
    f"Bearer {SECRET[:-1]}",
    "Bearer ",
    "Basic " + base64.b64encode(f"{SECRET}:nova".encode()).decode(),
    "Basic " + base64.b64encode(SECRET.encode()).decode(),
    "Basic " + base64.b64encode(b"nova:").decode(),
    f"Digest {SECRET}",
)
WRONG_FIELDS: tuple[tuple[str, object], ...] = (
    ("instanceId", "a b"),
    ("instanceId", ""),
    ("token", ""),
    ("token", "x" * 200),
    ("token", "\x00"),
    ("publicKey", "AAAA"),
    ("publicKey", "!" * 44),
    ("publicKey", "A" * 42 + "B="),
    ("busKey", "A" + "A" * 55),
    ("busKey", "SU"),
    ("busKey", None),
)


async def launched(door: Door, *servers: str) -> None:
    """Instances of orders-daily that the provider runs."""
    await door.estate.open(halls())
    assert (await door.put("/contracts/orders-daily", T1)).status_code == 201
    assert (await door.put("/workloads/orders-daily", ORDERS)).status_code == 201
    await door.placed(8)
    for server in servers or (SERVER,):
        await door.estate.rows(
            "UPDATE instances SET server_id = :server, state = 'building' WHERE slot_key ="
            " (SELECT min(slot_key) FROM instances WHERE server_id IS NULL)",
            server=server,
        )


async def ask_token(door: Door, server: str = SERVER, **headers: str) -> httpx2.Response:
    return await door.http.post(VENDORDATA, json=NOVA | {"instance-id": server}, headers=BASIC | headers)


async def token_of(door: Door, server: str = SERVER) -> str:
    answer = await ask_token(door, server)
    assert answer.status_code == 200, answer.text
    return str(answer.json()["token"])


def node_at(door: Door, instance_id: str = SERVER) -> NodeClient:
    return NodeClient(client_of(door.app), door.estate.clock, instance_id)


async def registered(door: Door, instance_id: str = SERVER) -> NodeClient:
    node = node_at(door, instance_id)
    answer = await node.register(await token_of(door, instance_id))
    assert answer.status_code == 200, answer.text
    return node


def ring_of(door: Door) -> KeyRing:
    """The bundle keys that stand in the test's key file."""
    listed = json.loads(door.keys.path.read_text())["keys"]
    private = {
        one["name"]: Ed25519PrivateKey.from_private_bytes(base64.b64decode(one["seed"])) for one in listed
    }
    return KeyRing(
        {
            name: base64.b64encode(key.public_key().public_bytes_raw()).decode()
            for name, key in private.items()
        }
    )


def read(raw: bytes | str, ring: KeyRing, newer_than: int = 0, instance_id: str = SERVER) -> Bundle:
    bundle = read_bundle(raw.encode() if isinstance(raw, str) else raw, ring, instance_id, newer_than)
    assert isinstance(bundle, Bundle), bundle
    return bundle


async def test_an_instance_becomes_a_node(door: Door) -> None:
    await launched(door)
    answer = await ask_token(door)
    told = answer.json()
    assert told.keys() == {"token", "apiUrl"}
    assert answer.headers["cache-control"] == "no-store"
    node = node_at(door)
    identity = (await node.register(told["token"])).json()
    assert identity["instanceId"] == SERVER
    bundle = read(identity["bundle"], ring_of(door))
    assert (bundle.version, bundle.instance_id, bundle.tenant_id) == (2, SERVER, "platform")
    assert (bundle.region, bundle.partition_id, bundle.workload_id) == (
        "eu-north",
        "k8s-eu-north",
        "orders-daily",
    )
    assert bundle.pool_id.startswith(bundle.hall)
    assert (bundle.drain.path, bundle.drain.signal, bundle.drain.budget_seconds) == (
        DrainPath.KUBERNETES,
        DrainSignal.TERM,
        115,
    )
    assert bundle.trust.notice_keys == {NOTICE_KEY.key_id: NOTICE_KEY.public_text}
    assert bundle.node_bus == SERVERS
    served = await node.bundle()
    assert (served.content.decode(), served.headers["etag"]) == (identity["bundle"], '"2"')
    assert (await node.bundle(held=2)).status_code == 304
    assert (await node.bundle(held=1)).status_code == 200


async def test_the_token_of_the_bus_is_for_the_nodes_own_key_and_subjects(door: Door) -> None:
    await launched(door)
    node = node_at(door)
    first = (await node.register(await token_of(door))).json()["bus"]
    door.estate.clock.move(3600)
    again = (await node.bus_credentials()).json()
    hall = read((await node.bundle()).content, ring_of(door)).hall
    for admission in (first, again):
        head, claims, _ = admission["jwt"].split(".")
        said = json.loads(base64.urlsafe_b64decode(claims + "=" * (-len(claims) % 4)))
        may = agent_permissions(hall, SERVER)
        assert (said["sub"], said["name"], said["iss"]) == (node.bus.public, SERVER, BUS.signing.public)
        assert said["nats"]["pub"] == {"allow": list(may.publish)}
        assert said["nats"]["sub"] == {"allow": list(may.subscribe)}
        assert said["exp"] - said["iat"] == 12 * 3600
        assert json.loads(base64.urlsafe_b64decode(head + "=="))["alg"] == "ed25519-nkey"
    assert again["expiresAt"] > first["expiresAt"]


async def test_a_server_that_is_not_ours_gets_nothing(door: Door) -> None:
    await launched(door)
    for server in (OTHER, "x", "'; DROP TABLE pools; --", "\x00", "../x", "ü" * 80, SERVER.upper()):
        answer = await ask_token(door, server)
        assert (answer.status_code, answer.json()) == (200, {}), ascii(server)
    assert await door.estate.value("SELECT count(*) FROM node_tokens") == 0


async def test_an_instance_that_ends_gets_no_token(door: Door) -> None:
    await launched(door)
    for state in ("active", "releasing", "gone"):
        await door.estate.rows(
            "UPDATE instances SET state = :state WHERE server_id = :s", state=state, s=SERVER
        )
        assert bool((await ask_token(door)).json()) is (state == "active"), state


async def test_only_the_provider_asks_for_tokens(door: Door) -> None:
    await launched(door)
    async with client_of(door.app) as nobody:
        for header in NOT_THE_SECRET:
            headers = {} if header is None else {"Authorization": header}
            answer = await nobody.post(VENDORDATA, json=NOVA, headers=headers)
            problem(answer, 401, "provider_refused")
            assert answer.headers["www-authenticate"].startswith("Basic")
            assert SECRET not in answer.text
    # A token of the issuer, even an administrator's, is no secret of the provider.
    problem(await door.http.post(VENDORDATA, json=NOVA), 401, "provider_refused")


async def test_the_secret_is_taken_as_a_bearer_token_too(door: Door) -> None:
    await launched(door)
    async with client_of(door.app) as nova:
        answer = await nova.post(VENDORDATA, json=NOVA, headers={"Authorization": f"Bearer {SECRET}"})
    assert "token" in answer.json()


async def test_a_token_is_used_once_and_then_there_are_no_others(door: Door) -> None:
    await launched(door, SERVER, OTHER)
    first, second = await token_of(door), await token_of(door)
    node = node_at(door)
    assert (await node.register(second)).status_code == 200
    assert (await ask_token(door)).json() == {}
    thief = node_at(door)
    for token in (first, second):
        problem(await thief.register(token), 401, "node_refused")
    assert (await node.bundle()).status_code == 200
    assert (await node.register(second)).status_code == 200, "an answer that was lost is given again"
    problem(await node.register(first), 401, "node_refused")


async def test_a_token_is_worth_nothing_elsewhere_later_or_changed(door: Door) -> None:
    await launched(door, SERVER, OTHER)
    token = await token_of(door)
    problem(await node_at(door, OTHER).register(token), 401, "node_refused")
    problem(await node_at(door, "unknown").register(token), 401, "node_refused")
    for changed in (token[:-1], token + "A", token.swapcase(), "x"):
        problem(await node_at(door).register(changed), 401, "node_refused")
    door.estate.clock.move(15 * 60)
    problem(await node_at(door).register(token), 401, "node_refused")
    assert (await node_at(door).register(await token_of(door))).status_code == 200


async def test_a_key_belongs_to_one_instance(door: Door) -> None:
    await launched(door, SERVER, OTHER)
    node, copied = await registered(door), node_at(door, OTHER)
    copied.key = node.key
    problem(await copied.register(await token_of(door, OTHER)), 401, "node_refused")


async def test_only_digests_of_tokens_are_kept_and_nothing_is_logged(door: Door) -> None:
    await launched(door)
    with capture_logs() as said:
        token = await token_of(door)
        node = node_at(door)
        answer = await node.register(token)
    kept = str(await door.estate.rows("SELECT * FROM node_tokens"))
    for secret in (token, SECRET, BUS.signing.seed, node.bus.seed, answer.json()["bus"]["jwt"]):
        assert secret not in str(said)
        assert secret not in kept


async def test_the_newest_tokens_are_kept_and_no_more(door: Door) -> None:
    await launched(door)
    tokens = [await token_of(door) for _ in range(store_nodes.TOKENS_PER_INSTANCE + 3)]
    count = await door.estate.value("SELECT count(*) FROM node_tokens")
    assert count == store_nodes.TOKENS_PER_INSTANCE
    assert (await node_at(door).register(tokens[-1])).status_code == 200


async def test_a_registration_with_a_wrong_field_says_which(door: Door) -> None:
    for field, value in WRONG_FIELDS:
        body = node_at(door).registration("t") | {field: value}
        told = problem(await door.http.post("/nodes/identity", json=body), 422, "invalid_request")
        assert told["errors"][0]["field"] == field


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
        now = door.estate.clock()
        assert await store_nodes.revoke(connection, "platform", OTHER, now)
        assert not await store_nodes.revoke(connection, "platform", OTHER, now)
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


async def test_nodes_are_listed_with_what_they_hold(door: Door) -> None:
    await launched(door, SERVER, OTHER)
    await registered(door)
    async with door.estate.engine.connect() as connection:
        rows = await store_nodes.list_node_rows(connection, "platform")
        one = await store_nodes.find_node_row(connection, "platform", SERVER)
        assert await store_nodes.list_node_rows(connection, "tenant-b") == []
        rest = await store_nodes.list_node_rows(connection, "platform", after=SERVER)
        with pytest.raises(store_nodes.UnknownNode):
            await store_nodes.find_node_row(connection, "tenant-b", SERVER)
    assert [row.instance_id for row in rows] == [SERVER, OTHER]
    assert [row.instance_id for row in rest] == [OTHER]
    assert rows[0] == one
    assert isinstance(one, NodeRow)
    assert (one.bundle_version, one.registered_at, one.revoked_at) == (2, door.estate.clock(), None)
    assert (rows[1].bundle_version, rows[1].registered_at) == (None, None)
