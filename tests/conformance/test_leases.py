"""Leases: read, extended and refused alike by the simulated cloud and by a real Blazar beside a real Nova."""

from __future__ import annotations

import itertools
import json
import shutil
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from activities.ports import Lease, ProviderErrorKind
from lab.openstack.blazar import RunningBlazar
from lab.openstack.site import HOST_GROUPS
from tests.conformance.hands import Hands, caught, until
from tests.conformance.nova import NovaCloud
from tests.conformance.provider import IMAGES, REGION, SMALL_HALL, Provider
from tests.stack_fixtures import new_folder

HALL, SKU, FLAVOR = SMALL_HALL, "gp", "gp.l"
NOVA_HOST, SIMULATED_HOST = f"{HALL}-gp-m", f"{HALL}-gp-l-committed"
VCPUS, RAM_MIB, DISK_GIB = 16, 64 * 1024, 40
WHERE = {"service_type": "reservation", "interface": "public", "region_name": REGION}
ACCEPT = {"Accept": "application/json"}
BY_FLAVOR, BY_SIZE = "flavor:instance", "virtual:instance"
LONG = timedelta(days=60)
_numbers = itertools.count(1)


class Lessor:
    """Books leases with the project's own user, as an operator would, and gives them back."""

    def __init__(self, provider: Provider, hands: Hands, instances: int) -> None:
        self.instances = instances
        self._hands = hands
        self._real = isinstance(provider, NovaCloud)
        self._connection = provider.connect()
        self._booked: list[str] = []
        found = self._connection.compute.find_flavor(FLAVOR, ignore_missing=False)
        self._flavor_id = str(found.id)

    def close(self) -> None:
        for lease_id in self._booked:
            self.ask("DELETE", f"/leases/{lease_id}")
        self._connection.close()

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """One request to Blazar as it is, whatever it answers."""
        return self._connection.session.request(
            path, method, json=body, endpoint_filter=WHERE, headers=ACCEPT, raise_exc=False
        )

    def try_to_book(self, end: datetime, *, kind: str = BY_SIZE, amount: int = 1, start: str = "now") -> Any:
        properties = ["and", ["==", "$availability_zone", HALL], ["==", "$sku", SKU]]
        size = {"vcpus": VCPUS, "memory_mb": RAM_MIB, "disk_gb": DISK_GIB}
        reservation = {
            "resource_type": kind,
            "amount": amount,
            "affinity": None,
            "resource_properties": json.dumps(properties),
            **(size if kind == BY_SIZE else {"flavor_id": self._flavor_id}),
        }
        body = {
            "name": f"lease-{next(_numbers)}",
            "start_date": start,
            "end_date": text(end),
            "reservations": [reservation],
            "events": [],
        }
        answer = self.ask("POST", "/leases", body)
        if answer.status_code == 201:
            self._booked.append(str(answer.json()["lease"]["id"]))
        return answer

    def book(self, kind: str = BY_SIZE, amount: int = 1) -> Lease:
        """A lease that runs."""
        answer = self.try_to_book(datetime.now(UTC) + LONG, kind=kind, amount=amount)
        assert answer.status_code == 201, answer.text
        lease_id = self._booked[-1]
        return until(lambda: self.lease(lease_id), lambda lease: lease.status == "ACTIVE")

    def lease(self, lease_id: str) -> Lease:
        return next(one for one in self._hands.catalog.leases(REGION) if one.lease_id == lease_id)

    def launch(self, reservation_id: str) -> str:
        """A server on a reservation. A real one is asked for with the flavor that Blazar made for it."""
        body: dict[str, Any] = {
            "name": "floor",
            "flavorRef": reservation_id if self._real else self._flavor_id,
            "imageRef": str(next(iter(IMAGES.values()))),
            "networks": "none",
            "availability_zone": HALL,
        }
        hints = {} if self._real else {"os:scheduler_hints": {"reservation": reservation_id}}
        answer = self._connection.compute.post(
            "/servers", json={"server": body, **hints}, microversion="2.75"
        )
        assert answer.status_code == 202, answer.text
        server_id = str(answer.json()["server"]["id"])
        assert until(lambda: self.status_of(server_id), lambda status: status != "BUILD") == "ACTIVE"
        return server_id

    def status_of(self, server_id: str) -> str | None:
        answer = self._connection.compute.get(f"/servers/{server_id}", microversion="2.75")
        return None if answer.status_code == 404 else str(answer.json()["server"]["status"])


def text(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%d %H:%M")


@pytest.fixture(scope="module")
def blazar(nova: NovaCloud) -> Iterator[int]:
    """Started beside Nova when the first test asks for it; the instances that its host holds."""
    folder = new_folder()
    with RunningBlazar.start(folder / "blazar", nova.running) as running:
        running.take_host(NOVA_HOST, sku=SKU)
        yield next(group.vcpus for group in HOST_GROUPS if group.name == NOVA_HOST) // VCPUS
    shutil.rmtree(folder)


@pytest.fixture
def lessor(request: pytest.FixtureRequest, provider: Provider, hands: Hands) -> Iterator[Lessor]:
    if isinstance(provider, NovaCloud):
        instances = request.getfixturevalue("blazar")
    else:
        with provider.connect() as connection:
            hosts = connection.session.get("/os-hosts", endpoint_filter=WHERE).json()["hosts"]
        instances = next(host["instances"] for host in hosts if host["hypervisor_hostname"] == SIMULATED_HOST)
    made = Lessor(provider, hands, instances)
    yield made
    made.close()


@pytest.mark.parametrize("kind", [BY_FLAVOR, BY_SIZE])
def test_a_lease_is_read_with_its_end_and_what_it_holds(lessor: Lessor, hands: Hands, kind: str) -> None:
    lease = lessor.book(kind)
    assert lease.status == "ACTIVE"
    left = lease.ends_at - datetime.now(UTC)
    assert LONG - timedelta(minutes=2) < left <= LONG
    (held,) = lease.reservations
    assert (held.status, held.hall, held.flavor, held.amount) == ("active", HALL, FLAVOR, 1)
    assert hands.catalog.committed_reservations(REGION)[HALL, FLAVOR] == held.reservation_id


@pytest.mark.parametrize("kind", [BY_FLAVOR, BY_SIZE])
def test_a_lease_is_extended_once_and_never_shortened(lessor: Lessor, hands: Hands, kind: str) -> None:
    lease = lessor.book(kind)
    later = lease.ends_at + timedelta(days=30)
    for end in (later, later, lease.ends_at):
        hands.catalog.extend_lease(REGION, lease.lease_id, end)
        assert lessor.lease(lease.lease_id).ends_at == later
    assert lessor.lease(lease.lease_id).status == "ACTIVE"


def test_a_lease_is_not_extended_over_what_others_have_booked(lessor: Lessor, hands: Hands) -> None:
    """By flavor: of a reservation by size, a real Blazar counts one instance on each host, however many."""
    lease = lessor.book(BY_FLAVOR)
    start = lease.ends_at + timedelta(days=1)
    others = lessor.try_to_book(start + LONG, kind=BY_FLAVOR, amount=lessor.instances, start=text(start))
    assert others.status_code == 201, others.text
    error = caught(hands.catalog.extend_lease, REGION, lease.lease_id, start + timedelta(days=1))
    assert error.kind is ProviderErrorKind.NO_VALID_HOST
    assert "HTTP 500, Not enough hosts available" in str(error)
    assert lessor.lease(lease.lease_id) == lease
    before = start - timedelta(minutes=1)
    hands.catalog.extend_lease(REGION, lease.lease_id, before)
    assert lessor.lease(lease.lease_id).ends_at == before


def test_more_than_there_is_cannot_be_booked(lessor: Lessor) -> None:
    end, amount = datetime.now(UTC) + LONG, lessor.instances + 1
    answer = lessor.try_to_book(end, kind=BY_FLAVOR, amount=amount)
    assert answer.status_code == 500
    assert answer.json()["error_message"] == "Not enough hosts available"


def test_an_end_in_the_past_is_refused(lessor: Lessor) -> None:
    lease = lessor.book()
    past = text(datetime.now(UTC) - timedelta(days=1))
    answer = lessor.ask("PUT", f"/leases/{lease.lease_id}", {"end_date": past})
    assert answer.status_code == 400
    assert answer.json()["error_message"] == "End date must be later than current and start date"
    assert lessor.lease(lease.lease_id) == lease


def test_a_lease_that_nobody_knows_is_not_found(lessor: Lessor, hands: Hands) -> None:
    error = caught(hands.catalog.extend_lease, REGION, "nobody", datetime(2040, 1, 1, tzinfo=UTC))
    assert (error.kind, error.in_doubt) == (ProviderErrorKind.NOT_FOUND, False)
    assert "not found" in str(error)


def test_servers_go_with_their_lease(lessor: Lessor, hands: Hands) -> None:
    """Which is why its end is watched."""
    lease = lessor.book()
    server_id = lessor.launch(lease.reservations[0].reservation_id)
    assert lessor.ask("DELETE", f"/leases/{lease.lease_id}").status_code == 204
    assert until(lambda: lessor.status_of(server_id), lambda status: status is None) is None
    assert lease.lease_id not in {one.lease_id for one in hands.catalog.leases(REGION)}
