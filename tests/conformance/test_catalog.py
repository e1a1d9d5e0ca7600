"""What a region offers and grants: flavors with their facts, halls, correlation groups, quota."""

from __future__ import annotations

from tests.conformance.hands import Hands, spec
from tests.conformance.provider import (
    FLAVOR,
    HALL,
    OTHER_HALL,
    RAM_MIB,
    REGION,
    SMALL_HALL,
    VCPUS,
    Provider,
)


def test_flavors_come_with_their_extra_specs(hands: Hands) -> None:
    flavors = {flavor.name: flavor for flavor in hands.catalog.catalog(REGION).flavors}
    flavor = flavors[FLAVOR]
    assert (flavor.vcpus, flavor.ram_mib) == (VCPUS, RAM_MIB)
    assert flavor.extra_specs["sco:sku"] == "gp"
    assert flavor.extra_specs["sco:purchase_model"] == "reclaimable"
    assert flavors["ga.m.reclaimable"].extra_specs["sco:arch"] == "arm64"


def test_halls_are_zones_and_groups_are_aggregates(hands: Hands) -> None:
    found = hands.catalog.catalog(REGION)
    assert {HALL, OTHER_HALL, SMALL_HALL} <= set(found.halls)
    assert all(hall.startswith(f"{REGION}-h") for hall in found.halls)
    assert found.group_of[HALL, "gp"] == f"{HALL}-a1"
    assert found.group_of[HALL, "ga"] == f"{HALL}-a2"
    assert found.group_of[OTHER_HALL, "gp"] == f"{OTHER_HALL}-a1"


def test_prices_and_capacity_belong_to_pools_of_the_catalog(hands: Hands) -> None:
    found = hands.catalog.catalog(REGION)
    flavors = {flavor.name for flavor in found.flavors}
    observed = hands.catalog.observe(REGION)
    assert (HALL, FLAVOR) in {(each.hall, each.flavor) for each in observed}
    assert all(each.hall in found.halls and each.flavor in flavors for each in observed)
    assert hands.catalog.lost_halls(REGION) == frozenset()


def test_quota_counts_what_runs_builds_or_failed(provider: Provider, hands: Hands, workload: str) -> None:
    before = hands.catalog.quota(REGION)
    hands.running(workload, 2)
    after = hands.catalog.quota(REGION)
    assert after.instances_used == before.instances_used + 2
    assert after.cores_used == before.cores_used + 2 * VCPUS
    assert after.ram_mib_used == before.ram_mib_used + 2 * RAM_MIB

    failed = f"{workload}-failed"
    hands.compute.create_batch(spec(failed, metadata=provider.failing_build()), 1)
    hands.settled(failed)
    assert hands.catalog.quota(REGION).instances_used == after.instances_used + 1


def test_an_unlimited_quota_is_no_limit(provider: Provider, hands: Hands) -> None:
    with provider.quota(instances=-1, cores=1_234, ram=-1):
        found = hands.catalog.quota(REGION)
    assert (found.instances_limit, found.cores_limit, found.ram_mib_limit) == (None, 1_234, None)


def test_the_details_of_zones_are_for_administrators(provider: Provider) -> None:
    """Why a hall counts as lost only when the provider's own service says so."""
    assert provider.ask("GET", "/os-availability-zone/detail").status_code == 403
    shown = provider.ask("GET", "/os-availability-zone").json()["availabilityZoneInfo"]
    assert {zone["hosts"] for zone in shown} == {None}
