"""Batches: created whole or not at all, found by their metadata, and honest about what went wrong."""

from __future__ import annotations

from typing import Any

import pytest

from activities.errors import kind_of_fault
from activities.ports import ProviderErrorKind
from domain.acquisition import ServerStatus
from domain.tags import MANAGED_TAG, workload_tag
from store.budget import BudgetStore
from tests.conformance.hands import Hands, caught, spec
from tests.conformance.provider import (
    FITS,
    FLAVOR,
    HALL,
    NO_IMAGES,
    OTHER_FLAVOR,
    OTHER_HALL,
    REGION,
    SMALL_HALL,
    VCPUS,
    Provider,
)


def test_a_batch_is_created_in_one_call_and_carries_all_that_was_asked(
    provider: Provider, hands: Hands, workload: str
) -> None:
    asked = spec(workload, metadata={"sco_generation": "4"}, tags=("sco:partition=k8s-eu-north",))
    hands.compute.create_batch(asked, 3)

    at_once = hands.compute.list_workload(REGION, workload)
    assert [server.batch_key for server in at_once] == [asked.batch_key] * 3

    listed = hands.settled(workload)
    assert [server.status for server in listed] == [ServerStatus.ACTIVE] * 3
    assert {server.server_id for server in listed} == {server.server_id for server in at_once}
    for server in listed:
        assert (server.workload_id, server.pool_id) == (workload, f"{HALL}-gp-m")
        assert server.metadata == asked.metadata
        assert server.tags == tuple(sorted(asked.tags))
        assert server.fault is None
        assert provider.user_data(server.server_id) == asked.user_data.encode()
        shown = provider.ask("GET", f"/servers/{server.server_id}").json()["server"]
        assert shown["OS-EXT-AZ:availability_zone"] == HALL
        assert shown["flavor"]["original_name"] == FLAVOR
        assert shown["addresses"] == {}
    assert {each.name for each in listed} == {f"{asked.name_prefix}-{number}" for number in (1, 2, 3)}


def test_one_server_is_a_batch_too(hands: Hands, provider: Provider, workload: str) -> None:
    [server_id] = hands.running(workload, 1, hall=OTHER_HALL)
    shown = provider.ask("GET", f"/servers/{server_id}").json()["server"]
    assert (shown["name"], shown["OS-EXT-AZ:availability_zone"]) == (f"sco-{workload}-g1", OTHER_HALL)


def test_the_image_follows_the_architecture_of_the_flavor(hands: Hands, workload: str) -> None:
    hands.running(workload, 1, flavor=OTHER_FLAVOR)


def test_a_batch_beyond_the_quota_is_refused_whole(provider: Provider, hands: Hands, workload: str) -> None:
    used = hands.catalog.quota(REGION).instances_used
    with provider.quota(instances=used + 2):
        error = caught(hands.compute.create_batch, spec(workload), 3)
        assert (error.kind, error.in_doubt) == (ProviderErrorKind.QUOTA, False)
        assert "Quota exceeded for instances: Requested 3" in str(error)
        assert hands.compute.list_workload(REGION, workload) == []
        hands.compute.create_batch(spec(workload), 2)
    assert len(hands.settled(workload)) == 2


def test_a_batch_beyond_the_cores_is_refused_whole(provider: Provider, hands: Hands, workload: str) -> None:
    used = hands.catalog.quota(REGION).cores_used
    with provider.quota(cores=used + 2 * VCPUS):
        error = caught(hands.compute.create_batch, spec(workload), 3)
    assert (error.kind, error.in_doubt) == (ProviderErrorKind.QUOTA, False)
    assert f"Quota exceeded for cores: Requested {3 * VCPUS}" in str(error)


def test_a_batch_that_was_accepted_may_still_fail_for_quota(
    provider: Provider, hands: Hands, workload: str
) -> None:
    """Nova counts again when it has found the hosts."""
    hands.warm()
    with provider.late_quota(lambda: hands.compute.create_batch(spec(workload), 6)):
        listed = hands.settled(workload)
    assert [server.status for server in listed] == [ServerStatus.ERROR] * 6
    assert all("Quota exceeded for cores" in str(server.fault) for server in listed)
    assert {kind_of_fault(str(server.fault)) for server in listed} == {ProviderErrorKind.QUOTA}


def test_when_some_find_no_host_the_whole_batch_is_in_error(hands: Hands, workload: str) -> None:
    hands.compute.create_batch(spec(workload, hall=SMALL_HALL), FITS + 1)
    listed = hands.settled(workload)
    assert [server.status for server in listed] == [ServerStatus.ERROR] * (FITS + 1)
    for server in listed:
        assert "No valid host was found" in str(server.fault)
        assert kind_of_fault(str(server.fault)) is ProviderErrorKind.NO_VALID_HOST
        assert server.tags == tuple(sorted({MANAGED_TAG, workload_tag(workload)}))


def test_a_build_that_fails_everywhere_says_so(provider: Provider, hands: Hands, workload: str) -> None:
    hands.compute.create_batch(spec(workload, metadata=provider.failing_build()), 2)
    listed = hands.settled(workload)
    assert [server.status for server in listed] == [ServerStatus.ERROR] * 2
    assert {kind_of_fault(str(server.fault)) for server in listed} == {ProviderErrorKind.NO_VALID_HOST}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"hall": "eu-north-h9"}, "The requested availability zone is not available"),
        ({"flavor": "gp.huge"}, "there is no flavor 'gp.huge'"),
        ({"name_prefix": ""}, "Invalid input for field/attribute name"),
        ({"metadata": {"a/b": "x"}}, "does not match any of the regexes"),
    ],
    ids=["hall", "flavor", "name", "metadata"],
)
def test_what_cannot_be_is_refused_and_nothing_is_created(
    hands: Hands, workload: str, changes: dict[str, Any], said: str
) -> None:
    error = caught(hands.compute.create_batch, spec(workload, **changes), 2)
    assert (error.kind, error.in_doubt) == (ProviderErrorKind.BAD_REQUEST, False)
    assert said in str(error)
    assert hands.compute.list_workload(REGION, workload) == []


def test_an_unknown_image_is_refused(provider: Provider, budgets: BudgetStore, workload: str) -> None:
    hands = Hands(provider.settings(images=NO_IMAGES), budgets)
    error = caught(hands.compute.create_batch, spec(workload), 1)
    assert (error.kind, error.in_doubt) == (ProviderErrorKind.BAD_REQUEST, False)
    assert "Can not find requested image" in str(error)
    hands.close()


def test_the_same_batch_asked_for_twice_makes_servers_twice(hands: Hands, workload: str) -> None:
    """Why nothing is asked for before the list was read: the provider has no idempotency."""
    for _ in range(2):
        hands.compute.create_batch(spec(workload), 1)
    listed = hands.settled(workload)
    assert len({server.server_id for server in listed}) == 2
    assert {server.batch_key for server in listed} == {f"{workload}-b1"}
