"""Keys of decisions: the same question always mints the same key, and no two things share one."""

from __future__ import annotations

import itertools
from uuid import UUID

import pytest

from domain import ids
from domain.claim import Shape

ONE, TWO = UUID(int=1), UUID(int=2)


def test_keys_are_equal_for_equal_things_and_differ_otherwise() -> None:
    grid = list(itertools.product((ONE, TWO), ("pool-1", "pool-11"), (0, 1, 11), (0, 1, 50)))
    keys = [ids.batch_key(*one) for one in grid]
    assert keys == [ids.batch_key(*one) for one in grid]
    assert len(set(keys)) == len(grid)


def test_a_batch_key_is_what_every_release_has_minted() -> None:
    """Servers carry it, so another way to mint it would orphan what runs."""
    assert ids.batch_key(ONE, "eu-north-h1-gp-m", 0, 0) == "b-3eecd12d8c255a928ddac205b745bc38"


def test_names_of_servers_fit_a_host_and_differ_by_batch_and_attempt() -> None:
    grid = list(itertools.product(("orders", "w" * 63), (1, 999_999), ("b-1", "b-2"), (0, 1)))
    prefixes = [ids.server_prefix(*one) for one in grid]
    assert len(set(prefixes)) == len(grid)
    assert max(len(f"{prefix}-999999") for prefix in prefixes) <= 63
    assert prefixes[0].startswith("sco-orders-g1-")
    assert "--" not in ids.server_prefix("a" * 33 + "-b", 1, "b-1", 0)


def test_slots_of_a_batch_sort_as_they_are_numbered() -> None:
    keys = [ids.slot_key("b-1", number) for number in range(500)]
    assert keys == sorted(keys)
    assert keys[7] == "b-1-007"


@pytest.mark.parametrize(
    ("shape", "words"),
    [
        (Shape(vcpu_milli=4000, ram_mib=16384), "4000m-16384Mi"),
        (Shape(vcpu_milli=8000, ram_mib=65536, gpus=1), "8000m-65536Mi-1g"),
    ],
)
def test_a_shape_in_words(shape: Shape, words: str) -> None:
    assert ids.shape_key(shape) == words


def test_an_event_is_the_same_event_however_often_it_is_told() -> None:
    told = ids.event_id("placement-decided", "platform", str(ONE))
    assert told == ids.event_id("placement-decided", "platform", str(ONE))
    assert told not in (
        ids.event_id("placement-decided", "platform", str(TWO)),
        ids.event_id("placement-finished", "platform", str(ONE)),
        ids.event_id("placement-decided", "acme", str(ONE)),
    )


def test_names_of_workflows_and_queues() -> None:
    assert ids.placement_workflow_id("platform", "k8s-eu-north", "orders") == "placement/k8s-eu-north/orders"
    assert ids.reconcile_workflow_id("platform", "k8s-eu-north") == "reconcile/k8s-eu-north"
    assert ids.partition_queue("platform", "k8s-eu-north") == "partition-k8s-eu-north"
    assert ids.provider_queue("platform", "eu-north") == "provider-eu-north"


def test_no_tenant_meets_another_at_a_name_that_both_chose() -> None:
    """Names have no slash, so what stands before one is never part of what stands behind it."""
    tenants = ("platform", "acme", "acme-k8s", "tenant", "model")
    named = [(one, partition) for one in tenants for partition in ("k8s", "acme", "k8s-k8s", "tenant")]
    for name_of in (ids.partition_queue, ids.provider_queue, ids.reconcile_workflow_id):
        assert len({name_of(*one) for one in named}) == len(named)
    workflows = {ids.placement_workflow_id(*one, "orders") for one in named}
    workflows |= {ids.model_placement_workflow_id(one, ONE) for one in tenants}
    assert len(workflows) == len(named) + len(tenants)
