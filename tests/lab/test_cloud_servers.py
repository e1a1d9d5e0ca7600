"""Servers through the SDK: create, find, label, stop and delete."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

import pytest
from openstack import exceptions

from lab.cloud.server import CloudHandle
from tests.lab.cloud_support import (
    BUILT,
    FLAVOR,
    HALL,
    LATEST,
    POOL,
    create,
    manual_cloud,
    names,
    post_server,
)


@pytest.fixture
def cloud() -> Iterator[CloudHandle]:
    with manual_cloud() as handle:
        yield handle


def test_a_server_builds_and_then_is_active(cloud: CloudHandle) -> None:
    connection = cloud.connect()
    created = create(
        connection, name="n1", tags=["sco:managed"], metadata={"sco_pool": POOL}, description="first"
    )
    building = connection.compute.get_server(created.id)
    cloud.admin.advance(BUILT)
    active = connection.compute.get_server(created.id)

    assert (building.status, building.task_state, building.launched_at) == ("BUILD", "scheduling", None)
    assert (active.status, active.vm_state, active.power_state) == ("ACTIVE", "active", 1)
    assert (active.name, active.description, active.availability_zone) == ("n1", "first", HALL)
    assert (active.tags, active.metadata) == (["sco:managed"], {"sco_pool": POOL})
    assert active.flavor.name == FLAVOR
    assert active.launched_at > building.created_at.removesuffix("Z")
    assert [action.action for action in connection.compute.server_actions(active)] == ["create"]


def test_many_servers_of_one_create_are_found_by_their_reservation_id(cloud: CloudHandle) -> None:
    connection = cloud.connect()
    answer = post_server(
        connection,
        name="batch",
        min_count=5,
        max_count=5,
        return_reservation_id=True,
        tags=["sco:workload=w1"],
        metadata={"sco_batch": "b1"},
    )
    create(connection, name="other")
    cloud.admin.advance(BUILT)
    found = list(connection.compute.servers(reservation_id=answer.json()["reservation_id"]))

    assert answer.status_code == 202
    assert set(answer.json()) == {"reservation_id"}
    assert sorted(server.name for server in found) == [f"batch-{number}" for number in range(1, 6)]
    assert {server.status for server in found} == {"ACTIVE"}
    assert all(
        server.metadata == {"sco_batch": "b1"} and server.tags == ["sco:workload=w1"] for server in found
    )


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ({"tags": "x"}, ["a", "b"]),
        ({"tags": "x,y"}, ["b"]),
        ({"any_tags": "y,z"}, ["b", "c"]),
        ({"not_tags": "x,y"}, ["a", "c", "d"]),
        ({"not_any_tags": "y,z"}, ["a", "d"]),
        ({"status": "ACTIVE"}, ["a", "b", "c"]),
        ({"status": "BUILD"}, ["d"]),
        ({"availability_zone": "eu-north-h2"}, ["c"]),
        ({"name": "^[ab]$"}, ["a", "b"]),
        ({"tags": "x", "status": "BUILD"}, []),
        ({"reservation_id": "r-unknown"}, []),
        ({}, ["a", "b", "c", "d"]),
    ],
)
def test_a_list_answers_exactly_what_its_filters_ask(
    cloud: CloudHandle, filters: dict[str, Any], expected: list[str]
) -> None:
    connection = cloud.connect()
    create(connection, name="a", tags=["x"])
    create(connection, name="b", tags=["x", "y"])
    create(connection, name="c", tags=["z"], availability_zone="eu-north-h2")
    cloud.admin.advance(BUILT)
    create(connection, name="d")

    assert names(connection, **filters) == expected
    assert names(connection, details=False, **filters) == expected


def test_labels_can_be_changed_and_lists_follow(cloud: CloudHandle) -> None:
    connection = cloud.connect()
    server = connection.compute.get_server(create(connection, name="a", tags=["old"], metadata={"k": "1"}))
    with pytest.raises(exceptions.ConflictException, match=r"'update tag' .* in vm_state building"):
        server.add_tag(connection.compute, "new")
    cloud.admin.advance(BUILT)
    server.add_tag(connection.compute, "new")
    server.remove_tag(connection.compute, "old")
    connection.compute.set_server_metadata(server, k="2", more="yes")
    connection.compute.delete_server_metadata(server, ["k"])

    changed = connection.compute.get_server(server.id)
    assert (changed.tags, changed.metadata) == (["new"], {"more": "yes"})
    assert names(connection, tags="new") == ["a"]
    assert names(connection, tags="old") == []
    assert [each["id"] for each in cloud.admin.servers(metadata={"more": "yes"})] == [server.id]
    assert cloud.admin.servers(metadata={"k": "2"}) == []


def test_a_deleted_server_goes_after_a_while_and_stays_gone(cloud: CloudHandle) -> None:
    connection = cloud.connect()
    server = create(connection, name="a")
    cloud.admin.advance(BUILT)
    deleted_from = cloud.admin.clock()["now"]
    connection.compute.delete_server(server, ignore_missing=False)
    going = connection.compute.get_server(server.id)
    connection.compute.delete_server(server, ignore_missing=False)
    cloud.admin.advance(BUILT)

    assert (going.status, going.task_state) == ("ACTIVE", "deleting")
    with pytest.raises(exceptions.NotFoundException):
        connection.compute.get_server(server)
    with pytest.raises(exceptions.NotFoundException):
        connection.compute.delete_server(server, ignore_missing=False)
    assert names(connection) == []
    changed = list(connection.compute.servers(changes_since=deleted_from))
    assert [(each.id, each.status) for each in changed] == [(server.id, "DELETED")]
    assert [each["status"] for each in cloud.admin.servers()] == ["DELETED"]


def test_changes_since_leaves_out_what_did_not_change(cloud: CloudHandle) -> None:
    connection = cloud.connect()
    create(connection, name="old")
    cloud.admin.advance(BUILT)
    cloud.admin.advance(100)
    moment = cloud.admin.clock()["now"]
    create(connection, name="new")

    assert names(connection, changes_since=moment) == ["new"]


def test_a_server_stops_and_starts_but_not_twice(cloud: CloudHandle) -> None:
    connection = cloud.connect()
    server = create(connection)
    cloud.admin.advance(BUILT)
    connection.compute.stop_server(server)
    stopped = connection.compute.get_server(server.id)
    with pytest.raises(exceptions.ConflictException, match="vm_state"):
        connection.compute.stop_server(server)
    connection.compute.start_server(server)

    assert (stopped.status, stopped.power_state) == ("SHUTOFF", 4)
    assert connection.compute.get_server(server).status == "ACTIVE"
    actions = [action.action for action in connection.compute.server_actions(server)]
    assert actions == ["start", "stop", "create"]


def test_an_instance_reads_its_own_metadata(cloud: CloudHandle) -> None:
    connection = cloud.connect()
    server = create(
        connection,
        name="n1",
        user_data=base64.b64encode(b"#cloud-config").decode(),
        metadata={"sco_batch": "b"},
    )
    path = f"{cloud.base_url}/eu-north/metadata/openstack/latest"
    who = {"X-Instance-ID": server.id}
    facts = connection.session.get(f"{path}/meta_data.json", headers=who, authenticated=False).json()
    data = connection.session.get(f"{path}/user_data", headers=who, authenticated=False).content
    stranger = connection.session.get(f"{path}/meta_data.json", authenticated=False, raise_exc=False)

    assert (facts["uuid"], facts["name"], facts["availability_zone"]) == (server.id, "n1", HALL)
    assert facts["meta"] == {"sco_batch": "b"}
    assert data == b"#cloud-config"
    assert stranger.status_code == 404


def test_a_server_the_provider_takes_is_gone_at_once(cloud: CloudHandle) -> None:
    connection = cloud.connect()
    server = create(connection)
    cloud.admin.advance(BUILT)
    used = cloud.admin.capacity()[POOL]["used"]
    cloud.admin.terminate(server.id)

    with pytest.raises(exceptions.NotFoundException):
        connection.compute.get_server(server)
    assert used - cloud.admin.capacity()[POOL]["used"] == 1
    assert connection.compute.get(f"/servers/{server.id}", microversion=LATEST).status_code == 404
