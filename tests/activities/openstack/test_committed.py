"""Committed servers on the simulated cloud: asked for by the flavor of their reservation, or not at all."""

from __future__ import annotations

from datetime import timedelta

from activities.ports import ProviderErrorKind
from domain.acquisition import ServerStatus
from domain.pool import Arch
from lab.cloud.cloud import Cloud
from lab.cloud.identity import PROJECT_ID, USER_ID
from lab.cloud.leases import Lease, Reservation
from lab.cloud.reserved import BY_FLAVOR, BY_SIZE
from lab.cloud.server import CloudHandle
from tests.activities.openstack.hands import HALL, IMAGES, REGION, Hands, caught, seen_by, spec


def book(cloud: CloudHandle, reservation_id: str, kind: str = BY_FLAVOR, sku: str = "gp") -> None:
    """A lease of one instance that lasts longer than the one the pool has."""

    def act(inner: Cloud) -> None:
        region = inner.regions[REGION]
        start = region.now().replace(second=0, microsecond=0)
        group = region.groups[f"{HALL}-{sku}-l-committed"]
        asked: dict[str, object] = {"vcpus": group.flavor.vcpus, "memory_mb": group.flavor.ram_mib}
        held = Reservation(reservation_id, group.name, kind, 1, asked)
        name, end = f"lease of {reservation_id}", start + timedelta(days=90)
        region.book(Lease(name, name, PROJECT_ID, USER_ID, start, end, start, reservations=[held]))

    cloud.call(act)
    cloud.admin.advance(0)


def posts(cloud: CloudHandle) -> int:
    return int(cloud.admin.requests()["regions"][REGION]["by_method"].get("POST", 0))


def test_committed_servers_have_the_flavor_of_their_reservation(cloud: CloudHandle, hands: Hands) -> None:
    reservation_id = hands.catalog.committed_reservations(REGION)[HALL, "gp.l"]
    hands.compute.create_batch(spec(flavor="gp.l", reservation_id=reservation_id), 3)
    cloud.admin.advance(60)
    assert cloud.admin.capacity(REGION)[f"{HALL}-gp-l-committed"]["used"] == 3
    assert {server.status for server in hands.compute.list_managed(REGION)} == {ServerStatus.ACTIVE}
    sent = {(one["flavor_id"], len(one["hints"])) for one in cloud.admin.servers(region=REGION)}
    assert sent == {(reservation_id, 0)}


def test_a_flavor_is_looked_for_once_and_a_new_one_is_found(cloud: CloudHandle, hands: Hands) -> None:
    hands.catalog.catalog(REGION)
    book(cloud, "reservation-late")
    assert hands.catalog.committed_reservations(REGION)[HALL, "gp.l"] == "reservation-late"
    cloud.admin.clear_requests()
    for number, calls in ((1, 2), (2, 3), (3, 4)):
        batch = spec(f"b-{number}", flavor="gp.l", reservation_id="reservation-late")
        hands.compute.create_batch(batch, 1)
        assert seen_by(cloud)[REGION] == calls
    assert posts(cloud) == 3


def test_without_a_flavor_of_its_own_nothing_is_sent(cloud: CloudHandle, hands: Hands) -> None:
    """A reservation of whole hosts has none; Nova would take the hint and may not heed it."""
    batch = spec("b-9", flavor="gp.l", reservation_id="reservation-of-hosts")
    error = caught(hands.compute.create_batch, batch, 1)
    assert (error.kind, error.in_doubt) == (ProviderErrorKind.BAD_REQUEST, False)
    for said in ("batch b-9 was not sent", "reservation-of-hosts", "gp.l", "flavor:instance"):
        assert said in str(error)
    assert posts(cloud) == 0


def test_a_lease_that_ended_unnoticed_is_refused_by_the_provider(cloud: CloudHandle, hands: Hands) -> None:
    reservation_id = hands.catalog.committed_reservations(REGION)[HALL, "gp.l"]
    hands.compute.create_batch(spec("b-1", flavor="gp.l", reservation_id=reservation_id), 1)
    cloud.admin.advance(31 * 86_400)
    late = spec("b-2", flavor="gp.l", reservation_id=reservation_id)
    refused = [caught(hands.compute.create_batch, late, 1) for _ in range(2)]
    assert [(one.kind, one.in_doubt) for one in refused] == [(ProviderErrorKind.BAD_REQUEST, False)] * 2
    assert "could not be found" in str(refused[0])
    assert "has no flavor of its own" in str(refused[1])
    assert hands.compute.list_managed(REGION) == []


def test_the_image_is_that_of_the_pools_architecture(cloud: CloudHandle) -> None:
    """A reservation by size says nothing of it in its own flavor."""
    arm = "11111111-2222-4333-8444-555555555555"
    hands = Hands(cloud, images={**IMAGES, Arch.ARM64: arm})
    book(cloud, "reservation-arm", BY_SIZE, "ga")
    hands.compute.create_batch(spec(flavor="ga.l", reservation_id="reservation-arm"), 1)
    assert [one["image_id"] for one in cloud.admin.servers(region=REGION)] == [arm]
    hands.connections.close()


def test_no_pool_has_the_flavor_of_a_reservation(cloud: CloudHandle, hands: Hands) -> None:
    """Though it says of itself what the flavor said that it was made from."""
    with cloud.connect(REGION) as connection:
        private = [each for each in connection.compute.flavors() if not each.is_public]
    assert {each.extra_specs["sco:size"] for each in private} == {"l"}
    assert len(private) == 36
    assert not {each.name for each in private} & {one.name for one in hands.catalog.catalog(REGION).flavors}
