"""Leases: committed capacity exists while they run, and ends with them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from lab.cloud.server import CloudHandle
from tests.lab.cloud_support import BUILT, HALL, REGION, manual_cloud, post_server
from tests.lab.lease_support import GROUP, at, book, committed, leases, reserved_flavors


@pytest.fixture
def cloud() -> Iterator[CloudHandle]:
    with manual_cloud() as handle:
        yield handle


@pytest.mark.parametrize("region", ["eu-north", "eu-west", "eu-south"])
def test_every_committed_pool_starts_with_an_active_lease(cloud: CloudHandle, region: str) -> None:
    held = leases(cloud.connect(region))

    assert len(held) == 36
    assert all(lease["status"] == "ACTIVE" for lease in held.values())
    amounts = [lease["reservations"][0]["amount"] for lease in held.values()]
    assert all(12 <= amount <= 60 for amount in amounts)
    assert len(set(amounts)) > 10


def test_a_server_on_a_reservation_uses_committed_capacity(cloud: CloudHandle) -> None:
    connection = cloud.connect()
    reservation = leases(connection)[GROUP]["reservations"][0]
    free = reservation["amount"]
    assert committed(connection, reservation["id"], free).status_code == 202
    assert committed(connection, reservation["id"], 1).status_code == 202
    assert committed(connection, "unknown", 1).status_code == 400
    cloud.admin.advance(BUILT)
    states = [server.status for server in connection.compute.servers()]

    assert sorted(states) == ["ACTIVE"] * free + ["ERROR"]
    capacity = cloud.admin.capacity()
    assert (capacity[GROUP]["used"], capacity[GROUP]["total"]) == (free, free)
    assert capacity[f"{HALL}-gp-l-guaranteed"]["used"] == 0


def test_a_lease_waits_for_its_start_and_ends_with_its_servers(cloud: CloudHandle) -> None:
    connection = cloud.connect()
    before = cloud.admin.capacity()[GROUP]["total"]
    booked = book(cloud, connection, start_date=at(cloud, hours=1), end_date=at(cloud, hours=3))
    assert booked.status_code == 201
    lease = booked.json()["lease"]
    reservation_id = lease["reservations"][0]["id"]
    totals, states = [cloud.admin.capacity()[GROUP]["total"]], [lease["status"]]
    early = committed(connection, reservation_id, 1)
    cloud.admin.advance(3_600)
    committed(connection, reservation_id, 2)
    committed(connection, reservation_id, 1)
    cloud.admin.advance(BUILT)
    late = reserved_flavors(connection)
    servers = sorted(server.status for server in connection.compute.servers())
    for hours in (0, 2):
        cloud.admin.advance(hours * 3_600)
        totals.append(cloud.admin.capacity()[GROUP]["total"])
        states.append(connection.reservation.get(f"/leases/{lease['id']}").json()["lease"]["status"])

    assert states == ["PENDING", "ACTIVE", "TERMINATED"]
    assert totals == [before, before + 2, before]
    assert servers == ["ACTIVE", "ACTIVE", "ERROR"]
    assert early.status_code == 400
    assert early.json()["badRequest"]["message"] == f"Flavor {reservation_id} could not be found."
    assert reservation_id in late
    assert reservation_id not in reserved_flavors(connection)
    assert list(connection.compute.servers()) == []


def test_a_prolonged_lease_keeps_its_servers(cloud: CloudHandle) -> None:
    connection = cloud.connect()
    lease = book(cloud, connection).json()["lease"]
    committed(connection, lease["reservations"][0]["id"], 2)
    cloud.admin.advance(BUILT)
    prolonged = connection.reservation.put(
        f"/leases/{lease['id']}", json={"end_date": at(cloud, hours=6)}
    ).json()["lease"]
    cloud.admin.advance(3 * 3_600)

    assert prolonged["end_date"] > lease["end_date"]
    assert [server.status for server in connection.compute.servers()] == ["ACTIVE"] * 2


def test_a_deleted_lease_takes_its_servers_along(cloud: CloudHandle) -> None:
    connection = cloud.connect()
    lease = book(cloud, connection).json()["lease"]
    committed(connection, lease["reservations"][0]["id"], 2)
    cloud.admin.advance(BUILT)

    assert connection.reservation.delete(f"/leases/{lease['id']}").status_code == 204
    assert connection.reservation.get(f"/leases/{lease['id']}").status_code == 404
    assert list(connection.compute.servers()) == []


def test_an_instance_reservation_finds_its_pool_by_size_and_family(cloud: CloudHandle) -> None:
    connection = cloud.connect()
    reservation = {
        "resource_type": "virtual:instance",
        "vcpus": 16,
        "memory_mb": 16 * 4 * 1024,
        "disk_gb": 40,
        "resource_properties": (f'["and", ["==", "$availability_zone", "{HALL}"], ["==", "$sku", "ga"]]'),
    }
    lease = book(cloud, connection, reservation=reservation).json()["lease"]

    assert lease["reservations"][0]["host_group"] == f"{HALL}-ga-l-committed"


def test_the_calendar_shows_who_holds_what(cloud: CloudHandle) -> None:
    connection = cloud.connect()
    hosts = {
        host["hypervisor_hostname"]: host for host in connection.reservation.get("/os-hosts").json()["hosts"]
    }
    allocations = {
        each["resource_id"]: each["reservations"]
        for each in connection.reservation.get("/os-hosts/allocations").json()["allocations"]
    }

    assert len(hosts) == 36
    held = leases(connection)[GROUP]["reservations"][0]
    assert [each["id"] for each in allocations[hosts[GROUP]["id"]]] == [held["id"]]
    assert hosts[GROUP]["availability_zone"] == HALL


@pytest.mark.parametrize(
    ("ends", "message"),
    [
        ({"hours": -1}, "End date must be later than current and start date"),
        ({"days": -3}, "End date must be later than current and start date"),
    ],
)
def test_a_lease_is_not_shortened_into_the_past(
    cloud: CloudHandle, ends: dict[str, float], message: str
) -> None:
    connection = cloud.connect()
    held = leases(connection)[GROUP]
    answer = connection.reservation.put(f"/leases/{held['id']}", json={"end_date": at(cloud, **ends)})

    assert (answer.status_code, answer.json()["error_message"]) == (400, message)
    assert leases(connection)[GROUP] == held


def test_an_ended_lease_cannot_be_prolonged(cloud: CloudHandle) -> None:
    connection = cloud.connect()
    held = leases(connection)[GROUP]
    cloud.admin.advance(31 * 86_400)
    answer = connection.reservation.put(f"/leases/{held['id']}", json={"end_date": at(cloud, days=9)})

    assert (answer.status_code, answer.json()["error_message"]) == (
        400,
        "Terminated leases can only be renamed",
    )


def test_a_lease_is_not_prolonged_over_what_others_have_booked(cloud: CloudHandle) -> None:
    connection = cloud.connect()
    entry, held = cloud.admin.capacity()[GROUP], leases(connection)[GROUP]
    later = {"start_date": at(cloud, days=31), "end_date": at(cloud, days=40)}
    booked = book(cloud, connection, reservation={"amount": entry["reservable"]}, **later)
    answers = [
        connection.reservation.put(f"/leases/{held['id']}", json={"end_date": at(cloud, days=days)})
        for days in (32, 31)
    ]

    assert booked.status_code == 201
    assert [answer.status_code for answer in answers] == [500, 200]
    assert answers[0].json()["error_message"] == "Not enough hosts available"


def test_a_full_calendar_refuses_to_prolong_and_nothing_else(cloud: CloudHandle) -> None:
    connection = cloud.connect()
    path = f"/leases/{leases(connection)[GROUP]['id']}"
    cloud.admin.set_leases(REGION, full=True)
    prolonged = connection.reservation.put(path, json={"end_date": at(cloud, days=60)})
    shortened = connection.reservation.put(path, json={"end_date": at(cloud, days=20)})
    cloud.admin.set_leases(REGION, full=False)
    later = connection.reservation.put(path, json={"end_date": at(cloud, days=60)})

    assert [answer.status_code for answer in (prolonged, shortened, later)] == [500, 200, 200]
    with pytest.raises(ValueError, match="give true or false"):
        cloud.admin.set_leases(REGION, full="yes")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("wanted", "status", "message"),
    [
        ({"reservation": {"amount": 10_000}}, 500, "Not enough hosts available"),
        ({"reservation": {"amount": 0}}, 400, "Malformed parameter amount"),
        ({"reservation": {"flavor_id": "none"}}, 500, "Not enough hosts available"),
        ({"reservation": {"resource_type": "physical:host"}}, 400, "resource type is not supported"),
        ({"reservation": {"resource_properties": "[1]"}}, 400, "Malformed requirements"),
        ({"start_date": "2020-01-01 00:00"}, 400, "Start date must be later than current date"),
        ({"end_date": "2020-01-01 00:00"}, 400, "End date must be later than start date."),
        ({"end_date": "tomorrow"}, 400, "is an invalid date"),
        ({"name": GROUP}, 409, "already exists"),
    ],
)
def test_a_bad_lease_is_refused_and_books_nothing(
    cloud: CloudHandle, wanted: dict[str, Any], status: int, message: str
) -> None:
    connection = cloud.connect(REGION)
    answer = book(cloud, connection, **wanted)

    assert answer.status_code == status
    assert message in answer.json()["error_message"]
    assert len(leases(connection)) == 36


def test_capacity_at_the_end_of_a_lease_is_announced(cloud: CloudHandle) -> None:
    connection = cloud.connect()
    book(cloud, connection, end_date=at(cloud, hours=2))
    where = {"service_type": "rates", "region_name": REGION}
    entries = connection.session.get("/forward-capacity", endpoint_filter=where).json()["capacity"]
    entry = next(each for each in entries if each["host_group"] == GROUP)

    assert entry["free"] - entry["min_free"] == 2


def test_a_started_post_in_a_full_calendar_is_refused_but_a_later_one_is_not(cloud: CloudHandle) -> None:
    connection = cloud.connect()
    entry = cloud.admin.capacity()[GROUP]
    room = entry["reservable"] - entry["total"]
    assert room > 0
    assert book(cloud, connection, name="all", reservation={"amount": room}).status_code == 201
    now = book(cloud, connection, name="now", reservation={"amount": 1})
    later = book(
        cloud,
        connection,
        name="later",
        start_date=at(cloud, hours=2),
        end_date=at(cloud, hours=4),
        reservation={"amount": 1},
    )

    assert (now.status_code, later.status_code) == (500, 201)
    assert post_server(connection).status_code == 202
