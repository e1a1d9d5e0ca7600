"""Bare-metal pools are counted in nodes; a cloud without Ironic, or whose Ironic is away, loses nothing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from structlog.testing import capture_logs

from activities.openstack.bare_metal import (
    APART_STATES,
    FAILED_STATES,
    IronicNodes,
    Node,
    NodeCount,
    count_nodes,
    metal_class,
)
from activities.pool_import import pool_facts
from activities.ports import PoolObservation, ProviderErrorKind
from lab.cloud.faults import FaultKind, FaultRule
from lab.cloud.server import CloudHandle
from lab.cloud.settings import CloudSettings as LabSettings
from lab.cloud.web import baremetal as ironic
from tests.activities.openstack.hands import HALL, REGION, Hands, caught, spec

FLAVOR, CLASS = "bm.xl.reclaimable", "CUSTOM_METAL_BM"
POOLS = 324
NODES = "/baremetal/v1/nodes$"


@pytest.fixture
def nodes(hands: Hands) -> IronicNodes:
    return IronicNodes(hands.connections)


def metal(hands: Hands, flavor: str = FLAVOR) -> PoolObservation | None:
    return next((one for one in hands.catalog.observe(REGION) if one.flavor == flavor), None)


def node(state: str = "available", **changes: Any) -> Node:
    values: dict[str, Any] = {
        "node_id": "n",
        "resource_class": CLASS,
        "hall": HALL,
        "provision_state": state,
        "in_maintenance": False,
        "is_taken": False,
    }
    return Node(**{**values, **changes})


def test_a_pool_holds_its_nodes_and_its_free_ones_are_available(cloud: CloudHandle, hands: Hands) -> None:
    first, second, third, *_ = cloud.admin.enroll(HALL, "bm", 6)
    hands.compute.create_batch(spec(flavor=FLAVOR), 2)
    cloud.admin.advance(60)
    cloud.admin.set_node(third, "clean failed")
    cloud.connect(REGION).baremetal.set_node_maintenance(second)
    found = metal(hands)
    assert found is not None
    assert (found.total_instances, found.free_instances, found.free_24h_instances) == (4, 3, 3)
    cloud.admin.set_node(first, "error")
    found = metal(hands)
    assert found is not None
    assert (found.total_instances, found.free_instances) == (3, 3)


def test_bare_metal_is_launched_like_anything_else(cloud: CloudHandle, hands: Hands) -> None:
    cloud.admin.enroll(HALL, "bm", 2)
    hands.compute.create_batch(spec(flavor=FLAVOR), 2)
    cloud.admin.advance(60)
    assert [server.status for server in hands.compute.list_managed(REGION)] == ["active", "active"]
    (facts,) = [
        one
        for one in pool_facts("platform", hands.catalog.catalog(REGION), hands.catalog.observe(REGION))
        if one.sku_family == "bm"
    ]
    assert (facts.pool_id, facts.group_id) == (f"{HALL}-bm-xl", f"{HALL}-a4")


def test_other_pools_are_as_before(cloud: CloudHandle, hands: Hands) -> None:
    before = hands.catalog.observe(REGION)
    cloud.admin.enroll(HALL, "bm", 1)
    after = hands.catalog.observe(REGION)
    assert [one for one in after if one.flavor != FLAVOR] == before
    assert (len(before), len(after)) == (POOLS, POOLS + 1)


def test_every_page_of_nodes_is_read_and_none_twice(
    cloud: CloudHandle, nodes: IronicNodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ironic, "MAX_LIMIT", 2)
    made = cloud.admin.enroll(HALL, "bm", 3) + cloud.admin.enroll(f"{REGION}-h2", "bg", 2)
    found = nodes.read(REGION)
    assert found is not None
    assert [one.node_id for one in found] == sorted(made)
    assert count_nodes(found) == {
        (HALL, CLASS): NodeCount(3, 3),
        (f"{REGION}-h2", "CUSTOM_METAL_BG"): NodeCount(2, 2),
    }


def test_a_page_that_fails_fails_the_list(
    cloud: CloudHandle, nodes: IronicNodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ironic, "MAX_LIMIT", 1)
    cloud.admin.enroll(HALL, "bm", 3)
    cloud.admin.add_fault(FaultRule(kind=FaultKind.ERROR_BEFORE, path=NODES, after=1))
    error = caught(nodes.read, REGION)
    assert cloud.admin.faults()[0].fired == 1
    assert error.kind is ProviderErrorKind.UNAVAILABLE
    assert str(error).startswith(f"{REGION}: could not list the bare-metal nodes")


def test_without_bare_metal_ironic_is_not_asked(cloud: CloudHandle, hands: Hands) -> None:
    hands.catalog.observe(REGION)
    cloud.admin.clear_requests()
    hands.catalog.observe(REGION)
    recent = cloud.admin.requests(recent=20)["recent"]
    assert [one["path"].rsplit("/", 1)[-1] for one in recent] == ["forward-capacity", "rate-card"]


def test_an_ironic_that_is_away_costs_the_sight_of_bare_metal_alone(cloud: CloudHandle, hands: Hands) -> None:
    cloud.admin.enroll(HALL, "bm", 2)
    cloud.admin.add_fault(FaultRule(kind=FaultKind.ERROR_BEFORE, path=NODES, status=500))
    with capture_logs() as told:
        observed = hands.catalog.observe(REGION)
    assert len(observed) == POOLS
    assert FLAVOR not in {one.flavor for one in observed}
    (line,) = told
    assert (line["event"], line["region"], line["pools"]) == ("bare_metal_not_observed", REGION, 1)
    assert "HTTP 500" in line["problem"]
    assert metal(hands) is not None


@pytest.fixture
def without_ironic() -> Iterator[CloudHandle]:
    with CloudHandle.start_in_thread(LabSettings(speed=0, endpoints={"baremetal": None})) as handle:
        yield handle


def test_a_cloud_without_ironic_has_no_nodes(without_ironic: CloudHandle) -> None:
    """Whatever its rates call bare metal is what its forward capacity says."""
    hands = Hands(without_ironic)
    assert IronicNodes(hands.connections).read(REGION) is None
    assert len(hands.catalog.observe(REGION)) == POOLS
    without_ironic.admin.enroll(HALL, "bm", 2)
    found = metal(hands)
    assert found is not None
    assert found.total_instances == 2
    hands.connections.close()


@pytest.mark.parametrize(
    ("told", "hall"),
    [
        ({"extra": {"availability_zone": "a"}, "properties": {"availability_zone": "b"}}, "a"),
        ({"extra": {}, "properties": {"availability_zone": "b"}, "conductor_group": "c"}, "b"),
        ({"extra": {"availability_zone": ""}, "properties": None, "conductor_group": "c"}, "c"),
        ({"extra": {"availability_zone": 7}, "properties": {}, "conductor_group": ""}, None),
    ],
)
def test_the_hall_is_what_the_operator_wrote_then_the_conductor_group(
    cloud: CloudHandle,
    nodes: IronicNodes,
    monkeypatch: pytest.MonkeyPatch,
    told: dict[str, Any],
    hall: str | None,
) -> None:
    shown = ironic._shown
    monkeypatch.setattr(ironic, "_shown", lambda *known: shown(*known) | told)
    cloud.admin.enroll(HALL, "bm", 1)
    found = nodes.read(REGION)
    assert found is not None
    assert [one.hall for one in found] == [hall]


@pytest.mark.parametrize(
    ("one", "counts", "free"),
    [
        (node(), True, True),
        (node(is_taken=True), True, False),
        (node(in_maintenance=True), False, False),
        *((node(state), True, False) for state in ("active", "deploying", "deleting", "cleaning")),
        *((node(state), False, False) for state in sorted(FAILED_STATES | APART_STATES)),
    ],
)
def test_what_counts_and_what_is_free(one: Node, counts: bool, free: bool) -> None:
    assert (one.counts, one.is_free) == (counts, free)


def test_a_node_without_hall_or_class_counts_nowhere() -> None:
    assert count_nodes([node(hall=None), node(resource_class=None)]) == {}


@pytest.mark.parametrize(
    ("specs", "found"),
    [
        ({"resources:CUSTOM_METAL_BM": "1", "resources:VCPU": "0"}, CLASS),
        ({"resources:CUSTOM_FPGA": "1"}, None),
        ({"resources:CUSTOM_METAL_BM": "2", "resources:VCPU": "0"}, None),
        ({"resources:CUSTOM_A": "1", "resources:CUSTOM_B": "1", "resources:VCPU": "0"}, None),
        (
            {"resources:CUSTOM_METAL_BM": "1", "resources:CUSTOM_RESERVATION_X": "1", "resources:VCPU": "0"},
            CLASS,
        ),
        ({}, None),
    ],
)
def test_a_flavor_of_bare_metal_asks_for_one_node_and_no_vcpu(
    specs: dict[str, str], found: str | None
) -> None:
    assert metal_class(specs) == found


@pytest.mark.parametrize(
    ("given", "expected"), [("metal.bm", CLASS), ("metal--bm", CLASS), ("Metal BM", CLASS), (None, None)]
)
def test_a_class_is_named_as_placement_names_it(
    cloud: CloudHandle,
    nodes: IronicNodes,
    monkeypatch: pytest.MonkeyPatch,
    given: str | None,
    expected: str | None,
) -> None:
    shown = ironic._shown
    monkeypatch.setattr(ironic, "_shown", lambda *known: shown(*known) | {"resource_class": given})
    cloud.admin.enroll(HALL, "bm", 1)
    found = nodes.read(REGION)
    assert found is not None
    assert [one.resource_class for one in found] == [expected]
