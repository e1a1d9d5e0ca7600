"""What tests of nodes do at the front door: launch an instance, make it known, read its bundle."""

from __future__ import annotations

import base64
import json

import httpx2
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tests.activities.deciding import halls
from tests.api.door import ORDERS, T1, Door, client_of
from tests.api.nodes_scene import BASIC, SERVER, NodeClient
from wire.bundle import Bundle, read_bundle
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
