"""The private flavors of reservations: only servers of one are on its lease."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.cloud.server import CloudHandle
from tests.lab.cloud_support import BUILT, HALL, LATEST, body_for, flavor_id, manual_cloud
from tests.lab.lease_support import GROUP, book, committed, leases, reserved_flavors


@pytest.fixture
def cloud() -> Iterator[CloudHandle]:
    with manual_cloud() as handle:
        yield handle


def test_a_hint_alone_puts_no_server_on_a_lease(cloud: CloudHandle) -> None:
    """As Nova has it for reservations of servers: it runs beside the lease, and stays when that goes."""
    connection = cloud.connect()
    held = leases(connection)[GROUP]
    hint = {"os:scheduler_hints": {"reservation": held["reservations"][0]["id"]}}
    body = {**body_for(connection, flavorRef=flavor_id(connection, "gp.l")), **hint}
    assert connection.compute.post("/servers", json=body, microversion=LATEST).status_code == 202
    cloud.admin.advance(BUILT)
    used = {name: cloud.admin.capacity()[name]["used"] for name in (GROUP, f"{HALL}-gp-l-guaranteed")}
    connection.reservation.delete(f"/leases/{held['id']}")

    assert used == {GROUP: 0, f"{HALL}-gp-l-guaranteed": 1}
    assert [server.status for server in connection.compute.servers()] == ["ACTIVE"]


def test_each_reservation_has_a_private_flavor_that_ends_with_it(cloud: CloudHandle) -> None:
    connection = cloud.connect()
    seeded = set(reserved_flavors(connection))
    by_size = {"resource_type": "virtual:instance", "vcpus": 16, "memory_mb": 65_536, "disk_gb": 40}
    ids = {}
    for name, wanted in (("flavor", {}), ("size", by_size)):
        lease = book(cloud, connection, name=name, reservation={"amount": 1, **wanted}).json()["lease"]
        ids[name] = lease["reservations"][0]["id"]
        assert lease["reservations"][0]["flavor_id"] == ids[name]
    made = reserved_flavors(connection)
    source = connection.compute.get_flavor(flavor_id(connection, "gp.l"))

    assert set(made) == seeded | set(ids.values())
    for name, copied in (("flavor", source.extra_specs), ("size", {})):
        flavor = made[ids[name]]
        assert flavor.name == f"reservation:{flavor.id}"
        assert (flavor.vcpus, flavor.ram) == (source.vcpus, source.ram)
        assert flavor.extra_specs == {
            **copied,
            "aggregate_instance_extra_specs:reservation": flavor.id,
            f"resources:CUSTOM_RESERVATION_{flavor.id.upper().replace('-', '_')}": "1",
        }
    cloud.admin.advance(2 * 3_600)
    assert set(reserved_flavors(connection)) == seeded
    assert connection.compute.get(f"/flavors/{ids['size']}").status_code == 404


def test_servers_of_a_lease_that_is_gone_are_remembered(tmp_path: Path) -> None:
    with manual_cloud(data_dir=tmp_path) as first:
        connection = first.connect()
        lease = book(first, connection).json()["lease"]
        committed(connection, lease["reservations"][0]["id"], 1)
        first.admin.advance(BUILT)
        connection.reservation.delete(f"/leases/{lease['id']}")

    with manual_cloud(data_dir=tmp_path) as second:
        connection = second.connect()
        params = {"changes-since": "2020-01-01T00:00:00Z"}
        shown = connection.compute.get("/servers/detail", params=params, microversion=LATEST)
        told = [(each["status"], each["flavor"]["vcpus"]) for each in shown.json()["servers"]]
        assert told == [("DELETED", 16)]
        assert lease["reservations"][0]["id"] not in reserved_flavors(connection)
