"""A node's way in: a token through the provider, an identity, and entry to the bus."""

from __future__ import annotations

import base64
import json

import pytest
from structlog.testing import capture_logs

from activities import enrolling
from store import nodes as store_nodes
from store.engine import Connection
from tests.api.door import Door, client_of, problem
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
from tests.api.nodes_scene import BUS, NOTICE_KEY, SECRET, SERVER, SERVERS
from wire.bundle import DrainPath, DrainSignal
from wire.bus_credentials import agent_permissions

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


async def test_who_is_known_is_answered_from_memory_and_nobody_else(
    door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nova asks at every read of the metadata, so for every poll of an agent."""
    monkeypatch.setattr(enrolling, "KNOWN_KEPT", 1)
    await launched(door, SERVER, OTHER)
    await registered(door)
    await registered(door, OTHER)
    asked: list[str] = []
    look = store_nodes.tenant_of_server

    async def counted(connection: Connection, server_id: str) -> str | None:
        asked.append(server_id)
        return await look(connection, server_id)

    monkeypatch.setattr(store_nodes, "tenant_of_server", counted)
    for server in (SERVER, SERVER, SERVER, OTHER, OTHER, SERVER):
        assert (await ask_token(door, server)).json() == {}
    assert asked == [SERVER, OTHER, SERVER], "each once, and again when it had to make room"


async def test_of_the_providers_requests_only_those_that_fail_are_logged(door: Door) -> None:
    await launched(door)
    with capture_logs() as said:
        assert (await ask_token(door)).status_code == 200
        problem(await door.http.post(VENDORDATA, json=NOVA), 401, "provider_refused")
    told = [one["status"] for one in said if one["event"] == "request"]
    assert told == [401]
    counted = {"route": VENDORDATA, "method": "POST", "status": "200"}
    assert door.registry.get_sample_value("sco_http_requests_total", counted) == 1


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
