"""What the provider offers: pools, flavors, halls, prices and forward capacity."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest

from domain.pool import PurchaseModel
from lab.cloud.estate import REGIONS, SIZES, SKUS, group_plans, price
from lab.cloud.server import CloudHandle
from tests.lab.cloud_support import HALL, POOL, REGION, manual_cloud

SEED = 20_260
DISCOUNT_LIMIT = Decimal("0.85")


@pytest.fixture(scope="module")
def cloud() -> Iterator[CloudHandle]:
    with manual_cloud(seed=SEED) as handle:
        yield handle


def rates(cloud: CloudHandle, region: str, path: str) -> dict[str, Any]:
    where = {"service_type": "rates", "region_name": region}
    answer = cloud.connect(region).session.get(path, endpoint_filter=where)
    return dict(answer.json())


def test_there_are_432_reclaimable_and_108_committed_pools() -> None:
    plans = [plan for region in REGIONS for plan in group_plans(region, SEED)]
    models = Counter(plan.purchase_model for plan in plans)

    assert models == {
        PurchaseModel.RECLAIMABLE: 432,
        PurchaseModel.GUARANTEED: 432,
        PurchaseModel.COMMITTED: 108,
    }
    assert len({plan.name for plan in plans}) == len(plans)
    assert {plan.size for plan in plans if plan.purchase_model is PurchaseModel.COMMITTED} == {"l"}
    assert Counter(plan.aggregate for plan in plans)["eu-south-h4-a3"] == 3 * (2 * 4 + 1)


def test_a_cloud_is_decided_by_its_seed() -> None:
    assert group_plans(REGION, SEED) == group_plans(REGION, SEED)
    assert group_plans(REGION, SEED) != group_plans(REGION, SEED + 1)


def test_capacities_are_of_a_plausible_size() -> None:
    plans = [plan for region in REGIONS for plan in group_plans(region, SEED)]
    plans = [plan for plan in plans if plan.purchase_model is PurchaseModel.RECLAIMABLE]

    assert all(20 <= plan.total <= 400 for plan in plans if plan.sku not in ("g1", "g2"))
    assert all(4 <= plan.total <= 40 for plan in plans if plan.sku == "g2")
    assert len({plan.total for plan in plans}) > 100


def test_reclaimable_costs_about_a_third_but_for_a_handful_of_inverted_pools() -> None:
    shares: dict[str, Decimal] = {}
    for region in REGIONS:
        plans = {plan.name: plan for plan in group_plans(region, SEED)}
        for plan in plans.values():
            if plan.purchase_model is PurchaseModel.RECLAIMABLE:
                guaranteed = price(region, plans[f"{plan.name}-guaranteed"], SEED)
                shares[plan.name] = price(region, plan, SEED) / guaranteed
    inverted = [share for share in shares.values() if share >= DISCOUNT_LIMIT]
    usual = sorted(share for share in shares.values() if share < DISCOUNT_LIMIT)

    assert len(inverted) == 6
    assert len(set(usual)) > 100
    assert Decimal("0.33") < usual[len(usual) // 2] < Decimal("0.37")


def public_flavors(cloud: CloudHandle, region: str) -> list[Any]:
    return [flavor for flavor in cloud.connect(region).compute.flavors() if flavor.is_public]


def test_flavors_carry_what_a_pool_is_made_of(cloud: CloudHandle) -> None:
    flavors = {flavor.name: flavor for flavor in public_flavors(cloud, "eu-north")}

    assert set(flavors) == {
        f"{sku}.{size}{suffix}" for sku in SKUS for size in SIZES for suffix in ("", ".reclaimable")
    }
    large_gpu = flavors["g2.xl.reclaimable"]
    assert (large_gpu.vcpus, large_gpu.ram) == (32, 32 * 8 * 1024)
    assert large_gpu.extra_specs == {
        "sco:sku": "g2",
        "sco:size": "xl",
        "sco:arch": "x86_64",
        "sco:gpu_type": "a100",
        "sco:gpu_count": "8",
        "sco:vram_gb": "80",
        "sco:nvme": "false",
        "sco:nic_gbps": "25",
        "sco:purchase_model": "reclaimable",
    }
    assert flavors["ca.s"].extra_specs["sco:arch"] == "arm64"
    assert flavors["hn.m"].extra_specs["sco:nic_gbps"] == "100"
    assert flavors["st.l"].extra_specs["sco:nvme"] == "true"
    assert "sco:gpu_type" not in flavors["gp.s"].extra_specs


def test_flavor_ids_of_one_region_mean_nothing_in_another(cloud: CloudHandle) -> None:
    north = {flavor.id for flavor in public_flavors(cloud, "eu-north")}
    west = {flavor.id for flavor in public_flavors(cloud, "eu-west")}

    assert len(north) == len(west) == 72
    assert not north & west


def test_an_aggregate_is_a_correlation_group_inside_a_hall(cloud: CloudHandle) -> None:
    aggregates = {aggregate.name: aggregate for aggregate in cloud.connect().compute.aggregates()}

    assert len(aggregates) == 12
    first = aggregates[f"{HALL}-a1"]
    assert first.availability_zone == HALL
    assert first.metadata["sco:hall"] == HALL
    assert first.metadata["sco:group"] == f"{HALL}-a1"
    assert POOL in first.hosts
    assert {host.split("-")[3] for host in first.hosts} == {"gp", "cm", "mm"}


def test_the_rate_card_prices_every_pool_exactly(cloud: CloudHandle) -> None:
    card = rates(cloud, REGION, "/rate-card")
    by_group = {rate["host_group"]: rate for rate in card["rates"]}

    assert card["currency"] == "USD"
    assert len(by_group) == 144 + 144 + 36
    rate = by_group[POOL]
    assert (rate["flavor"], rate["hall"], rate["purchase_model"]) == ("gp.m.reclaimable", HALL, "reclaimable")
    assert Decimal(rate["price_per_hour"]) < Decimal(rate["guaranteed_price_per_hour"])
    assert rate["guaranteed_price_per_hour"] == by_group[f"{POOL}-guaranteed"]["price_per_hour"]


def test_forward_capacity_never_promises_more_than_is_free(cloud: CloudHandle) -> None:
    entries = rates(cloud, REGION, "/forward-capacity")["capacity"]

    assert len(entries) == 324
    assert all(0 <= entry["min_free"] <= entry["free"] <= entry["total"] for entry in entries)
    assert any(entry["min_free"] < entry["free"] for entry in entries)


def test_a_lost_hall_shows_everywhere_and_comes_back(cloud: CloudHandle) -> None:
    cloud.admin.set_hall(HALL, "lost")
    lost = {hall["hall"]: hall["status"] for hall in rates(cloud, REGION, "/halls")["halls"]}
    zones = {zone.name: zone.state["available"] for zone in cloud.connect().compute.availability_zones()}
    free = [
        each["free"] for each in rates(cloud, REGION, "/forward-capacity")["capacity"] if each["hall"] == HALL
    ]
    cloud.admin.set_hall(HALL, "up")
    back = {hall["hall"]: hall["status"] for hall in rates(cloud, REGION, "/halls")["halls"]}

    assert (lost[HALL], zones[HALL], set(free)) == ("lost", False, {0})
    assert lost[f"{REGION}-h2"] == "up"
    assert zones[f"{REGION}-h2"]
    assert back[HALL] == "up"
