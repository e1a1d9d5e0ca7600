"""Bare metal in the simulated cloud: nodes carry servers, and pools offer as many as there are free nodes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from keystoneauth1.exceptions import EndpointNotFound

from lab.cloud.server import CloudHandle
from tests.lab.cloud_support import BUILT, HALL, REGION, create, manual_cloud

POOL, FLAVOR = f"{HALL}-bm-xl", "bm.xl.reclaimable"


@pytest.fixture
def cloud() -> Iterator[CloudHandle]:
    with manual_cloud() as handle:
        yield handle


def states(connection: Any) -> list[tuple[str, bool]]:
    """Provision state, and whether a server is on it, of every node in order."""
    listed = connection.baremetal.get("/nodes/detail", microversion="1.46").json()["nodes"]
    return [(node["provision_state"], node["instance_uuid"] is not None) for node in listed]


def test_a_cloud_without_nodes_has_no_bare_metal(cloud: CloudHandle) -> None:
    assert list(cloud.connect().baremetal.nodes()) == []
    assert len(cloud.admin.capacity()) == 3 * 324
    assert not [flavor for flavor in cloud.connect().compute.flavors() if flavor.name.startswith("b")]


def test_nodes_make_a_pool_with_a_price_a_flavor_and_a_group(cloud: CloudHandle) -> None:
    cloud.admin.enroll(HALL, "bm", 3)
    connection = cloud.connect()
    (flavor,) = [each for each in connection.compute.flavors() if each.name == FLAVOR]
    assert flavor.extra_specs["resources:CUSTOM_METAL_BM"] == "1"
    assert flavor.extra_specs["resources:VCPU"] == "0"
    assert cloud.admin.capacity()[POOL]["total"] == 3
    groups = {each.name: each for each in connection.compute.aggregates()}
    assert groups[f"{HALL}-a4"].hosts == [POOL]
    where = {"service_type": "rates", "region_name": REGION}
    rates = connection.session.get("/rate-card", endpoint_filter=where).json()["rates"]
    (rate,) = [each for each in rates if each["host_group"] == POOL]
    assert 0 < float(rate["price_per_hour"]) < float(rate["guaranteed_price_per_hour"])


def test_a_server_takes_a_node_and_gives_it_back(cloud: CloudHandle) -> None:
    cloud.admin.enroll(HALL, "bm", 2)
    connection = cloud.connect()
    servers = [create(connection, FLAVOR, name=f"metal-{number}") for number in range(2)]
    assert states(connection) == [("deploying", True)] * 2
    refused = create(connection, FLAVOR, name="one too many")
    cloud.admin.advance(BUILT)
    assert states(connection) == [("active", True)] * 2
    assert connection.compute.get_server(refused.id).status == "ERROR"
    node = connection.baremetal.get_node(f"{HALL}-bm-001")
    assert node.instance_id == servers[0].id
    connection.compute.delete_server(servers[0])
    assert states(connection)[0] == ("deleting", True)
    cloud.admin.advance(BUILT)
    assert states(connection) == [("available", False), ("active", True)]
    assert cloud.admin.capacity()[POOL] == cloud.admin.capacity()[POOL] | {"total": 2, "used": 1}


@pytest.mark.parametrize("trouble", ["maintenance", "error", "clean failed", "manageable"])
def test_a_node_in_trouble_takes_no_server(cloud: CloudHandle, trouble: str) -> None:
    first, _ = cloud.admin.enroll(HALL, "bm", 2)
    connection = cloud.connect()
    if trouble == "maintenance":
        connection.baremetal.set_node_maintenance(first, "its fan is loud")
    else:
        cloud.admin.set_node(first, trouble)
    assert cloud.admin.capacity()[POOL]["total"] == 1
    server = create(connection, FLAVOR)
    assert connection.baremetal.get_node(f"{HALL}-bm-002").instance_id == server.id
    if trouble == "maintenance":
        assert connection.baremetal.get_node(first).maintenance_reason == "its fan is loud"
        connection.baremetal.unset_node_maintenance(first)
    else:
        cloud.admin.set_node(first, "available")
    assert cloud.admin.capacity()[POOL]["total"] == 2


def test_a_broken_node_keeps_its_server_and_is_not_offered_after_it(cloud: CloudHandle) -> None:
    (only,) = cloud.admin.enroll(HALL, "bg", 1)
    connection = cloud.connect()
    server = create(connection, "bg.xl.reclaimable")
    cloud.admin.set_node(only, "error")
    assert states(connection) == [("error", True)]
    connection.compute.delete_server(server)
    cloud.admin.advance(BUILT)
    assert states(connection) == [("error", False)]
    assert cloud.admin.capacity()[f"{HALL}-bg-xl"]["total"] == 0


def test_provisioning_verbs_lead_where_ironic_leads(cloud: CloudHandle) -> None:
    (only,) = cloud.admin.enroll(HALL, "bm", 1)
    connection = cloud.connect()
    connection.baremetal.set_node_provision_state(only, "manage")
    assert states(connection) == [("manageable", False)]
    connection.baremetal.set_node_provision_state(only, "provide")
    assert states(connection) == [("available", False)]
    with pytest.raises(Exception, match="can not be performed on node"):
        connection.baremetal.set_node_provision_state(only, "provide")
    with pytest.raises(Exception, match="Node nobody could not be found"):
        connection.baremetal.get_node("nobody")


def test_nodes_come_in_pages_with_the_fields_asked_for(cloud: CloudHandle) -> None:
    made = cloud.admin.enroll(HALL, "bm", 5)
    connection = cloud.connect()
    assert [node.id for node in connection.baremetal.nodes(limit=2)] == made
    page = connection.baremetal.get("/nodes?limit=2&fields=uuid,maintenance").json()
    assert page["nodes"] == [{"uuid": node, "maintenance": False} for node in made[:2]]
    assert f"marker={made[1]}" in page["next"]
    last = connection.baremetal.get(f"/nodes?limit=2&marker={made[3]}").json()
    assert [node["uuid"] for node in last["nodes"]] == made[4:]
    assert "next" not in last


def test_nodes_survive_a_restart(tmp_path: Path) -> None:
    with manual_cloud(data_dir=tmp_path) as first:
        made = first.admin.enroll(HALL, "bm", 3)
        server = create(first.connect(), FLAVOR)
        first.admin.set_node(made[2], "error")
        first.admin.advance(BUILT)
    with manual_cloud(data_dir=tmp_path) as second:
        connection = second.connect()
        assert states(connection) == [("active", True), ("available", False), ("error", False)]
        assert connection.baremetal.get_node(made[0]).instance_id == server.id
        assert second.admin.capacity()[POOL] == second.admin.capacity()[POOL] | {"total": 2, "used": 1}


def test_a_service_may_be_served_elsewhere_or_not_at_all() -> None:
    address = "http://127.0.0.1:9"
    with manual_cloud(endpoints={"baremetal": None, "rates": address}) as cloud:
        session = cloud.connect().session
        assert session.get_endpoint(service_type="rates", region_name=REGION) == address
        with pytest.raises(EndpointNotFound):
            session.get_endpoint(service_type="baremetal", region_name=REGION)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda admin: admin.enroll(HALL, "no", 1), "give one of bm, bg"),
        (lambda admin: admin.enroll("nowhere", "bm", 1), "hall 'nowhere' does not exist"),
        (lambda admin: admin.enroll(HALL, "bm", 0), "at least 1"),
        (lambda admin: admin.set_node("nobody", "error"), "there is no node nobody"),
        (lambda admin: admin.set_node("nobody", "tired"), "give one of enroll"),
    ],
)
def test_wrong_orders_are_refused(cloud: CloudHandle, call: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        call(cloud.admin)
