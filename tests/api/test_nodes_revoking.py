"""A node whose identity was revoked: who may do it, what is told of it, and what the node is refused."""

from __future__ import annotations

from api.sign_in.node_proof import NodeRefusedAs
from tests.api.door import Door, problem
from tests.api.node_ways import OTHER, ask_token, launched, node_at, registered
from tests.api.nodes_scene import SERVER
from wire.events import NODE_REVOKED

WHERE = f"/nodes/{SERVER}/revoke"


async def test_a_revoked_node_is_refused_whatever_it_signs_and_gets_no_other_identity(door: Door) -> None:
    await launched(door, SERVER, OTHER)
    node, other = await registered(door), await registered(door, OTHER)
    at = door.estate.clock()
    answer = await door.post(WHERE)
    assert answer.status_code == 200, answer.text
    told = answer.json()
    assert (told["instanceId"], told["revokedBy"]) == (SERVER, "ada")
    assert told["revokedAt"] == at.isoformat().replace("+00:00", "Z")
    problem(await node.bundle(), 401, "node_refused")
    problem(await node.bus_credentials(), 401, "node_refused")
    assert refusals(door) == 2
    assert (await ask_token(door)).json() == {}
    problem(await node_at(door).register("any"), 401, "node_refused")
    assert (await other.bundle()).status_code == 200
    assert (await other.bus_credentials()).status_code == 200


def refusals(door: Door) -> float:
    reason = NodeRefusedAs.UNKNOWN_NODE.value
    return door.registry.get_sample_value("sco_node_requests_refused_total", {"reason": reason}) or 0


async def test_what_let_it_onto_the_bus_ends_no_later_than_is_told(door: Door) -> None:
    await launched(door)
    node = await registered(door)
    door.estate.clock.move(60)
    last = (await node.bus_credentials()).json()["expiresAt"]
    told = (await door.post(WHERE)).json()["busCredentialsEndBy"]
    assert last <= told


async def test_revoking_again_changes_nothing(door: Door) -> None:
    await launched(door)
    await registered(door)
    first = (await door.post(WHERE)).json()
    door.estate.clock.move(3600)
    async with door.as_(sub="bob") as bob:
        assert (await bob.post(WHERE)).json() == first
    rows = await door.estate.rows(
        "SELECT key, payload->>'revokedBy', payload->>'hall' FROM outbox WHERE topic = :t", t=NODE_REVOKED
    )
    hall = await door.estate.value(
        "SELECT p.hall FROM instances i JOIN pools p USING (tenant_id, pool_id) WHERE server_id = :s",
        s=SERVER,
    )
    assert rows == [(SERVER, "ada", hall)]


async def test_the_list_of_nodes_shows_it(door: Door) -> None:
    await launched(door, SERVER, OTHER)
    await registered(door)
    await door.post(WHERE)
    shown = {one["instanceId"]: one for one in (await door.get("/nodes")).json()["items"]}
    assert shown[SERVER]["revokedAt"] is not None
    assert shown[SERVER]["registeredAt"] is not None
    assert shown[OTHER]["revokedAt"] is None


async def test_who_is_no_node_of_the_tenant_cannot_be_revoked(door: Door) -> None:
    await launched(door)
    problem(await door.post("/nodes/unknown/revoke"), 404, "unknown_node")
    problem(await door.post("/nodes/a%20b/revoke"), 422, "invalid_request")
    told = problem(await door.post(WHERE), 409, "node_not_registered")
    assert SERVER in told["detail"]
    node = await registered(door)
    async with door.as_(tenant_id="another") as stranger:
        problem(await stranger.post(WHERE), 404, "unknown_node")
    assert (await node.bundle()).status_code == 200


async def test_only_who_administers_the_platform_may(door: Door) -> None:
    await launched(door)
    node = await registered(door)
    for said in (
        {"roles": ["Operator"]},
        {"roles": ["Observer"]},
        {"scope": "factory.compute.read"},
    ):
        async with door.as_(**said) as caller:
            problem(await caller.post(WHERE), 403, "not_allowed")
    problem(await node.http.post(WHERE), 401, "not_signed_in")
    assert (await node.bundle()).status_code == 200
