"""What the simulated cloud offers, promises and charges, read through the catalog."""

from __future__ import annotations

from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from activities.openstack.catalog import OpenStackCatalog
from activities.ports import ProviderErrorKind
from domain.pool import PurchaseModel
from lab.cloud.cloud import Cloud
from lab.cloud.faults import FaultKind, FaultRule
from lab.cloud.identity import PROJECT_ID, USER_ID
from lab.cloud.leases import Lease, Reservation
from lab.cloud.server import CloudHandle
from lab.cloud.web.rates import RatesApi
from tests.activities.openstack.hands import FLAVOR, HALL, POOL, REGION, Hands, caught, spec

SKUS = ("gp", "cm", "mm", "ga", "ca", "st", "hn", "g1", "g2")
HALLS = tuple(f"{REGION}-h{number}" for number in range(1, 5))


def test_the_catalog_names_flavors_halls_and_correlation_groups(hands: Hands) -> None:
    found = hands.catalog.catalog(REGION)
    assert found.halls == HALLS
    assert set(found.group_of) == {(hall, sku) for hall in HALLS for sku in SKUS}
    assert found.group_of[HALL, "gp"] == found.group_of[HALL, "mm"] == f"{HALL}-a1"
    assert found.group_of[HALL, "g2"] == f"{HALL}-a3"
    by_name = {flavor.name: flavor for flavor in found.flavors}
    assert len(by_name) == len(SKUS) * 4 * 2
    gpu = by_name["g2.xl.reclaimable"]
    assert (gpu.vcpus, gpu.ram_mib) == (32, 32 * 8 * 1024)
    assert gpu.extra_specs["sco:gpu_type"] == "a100"
    assert gpu.extra_specs["sco:purchase_model"] == "reclaimable"


def test_every_pool_is_observed_with_price_and_room(cloud: CloudHandle, hands: Hands) -> None:
    cloud.admin.set_capacity(POOL, 50)
    hands.compute.create_batch(spec(), 4)
    found = {(one.hall, one.flavor, one.purchase_model): one for one in hands.catalog.observe(REGION)}
    assert len(found) == len(HALLS) * len(SKUS) * (4 + 4 + 1)
    pool = found[HALL, FLAVOR, PurchaseModel.RECLAIMABLE]
    assert (pool.total_instances, pool.free_instances) == (50, 46)
    assert 0 <= pool.free_24h_instances <= 46
    price, guaranteed = Decimal(pool.price_per_hour_usd), Decimal(pool.guaranteed_price_per_hour_usd)
    assert 0 < price < guaranteed
    committed = found[HALL, "gp.l", PurchaseModel.COMMITTED]
    assert Decimal(committed.price_per_hour_usd) < Decimal(committed.guaranteed_price_per_hour_usd)


def test_quota_follows_what_is_used_and_minus_one_is_unlimited(cloud: CloudHandle, hands: Hands) -> None:
    cloud.admin.set_quota(REGION, instances=100, cores=-1)
    hands.compute.create_batch(spec(), 3)
    found = hands.catalog.quota(REGION)
    assert (found.instances_limit, found.instances_used) == (100, 3)
    assert (found.cores_limit, found.cores_used) == (None, 24)
    assert found.ram_mib_used == 3 * 8 * 4 * 1024


def test_servers_in_error_use_quota_until_they_are_deleted(cloud: CloudHandle, hands: Hands) -> None:
    cloud.admin.set_capacity(POOL, 0)
    hands.compute.create_batch(spec(), 2)
    cloud.admin.advance(60)
    assert hands.catalog.quota(REGION).instances_used == 2
    for server in hands.compute.list_managed(REGION):
        hands.compute.delete(REGION, server.server_id)
    cloud.admin.advance(60)
    assert hands.catalog.quota(REGION).instances_used == 0


def test_halls_are_lost_when_the_provider_says_so(cloud: CloudHandle, hands: Hands) -> None:
    assert hands.catalog.lost_halls(REGION) == frozenset()
    cloud.admin.set_hall(HALL, "lost")
    assert hands.catalog.lost_halls(REGION) == {HALL}
    assert hands.catalog.lost_halls("eu-west") == frozenset()
    assert hands.catalog.catalog(REGION).halls == HALLS
    cloud.admin.set_hall(HALL, "up")
    assert hands.catalog.lost_halls(REGION) == frozenset()


def test_reservations_are_those_of_active_leases(cloud: CloudHandle, hands: Hands) -> None:
    found = hands.catalog.committed_reservations(REGION)
    assert set(found) == {(hall, f"{sku}.l") for hall in HALLS for sku in SKUS}
    assert len(set(found.values())) == len(found)
    cloud.admin.advance(31 * 86_400)
    assert hands.catalog.committed_reservations(REGION) == {}


def test_of_two_leases_the_one_that_lasts_longer_is_used(cloud: CloudHandle, hands: Hands) -> None:
    pool = f"{HALL}-gp-l-committed"
    held = hands.catalog.committed_reservations(REGION)[HALL, "gp.l"]
    now = datetime.fromisoformat(cloud.admin.clock()["now"])

    def shrink_and_book(inner: Cloud) -> None:
        region = inner.regions[REGION]
        _, reservation = region.leases.reservation(held) or pytest.fail("the lease is gone")
        reservation.amount = 1
        for name, days in (("long", 90), ("short", 5)):
            end = now + timedelta(days=days)
            booked = Reservation(f"reservation-{name}", pool, "flavor:instance", 1, reservation.asked)
            region.book(Lease(name, name, PROJECT_ID, USER_ID, now, end, now, reservations=[booked]))

    cloud.call(shrink_and_book)
    assert hands.catalog.committed_reservations(REGION)[HALL, "gp.l"] == "reservation-long"
    cloud.admin.advance(6 * 86_400)
    assert hands.catalog.committed_reservations(REGION)[HALL, "gp.l"] == "reservation-long"


def test_prices_in_another_currency_are_refused(
    hands: Hands, cloud: CloudHandle, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lab.cloud.web.rates.CURRENCY", "EUR")
    error = caught(hands.catalog.observe, REGION)
    assert error.kind is ProviderErrorKind.UNKNOWN
    assert "currency" in str(error)


def test_a_pool_that_one_answer_lacks_was_not_observed(
    hands: Hands, cloud: CloudHandle, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = RatesApi._answer

    def without_pool(self: RatesApi, name: str, entries: list[dict[str, Any]], more: dict[str, Any]) -> Any:
        kept = [each for each in entries if name != "capacity" or each["host_group"] != POOL]
        return answer(self, name, kept, more)

    monkeypatch.setattr(RatesApi, "_answer", without_pool)
    observed = hands.catalog.observe(REGION)
    assert observed
    assert (HALL, FLAVOR) not in {(one.hall, one.flavor) for one in observed}


@pytest.mark.parametrize(
    ("act", "path"),
    [
        (OpenStackCatalog.catalog, "/os-aggregates$"),
        (OpenStackCatalog.observe, "/forward-capacity$"),
        (OpenStackCatalog.quota, "/limits$"),
        (OpenStackCatalog.lost_halls, "/halls$"),
        (OpenStackCatalog.committed_reservations, "/leases$"),
    ],
)
def test_what_fails_is_an_error_with_region_and_request_id(
    cloud: CloudHandle, hands: Hands, act: Any, path: str
) -> None:
    cloud.admin.add_fault(FaultRule(kind=FaultKind.ERROR_BEFORE, path=path, status=500))
    error = caught(act, hands.catalog, REGION)
    assert (error.kind, error.in_doubt) == (ProviderErrorKind.UNAVAILABLE, False)
    assert str(error).startswith(f"{REGION}: could not read the ")
    assert "HTTP 500" in str(error)
    assert "req-" in str(error)
