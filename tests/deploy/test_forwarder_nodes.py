"""From a node's registration through the file to the forwarder: who is let in, and who no longer is."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
import pytest_asyncio

from clients.cli.main import main
from tests.api.door import Bearer, Door, door_on
from tests.api.node_ways import OTHER, launched, registered
from tests.api.nodes_scene import SERVER, NodeClient
from tests.api.serving import served
from tests.deploy.forwarder_session import PACKAGE, Session, forwarding
from tests.estates import PARTITION, Estate

DEPLOY = PACKAGE.parent
Write = Callable[[Path], Awaitable[int]]


@pytest_asyncio.fixture
async def door(estate: Estate) -> AsyncIterator[Door]:
    """Two live servers, n1 and n2, of a partition of Slurm."""
    async with door_on(estate) as own:
        await launched(own, SERVER, OTHER)
        await estate.rows("UPDATE partitions SET scheduler = 'slurm'")
        for server, name in ((SERVER, "n1"), (OTHER, "n2")):
            await estate.rows(
                "UPDATE instances SET server_name = :name WHERE server_id = :server", server=server, name=name
            )
        yield own


@pytest_asyncio.fixture
async def write(door: Door, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Write]:
    """`sco slurm-nodes` as the forwarder's machine runs it, with a token that may only read."""
    reader = Bearer(door.estate.clock, scope="factory.compute.read", roles=["Observer"])
    monkeypatch.setenv("SCO_TOKEN", reader.token)
    async with served(door.app) as address:

        async def run(out: Path) -> int:
            command = ["--server", address, "slurm-nodes", PARTITION, "--out", str(out)]
            return await asyncio.to_thread(main, command)

        yield run


def asks(session: Session, node: NodeClient, instance_id: str) -> tuple[int, str]:
    """What a forwarder answers to an order that this node's key signs as that instance."""
    session.keys["asking"] = node.key
    target, raw, headers = session.signed("asking", "jobs", {}, instance_id=instance_id)
    answer = session.send(target, raw, headers)
    return answer.status, answer.reason


async def test_a_node_is_let_in_once_registered_as_itself_alone_and_until_it_is_revoked(
    door: Door, write: Write, tmp_path: Path
) -> None:
    node, other = await registered(door), await registered(door, OTHER)
    with forwarding(tmp_path) as session:
        file = session.folder / "nodes.json"
        assert asks(session, node, SERVER) == (401, "unknown")
        assert await write(file) == 0
        assert asks(session, node, SERVER)[0] == 200
        assert session.audit()[-1]["node"] == "n1"
        assert asks(session, other, OTHER)[0] == 200
        assert session.audit()[-1]["node"] == "n2"
        assert asks(session, other, SERVER) == (401, "bad_signature")
        assert (await door.post(f"/nodes/{SERVER}/revoke")).status_code == 200
        assert await write(file) == 0
        assert asks(session, node, SERVER) == (401, "unknown")
        assert asks(session, other, OTHER)[0] == 200


async def test_a_forwarder_keeps_its_nodes_while_the_api_refuses(
    door: Door, write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = await registered(door)
    with forwarding(tmp_path) as session:
        file = session.folder / "nodes.json"
        assert await write(file) == 0
        monkeypatch.setenv("SCO_TOKEN", "no-token")
        assert await write(file) == 1
        assert asks(session, node, SERVER)[0] == 200


def test_the_units_agree_where_the_file_is() -> None:
    forwarder, fetch = (
        (DEPLOY / name).read_text() for name in ("sco-forwarder.service", "sco-forwarder-nodes.service")
    )
    named = re.search(r"--nodes (\S+)", forwarder)
    written = re.search(r"slurm-nodes \S+ --out (\S+)", fetch)
    assert named is not None
    assert written is not None
    assert named[1] == written[1] == "/var/lib/sco-forwarder/nodes.json"
    assert "StateDirectory=sco-forwarder\n" in fetch
    assert "Unit=" not in (DEPLOY / "sco-forwarder-nodes.timer").read_text(), "it is of the same name"
