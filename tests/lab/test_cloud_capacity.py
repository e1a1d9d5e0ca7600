"""Capacity and quota: what fits, what is refused, and what Placement says about it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, multiple, rule

from domain.pool import PurchaseModel
from lab.cloud.cloud import Cloud
from lab.cloud.errors import CloudError
from lab.cloud.faults import FaultKind, FaultRule
from lab.cloud.identity import PROJECT_ID, USER_ID
from lab.cloud.launch import Launch, launch
from lab.cloud.records import Status
from lab.cloud.server import CloudHandle
from lab.cloud.settings import CloudSettings
from tests.lab.cloud_support import (
    BUILT,
    HALL,
    IMAGE,
    POOL,
    REGION,
    create,
    manual_cloud,
    names,
    post_server,
    small_quota,
)

RESERVED = "that of the reservation"


@pytest.fixture
def cloud() -> Iterator[CloudHandle]:
    with manual_cloud() as handle:
        yield handle


def test_without_a_host_all_servers_of_the_create_end_in_error(cloud: CloudHandle) -> None:
    connection = cloud.connect()
    cloud.admin.set_capacity(POOL, 4)
    answer = post_server(connection, min_count=5, max_count=5, return_reservation_id=True)
    cloud.admin.advance(BUILT)
    servers = list(connection.compute.servers(reservation_id=answer.json()["reservation_id"]))

    assert answer.status_code == 202
    assert [server.status for server in servers] == ["ERROR"] * 5
    assert servers[0].fault["message"] == "No valid host was found. There are not enough hosts available."
    assert servers[0].fault["code"] == 500
    assert cloud.admin.capacity()[POOL]["used"] == 0
    assert connection.compute.get_limits().absolute.instances_used == 5


def test_capacity_that_is_used_up_is_free_again_after_the_delete(cloud: CloudHandle) -> None:
    connection = cloud.connect()
    cloud.admin.set_capacity(POOL, 1)
    first, second = create(connection), create(connection)
    cloud.admin.advance(BUILT)
    states = [connection.compute.get_server(each.id).status for each in (first, second)]
    connection.compute.delete_server(first)
    cloud.admin.advance(BUILT)
    third = create(connection)
    cloud.admin.advance(BUILT)

    assert states == ["ACTIVE", "ERROR"]
    assert connection.compute.get_server(third.id).status == "ACTIVE"


def test_without_a_zone_the_emptiest_halls_are_used(cloud: CloudHandle) -> None:
    connection = cloud.connect()
    for hall, total in enumerate((1, 2, 0, 0), 1):
        cloud.admin.set_capacity(f"eu-north-h{hall}-gp-m", total)
    post_server(connection, availability_zone=None, min_count=3, max_count=3)
    cloud.admin.advance(BUILT)

    zones = sorted(server.availability_zone for server in connection.compute.servers(status="ACTIVE"))
    assert zones == ["eu-north-h1", "eu-north-h2", "eu-north-h2"]


def test_nothing_starts_in_a_lost_hall(cloud: CloudHandle) -> None:
    connection = cloud.connect()
    standing = create(connection, name="standing")
    cloud.admin.advance(BUILT)
    cloud.admin.set_hall(HALL, "lost")
    shown = connection.compute.get_server(standing.id)

    assert post_server(connection).status_code == 400
    assert shown.status == "ACTIVE"


def test_beyond_the_quota_nothing_is_created(cloud: CloudHandle) -> None:
    connection = cloud.connect()
    cloud.admin.set_quota(REGION, instances=10, cores=24)
    assert post_server(connection, min_count=2, max_count=2).status_code == 202
    refused = post_server(connection, min_count=2, max_count=2)

    assert refused.status_code == 403
    assert refused.json() == {
        "forbidden": {
            "code": 403,
            "message": "Quota exceeded for cores: Requested 16, but already used 16 of 24 cores",
        }
    }
    assert len(cloud.admin.servers()) == 2


def test_a_range_is_cut_to_what_the_quota_leaves(cloud: CloudHandle) -> None:
    connection = cloud.connect()
    cloud.admin.set_quota(REGION, instances=3)
    answer = post_server(connection, name="n", min_count=2, max_count=5)

    assert answer.status_code == 202
    assert names(connection) == ["n-1", "n-2", "n-3"]
    refused = post_server(connection, min_count=1, max_count=4)
    assert refused.json()["forbidden"]["message"] == (
        "Quota exceeded for instances: Requested 1-4, but already used 3 of 3 instances"
    )


def test_minus_one_is_unlimited(cloud: CloudHandle) -> None:
    connection = cloud.connect()
    cloud.admin.set_quota(REGION, instances=-1, cores=-1, ram=-1)

    assert post_server(connection, min_count=10, max_count=10).status_code == 202
    quota = connection.compute.get_quota_set(cloud.credentials.project_id, usage=True)
    assert (quota.instances, quota.usage["instances"], quota.usage["cores"]) == (-1, 10, 80)


def test_placement_tells_total_and_used_of_a_pool(cloud: CloudHandle) -> None:
    connection = cloud.connect()
    cloud.admin.set_capacity(POOL, 7)
    post_server(connection, min_count=3, max_count=3)
    provider = next(connection.placement.resource_providers(name=POOL))
    inventories = {
        each.resource_class: each.total
        for each in connection.placement.resource_provider_inventories(provider)
    }
    usages = connection.placement.fetch_resource_provider_usages(provider).usages

    assert inventories == {"VCPU": 56, "MEMORY_MB": 7 * 32 * 1024, "CUSTOM_INSTANCES": 7}
    assert usages == {"VCPU": 24, "MEMORY_MB": 3 * 32 * 1024, "CUSTOM_INSTANCES": 3}
    assert len(list(connection.placement.resource_providers())) == 324
    roomy = [each.name for each in connection.placement.resource_providers(resources="CUSTOM_INSTANCES:5")]
    assert POOL not in roomy
    assert f"{POOL}-guaranteed" in roomy


class CapacityMachine(RuleBasedStateMachine):
    """Creates, deletes, failures and time in any order: nothing is ever held twice or lost."""

    servers = Bundle("servers")

    def __init__(self) -> None:
        super().__init__()
        self.refusals: set[int] = set()
        self.cloud = Cloud(CloudSettings(speed=0, quota=small_quota(instances=40)))
        self.region = self.cloud.regions[REGION]
        for size in "sm":
            for hall in self.region.halls:
                self.region.groups[f"{hall}-gp-{size}"].resize(6)
        self.reservation = next(
            each.reservations[0] for each in self.region.leases.all() if each.name == f"{HALL}-gp-l-committed"
        )

    @rule(
        target=servers,
        flavor=st.sampled_from(["gp.s.reclaimable", "gp.m.reclaimable", RESERVED]),
        zone=st.sampled_from([HALL, "eu-north-h2", None]),
        low=st.integers(1, 8),
        more=st.integers(0, 4),
        kind=st.sampled_from([None, FaultKind.BUILD_ERROR, FaultKind.STUCK_BUILD, FaultKind.NOT_CREATED]),
    )
    def create(self, flavor: str, zone: str | None, low: int, more: int, kind: FaultKind | None) -> object:
        flavor_id = self.reservation.id if flavor == RESERVED else self.region.flavor_ids[flavor]
        order = Launch(
            name="n",
            flavor=self.region.flavors[flavor_id],
            image_id=IMAGE,
            project_id=PROJECT_ID,
            user_id=USER_ID,
            request_id="req-test",
            min_count=low,
            max_count=low + more,
            zone=zone,
        )
        try:
            return multiple(*launch(self.region, order, FaultRule(kind=kind, count=2) if kind else None)[1])
        except CloudError as error:
            self.refusals.add(error.status)
            return multiple()

    @rule(server=consumes(servers))
    def delete(self, server: object) -> None:
        live = self.region.servers.get(server.id)  # type: ignore[attr-defined]
        if live is not None:
            self.region.delete(live, "req-delete")

    @rule(seconds=st.sampled_from([1.0, 5.0, 60.0]))
    def wait(self, seconds: float) -> None:
        self.cloud.clock.advance(seconds)
        self.cloud.settle()

    @invariant()
    def used_is_what_live_servers_hold_and_never_too_much(self) -> None:
        held: dict[str, int] = {}
        for server in self.region.servers.live():
            if server.group is not None:
                held[server.group] = held.get(server.group, 0) + 1
        for group in self.region.groups.values():
            assert group.used == held.get(group.name, 0) <= group.total

    @invariant()
    def quota_counts_every_live_server(self) -> None:
        live = list(self.region.servers.live())
        cores = sum(self.region.flavors[server.flavor_id].vcpus for server in live)
        assert self.region.quota.used(PROJECT_ID)["instances"] == len(live) <= 40
        assert self.region.quota.used(PROJECT_ID)["cores"] == cores

    @invariant()
    def a_reservation_is_never_overbooked(self) -> None:
        committed = [each for each in self.region.servers.live() if each.reservation and each.group]
        assert self.reservation.used == len(committed) <= self.reservation.amount

    @invariant()
    def only_servers_that_may_run_have_a_host(self) -> None:
        for server in self.region.servers.all():
            if server.status is Status.ACTIVE:
                assert server.group is not None
            if server.status in (Status.ERROR, Status.DELETED):
                assert server.group is None

    @invariant()
    def only_the_quota_refuses(self) -> None:
        assert self.refusals <= {403}


TestCapacityMachine = CapacityMachine.TestCase
TestCapacityMachine.settings = settings(max_examples=25, stateful_step_count=25, deadline=None)


def test_committed_groups_offer_nothing_without_a_lease(cloud: CloudHandle) -> None:
    def totals(inside: Cloud) -> tuple[int, int]:
        region = inside.regions[REGION]
        before = sum(group.total for group in region.committed_groups())
        for lease in region.leases.all():
            region.drop_lease(lease)
        return before, sum(
            group.total
            for group in region.groups.values()
            if group.plan.purchase_model is PurchaseModel.COMMITTED
        )

    before, after = cloud.call(totals)
    assert before > 0
    assert after == 0
