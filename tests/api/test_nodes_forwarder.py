"""What a Slurm forwarder may know: nodes of its own partition that are registered, live and believed."""

from __future__ import annotations

from typing import Any

import pytest

from api import nodes_forwarder
from tests.api.door import Door, problem
from tests.api.node_ways import OTHER, launched, registered
from tests.api.nodes_scene import SERVER

WHERE = "/nodes/forwarder"
PARTITION = "k8s-eu-north"


async def of_slurm(door: Door) -> None:
    """Two live servers, n1 and n2, of a partition of Slurm."""
    await launched(door, SERVER, OTHER)
    await door.estate.rows("UPDATE partitions SET scheduler = 'slurm'")
    for server, name in ((SERVER, "n1"), (OTHER, "n2")):
        await call(door, server, name)


async def call(door: Door, server: str, name: str | None) -> None:
    await door.estate.rows(
        "UPDATE instances SET server_name = :name WHERE server_id = :server", server=server, name=name
    )


async def told(door: Door) -> dict[str, Any]:
    answer = await door.get(WHERE, partitionId=PARTITION)
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


async def test_a_node_is_told_with_name_and_key_once_it_is_registered(door: Door) -> None:
    await of_slurm(door)
    assert await told(door) == {"partitionId": PARTITION, "nodes": [], "leftOut": []}
    node = await registered(door)
    entry = {"instanceId": SERVER, "node": "n1", "publicKey": node.public_text}
    assert (await told(door))["nodes"] == [entry]
    await door.estate.rows("UPDATE node_identities SET revoked_at = now()")
    assert (await told(door))["nodes"] == []


async def test_a_node_that_ended_is_not_told(door: Door) -> None:
    await of_slurm(door)
    await registered(door)
    for state in ("active", "releasing", "gone"):
        await door.estate.rows(
            "UPDATE instances SET state = :state WHERE server_id = :s", state=state, s=SERVER
        )
        assert bool((await told(door))["nodes"]) is (state != "gone"), state


@pytest.mark.parametrize(
    ("name", "reason"), [(None, "no_name_yet"), ("n[1-9]", "no_node_name"), ("n2", "shared_name")]
)
async def test_who_cannot_be_told_apart_is_left_out_and_named(
    door: Door, name: str | None, reason: str
) -> None:
    await of_slurm(door)
    await registered(door)
    await call(door, SERVER, name)
    answer = await told(door)
    assert answer["nodes"] == []
    assert answer["leftOut"] == [{"instanceId": SERVER, "serverName": name, "reason": reason}]


async def test_only_partitions_of_slurm_have_forwarders(door: Door) -> None:
    await launched(door)
    said = problem(await door.get(WHERE, partitionId=PARTITION), 409, "not_slurm")
    assert "kubernetes" in said["detail"]
    problem(await door.get(WHERE, partitionId="nothing"), 422, "unknown_partition")
    problem(await door.get(WHERE), 422, "invalid_request")


async def test_a_reader_of_the_tenant_may_ask_and_nobody_else(door: Door) -> None:
    await of_slurm(door)
    reads = {"scope": "factory.compute.read", "roles": ["Observer"]}
    async with door.as_(**reads) as reader, door.as_(tenant_id="another", **reads) as stranger:
        assert (await reader.get(WHERE, params={"partitionId": PARTITION})).status_code == 200
        problem(await stranger.get(WHERE, params={"partitionId": PARTITION}), 422, "unknown_partition")


async def test_more_nodes_than_one_answer_holds_are_refused(
    door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    await of_slurm(door)
    monkeypatch.setattr(nodes_forwarder, "MOST", 1)
    problem(await door.get(WHERE, partitionId=PARTITION), 409, "too_many_nodes")
