"""Leases read in every form that Blazar gives them, and extended without ever being shortened."""

from __future__ import annotations

import json
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from activities.openstack.aggregates import Aggregate, read_aggregates
from activities.openstack.session import RegionClient
from activities.ports import Lease, LeasedCapacity, ProviderErrorKind
from lab.cloud.estate import stable_id
from lab.cloud.faults import FaultKind, FaultRule
from lab.cloud.server import CloudHandle
from lab.cloud.web import reservation as blazar
from store.budget import BudgetStore
from tests.activities.openstack.hands import HALL, REGION, Hands, caught, store_budget

GROUP = f"{HALL}-gp-l-committed"
SOURCE = {
    "id": stable_id("flavor", REGION, "gp.l"),
    "name": "gp.l",
    "vcpus": 16,
    "ram": 65_536,
    "OS-FLV-EXT-DATA:ephemeral": 0,
    "extra_specs": {"sco:sku": "gp"},
}
SIZE = {"vcpus": 16, "memory_mb": 65_536, "disk_gb": 40}
IN_HALL = f'["==", "$availability_zone", "{HALL}"]'
IN_HALL_OF_FAMILY = (
    f'["and", ["=", "$availability_zone", "{HALL}"], ["==", "$sku", "ga"], [">", "$vcpus", 1]]'
)


def lease_named(hands: Hands, name: str = GROUP) -> Lease:
    return next(lease for lease in hands.catalog.leases(REGION) if lease.name == name)


def reshape(monkeypatch: pytest.MonkeyPatch, **shape: Any) -> None:
    """Let Blazar tell of every reservation in another form; None leaves a field out."""
    tell = blazar._reservation

    def told(*known: Any) -> dict[str, Any]:
        unsaid = dict.fromkeys(("host_group", "flavor_id", "resource_properties", *SIZE))
        full = {**tell(*known), **unsaid, **shape}
        return {name: value for name, value in full.items() if value is not None}

    monkeypatch.setattr(blazar, "_reservation", told)


def test_every_lease_is_read_with_its_end_and_what_it_holds(hands: Hands) -> None:
    found = hands.catalog.leases(REGION)
    assert len(found) == 36
    assert [lease.lease_id for lease in found] == sorted(lease.lease_id for lease in found)
    lease = lease_named(hands)
    assert (lease.status, lease.ends_at.utcoffset()) == ("ACTIVE", timedelta(0))
    assert (lease.ends_at.second, lease.ends_at.microsecond) == (0, 0)
    (held,) = lease.reservations
    assert (held.hall, held.flavor, held.status) == (HALL, "gp.l", "active")
    assert held.amount >= 12
    assert held.reservation_id == hands.catalog.committed_reservations(REGION)[HALL, "gp.l"]


def test_an_ended_lease_is_listed_as_such(cloud: CloudHandle, hands: Hands) -> None:
    cloud.admin.advance(31 * 86_400)
    lease = lease_named(hands)
    assert (lease.status, lease.reservations[0].status) == ("TERMINATED", "deleted")


@pytest.mark.parametrize(
    ("shape", "hall", "flavor"),
    [
        ({"flavor_id": "private", "resource_properties": json.dumps(SOURCE)}, None, "gp.l"),
        ({"flavor_id": SOURCE["id"], "resource_properties": IN_HALL}, HALL, "gp.l"),
        ({**SIZE, "resource_properties": IN_HALL_OF_FAMILY}, HALL, "ga.l"),
        ({**SIZE, "resource_properties": json.loads(IN_HALL_OF_FAMILY)}, HALL, "ga.l"),
        ({**SIZE, "resource_properties": IN_HALL}, HALL, None),
        ({**SIZE, "memory_mb": 16 * 2 * 1024, "resource_properties": ""}, None, None),
        ({"vcpus": 1, "memory_mb": 512, "resource_properties": IN_HALL}, HALL, None),
        ({"min": 1, "max": 2, "amount": None, "resource_properties": '["<", "$vcpus", "9"]'}, None, None),
        ({"resource_properties": "not json"}, None, None),
        ({"resource_properties": '["==", "$availability_zone"]'}, None, None),
        ({"host_group": f"{HALL}-g1-l-committed"}, HALL, None),
    ],
)
def test_hall_and_flavor_are_found_in_every_form(
    hands: Hands, monkeypatch: pytest.MonkeyPatch, shape: dict[str, Any], hall: str | None, flavor: str | None
) -> None:
    reshape(monkeypatch, **shape)
    (held,) = lease_named(hands).reservations
    assert (held.hall, held.flavor) == (hall, flavor)


@pytest.mark.parametrize(
    ("hosts", "hall"),
    [
        ({GROUP, f"{HALL}-gp-s"}, HALL),
        ({GROUP, f"{REGION}-h2-gp-s"}, None),
        ({"unknown"}, None),
    ],
)
def test_the_reserved_hosts_tell_the_hall_when_they_share_one(
    hands: Hands, monkeypatch: pytest.MonkeyPatch, hosts: set[str], hall: str | None
) -> None:
    """Blazar's `flavor:instance` names no hall: its aggregate does, with the reservation's id for a name."""
    reservation = lease_named(hands).reservations[0]
    reshape(monkeypatch, flavor_id=reservation.reservation_id, resource_properties=json.dumps(SOURCE))

    def with_reserved(client: RegionClient) -> list[Aggregate]:
        return [*read_aggregates(client), Aggregate(reservation.reservation_id, None, None, frozenset(hosts))]

    monkeypatch.setattr("activities.openstack.leases.read_aggregates", with_reserved)
    assert lease_named(hands).reservations == (
        LeasedCapacity(reservation.reservation_id, "active", hall, "gp.l", reservation.amount),
    )


def test_leases_of_other_projects_are_none_of_ours(
    cloud: CloudHandle, hands: Hands, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To an administrator Blazar lists those of all projects."""

    def give_away(inner: Any) -> None:
        next(each for each in inner.regions[REGION].leases.all() if each.name == GROUP).project_id = "other"

    cloud.call(give_away)
    assert len(hands.catalog.leases(REGION)) == 35
    assert (HALL, "gp.l") not in hands.catalog.committed_reservations(REGION)


def test_a_lease_ends_when_it_is_told_to_and_asking_again_asks_nothing(
    cloud: CloudHandle, hands: Hands
) -> None:
    lease = lease_named(hands)
    later = lease.ends_at + timedelta(days=30)
    for _ in range(2):
        hands.catalog.extend_lease(REGION, lease.lease_id, later)
        assert lease_named(hands).ends_at == later
    assert puts(cloud) == 1


def test_a_lease_is_never_shortened(cloud: CloudHandle, hands: Hands) -> None:
    lease = lease_named(hands)
    hands.catalog.extend_lease(REGION, lease.lease_id, lease.ends_at - timedelta(days=1))
    assert lease_named(hands).ends_at == lease.ends_at
    assert puts(cloud) == 0


def test_an_end_is_told_in_utc(hands: Hands) -> None:
    lease = lease_named(hands)
    later = (lease.ends_at + timedelta(days=1)).astimezone(timezone(timedelta(hours=5)))
    hands.catalog.extend_lease(REGION, lease.lease_id, later)
    assert lease_named(hands).ends_at == later


@pytest.mark.parametrize(
    "moment",
    [datetime.fromisoformat("2040-01-01T00:00"), datetime.fromisoformat("2040-01-01T00:00:30+00:00")],
)
def test_an_end_that_blazar_has_no_word_for_is_not_sent(
    cloud: CloudHandle, hands: Hands, moment: datetime
) -> None:
    lease = lease_named(hands)
    error = caught(hands.catalog.extend_lease, REGION, lease.lease_id, moment)
    assert error.kind is ProviderErrorKind.BAD_REQUEST
    assert "no whole minute with a time zone" in str(error)
    assert puts(cloud) == 0


def test_hosts_that_are_promised_to_others_are_no_failure_of_the_region(
    cloud: CloudHandle, hands: Hands
) -> None:
    """Blazar says it as HTTP 500, which would otherwise look like a region that is down."""
    cloud.admin.set_leases(REGION, full=True)
    lease = lease_named(hands)
    error = caught(hands.catalog.extend_lease, REGION, lease.lease_id, lease.ends_at + timedelta(days=30))
    assert error.kind is ProviderErrorKind.NO_VALID_HOST
    assert str(error).startswith(f"{REGION}: could not extend lease {lease.lease_id} to ")
    assert "HTTP 500, Not enough hosts available" in str(error)
    assert lease_named(hands).ends_at == lease.ends_at


def test_refused_leases_do_not_open_the_circuit_of_a_region(cloud: CloudHandle, budgets: BudgetStore) -> None:
    """Each refusal is a 5xx on the wire; that the lease was read just before says that the region works."""
    cloud.admin.set_leases(REGION, full=True)
    hands = Hands(cloud, store_budget(budgets))
    for lease in hands.catalog.leases(REGION)[:12]:
        error = caught(hands.catalog.extend_lease, REGION, lease.lease_id, lease.ends_at + timedelta(days=1))
        assert error.kind is ProviderErrorKind.NO_VALID_HOST
    assert len(hands.catalog.leases(REGION)) == 36
    hands.connections.close()


def test_other_failures_are_what_they_are(cloud: CloudHandle, hands: Hands) -> None:
    lease = lease_named(hands)
    later = lease.ends_at + timedelta(days=30)
    unknown = caught(hands.catalog.extend_lease, REGION, "0000/0000", later)
    assert unknown.kind is ProviderErrorKind.NOT_FOUND
    cloud.admin.add_fault(FaultRule(kind=FaultKind.ERROR_AFTER, method="PUT", path="/leases/", status=500))
    broken = caught(hands.catalog.extend_lease, REGION, lease.lease_id, later)
    assert broken.kind is ProviderErrorKind.UNAVAILABLE
    assert lease_named(hands).ends_at == later


def puts(cloud: CloudHandle) -> int:
    return int(cloud.admin.requests()["regions"][REGION]["by_method"].get("PUT", 0))
