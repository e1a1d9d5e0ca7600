"""Committed servers run on their lease: of its flavor, within its amount, and no longer than it."""

from __future__ import annotations

from typing import Any

import pytest

from activities.ports import Lease, ProviderErrorKind, Server
from domain.acquisition import ServerStatus
from tests.conformance.hands import Hands, caught, spec, until
from tests.conformance.lessor import BY_FLAVOR, BY_SIZE, FLAVOR, HALL, HOST, Lessor
from tests.conformance.provider import REGION, Provider

KINDS = (BY_FLAVOR, BY_SIZE)
ACTIVE, ERROR = ServerStatus.ACTIVE, ServerStatus.ERROR
OF_POOL = {"sco_pool": HOST, "sco_purchase_model": "committed"}


def launch(hands: Hands, workload: str, count: int, lease: Lease | None) -> list[Server]:
    """A batch of the committed pool, once none of it builds; without a lease it runs beside all."""
    reservation_id = lease.reservations[0].reservation_id if lease is not None else None
    batch = spec(workload, metadata=OF_POOL, hall=HALL, flavor=FLAVOR, reservation_id=reservation_id)
    hands.compute.create_batch(batch, count)
    return list(hands.settled(workload))


def left_of(hands: Hands, workload: str) -> list[Server]:
    """What still exists of a workload that is to go."""
    return list(until(lambda: hands.compute.list_workload(REGION, workload), lambda left: not left))


def remove(hands: Hands, server_id: str) -> None:
    """Delete a server, and see that its room is free again."""
    hands.compute.delete(REGION, server_id)
    assert until(lambda: hands.compute.find(REGION, server_id), lambda found: found is None) is None


def statuses(servers: list[Server]) -> list[ServerStatus]:
    return [server.status for server in servers]


def flavor_of(provider: Provider, server: Server) -> str:
    shown: dict[str, Any] = provider.ask("GET", f"/servers/{server.server_id}").json()["server"]
    return str(shown["flavor"]["original_name"])


@pytest.mark.parametrize("kind", KINDS)
def test_a_committed_batch_runs_on_its_lease(
    provider: Provider, lessor: Lessor, hands: Hands, workload: str, kind: str
) -> None:
    """The lease is made after the flavors were read, and is found."""
    hands.warm()
    lease = lessor.book(kind, amount=2)
    servers = launch(hands, workload, 2, lease)
    assert statuses(servers) == [ACTIVE] * 2
    reservation_id = lease.reservations[0].reservation_id
    assert {flavor_of(provider, server) for server in servers} == {f"reservation:{reservation_id}"}
    assert {(server.pool_id, server.metadata["sco_purchase_model"]) for server in servers} == {
        (HOST, "committed")
    }


@pytest.mark.parametrize("kind", KINDS)
def test_more_than_is_reserved_finds_no_host(lessor: Lessor, hands: Hands, workload: str, kind: str) -> None:
    """Though there is room beside the lease."""
    lease = lessor.book(kind, amount=2)
    assert statuses(launch(hands, f"{workload}-all", 3, lease)) == [ERROR] * 3
    first, _ = launch(hands, workload, 2, lease)
    (refused,) = launch(hands, f"{workload}-more", 1, lease)
    assert refused.status is ERROR
    assert "No valid host was found" in str(refused.fault)

    remove(hands, first.server_id)
    assert statuses(launch(hands, f"{workload}-again", 1, lease)) == [ACTIVE]


@pytest.mark.parametrize("kind", KINDS)
def test_servers_go_with_their_lease_and_no_others(
    lessor: Lessor, hands: Hands, workload: str, kind: str
) -> None:
    """Those that found no host on it go too."""
    lease = lessor.book(kind, amount=1)
    assert statuses(launch(hands, workload, 1, lease)) == [ACTIVE]
    assert statuses(launch(hands, f"{workload}-more", 1, lease)) == [ERROR]
    (beside,) = launch(hands, f"{workload}-beside", 1, None)
    lessor.end(lease)
    assert left_of(hands, workload) == left_of(hands, f"{workload}-more") == []
    assert statuses(list(hands.compute.list_workload(REGION, f"{workload}-beside"))) == [beside.status]
    assert beside.status is ACTIVE
    assert lease.lease_id not in {one.lease_id for one in hands.catalog.leases(REGION)}
    remove(hands, beside.server_id)


def test_a_hint_alone_puts_no_server_on_a_lease(
    provider: Provider, lessor: Lessor, hands: Hands, workload: str
) -> None:
    """Why the hint is never sent: it would run as guaranteed capacity that nobody approved."""
    lease = lessor.book(BY_FLAVOR, amount=1)
    body = {
        "server": {
            "name": workload,
            "flavorRef": lessor.flavor_id,
            "imageRef": str(next(iter(provider.settings().images.values()))),
            "networks": "none",
            "availability_zone": HALL,
        },
        "os:scheduler_hints": {"reservation": lease.reservations[0].reservation_id},
    }
    answer = provider.ask("POST", "/servers", body)
    assert answer.status_code == 202
    server_id = str(answer.json()["server"]["id"])
    assert statuses(launch(hands, workload, 1, lease)) == [ACTIVE]
    lessor.end(lease)
    assert left_of(hands, workload) == []

    def status() -> str:
        return str(provider.ask("GET", f"/servers/{server_id}").json()["server"]["status"])

    assert until(status, lambda shown: shown != "BUILD") == "ACTIVE"
    remove(hands, server_id)


@pytest.mark.parametrize("kind", KINDS)
def test_a_reservation_has_a_private_flavor_while_it_is_active(
    lessor: Lessor, hands: Hands, kind: str
) -> None:
    """It is listed like any other, and is no flavor of a pool."""
    lease = lessor.book(kind)
    reservation_id = lease.reservations[0].reservation_id
    flavors = lessor.flavors()
    made, source = flavors[reservation_id], flavors[lessor.flavor_id]
    assert (made.name, made.is_public) == (f"reservation:{reservation_id}", False)
    assert (made.vcpus, made.ram, made.disk) == (source.vcpus, source.ram, source.disk)
    assert made.extra_specs == {
        **(source.extra_specs if kind == BY_FLAVOR else {}),
        "aggregate_instance_extra_specs:reservation": reservation_id,
        f"resources:CUSTOM_RESERVATION_{reservation_id.upper().replace('-', '_')}": "1",
    }
    assert not [each.name for each in hands.catalog.catalog(REGION).flavors if ":" in each.name]
    lessor.end(lease)
    assert until(lambda: reservation_id in lessor.flavors(), lambda listed: not listed) is False


def test_without_the_flavor_of_its_reservation_nothing_is_launched(
    lessor: Lessor, hands: Hands, workload: str
) -> None:
    """As when the lease has ended meanwhile, whether or not its flavor was known."""
    lease = lessor.book(BY_FLAVOR)
    assert statuses(launch(hands, workload, 1, lease)) == [ACTIVE]
    lessor.end(lease)
    assert left_of(hands, workload) == []
    late = f"{workload}-late"
    for _ in range(2):
        error = caught(launch, hands, late, 1, lease)
        assert (error.kind, error.in_doubt) == (ProviderErrorKind.BAD_REQUEST, False)
    assert "would not be on the lease" in str(error)
    assert hands.compute.list_workload(REGION, late) == []
