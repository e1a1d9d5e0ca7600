"""Whatever the provider does, a placement ends, and nothing is left over or counted twice."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import pytest

from lab.cloud.faults import FaultKind
from tests.faults.plant import CREATE, LIST, PARTITION, REGION, Plant

UNITS = 12
# Each region misbehaves in its own way at the same time, and a workload is placed in each.
REGIONS = ("eu-north", "eu-west", "eu-south")
POST: dict[str, Any] = {"method": "POST", "path": CREATE}


class Fault(NamedTuple):
    name: str
    kind: FaultKind
    matching: dict[str, Any]


IN_DOUBT = (
    Fault("503 after building all the same", FaultKind.ERROR_AFTER, POST | {"times": 3}),
    Fault("silence after building", FaultKind.TIMEOUT_AFTER, POST | {"times": 2, "delay_seconds": 2}),
    Fault("503 before doing anything", FaultKind.ERROR_BEFORE, POST | {"times": 3}),
)
INCOMPLETE = (
    Fault("accepted and not created", FaultKind.NOT_CREATED, POST | {"times": 2}),
    Fault("one of a batch is not created", FaultKind.NOT_CREATED, POST | {"times": 2, "count": 1}),
    Fault("one of a batch ends in ERROR", FaultKind.BUILD_ERROR, POST | {"times": 2, "count": 1}),
)
REFUSED = (
    Fault("no valid host in two pools", FaultKind.NO_VALID_HOST, POST | {"times": 2}),
    Fault("one of a batch is never built", FaultKind.STUCK_BUILD, POST | {"times": 1, "count": 1}),
)
UNANSWERED = (
    Fault("rate limited", FaultKind.RATE_LIMITED, {"times": 3, "retry_after_seconds": 1}),
    Fault("lists fail", FaultKind.ERROR_BEFORE, {"path": LIST, "times": 2}),
    Fault("lists are silent", FaultKind.TIMEOUT_BEFORE, {"path": LIST, "times": 1, "delay_seconds": 2}),
)
LASTING = (
    Fault("quota for good", FaultKind.QUOTA_EXCEEDED, {"times": None}),
    Fault("no valid host anywhere", FaultKind.NO_VALID_HOST, {"times": None}),
)


def placed_under(plant: Plant, faults: Sequence[Fault]) -> dict[str, str]:
    """A workload started under each fault, by its id."""
    for region, fault in zip(REGIONS, faults, strict=False):
        plant.fault(fault.kind, region=region, **fault.matching)
    started = [plant.new(UNITS, region=region) for region, _ in zip(REGIONS, faults, strict=False)]
    return dict(zip(started, (fault.name for fault in faults), strict=True))


@pytest.mark.parametrize(
    "faults",
    [IN_DOUBT, INCOMPLETE, REFUSED, UNANSWERED],
    ids=["creates in doubt", "batches incomplete", "capacity refused", "no answer"],
)
def test_a_passing_fault_costs_time_and_no_unit(plant: Plant, faults: Sequence[Fault]) -> None:
    started = placed_under(plant, faults)
    outcomes = {started[workload]: outcome for workload, outcome in plant.settle(*started).items()}
    assert outcomes == {fault.name: ("placed", 0, None) for fault in faults}
    assert plant.fired() == [fault.matching["times"] for fault in faults]


def test_a_refusal_for_quota_holds_the_region_and_costs_no_unit_in_the_end(plant: Plant) -> None:
    plant.fault(FaultKind.QUOTA_EXCEEDED, **POST, times=1)
    first = plant.new(UNITS)
    assert plant.settle(first)[first] == ("shortfall", UNITS, "launches_failed")
    assert plant.fired() == [1]
    assert plant.rows("SELECT quota_refusals FROM provider_budgets WHERE region = %s", REGION) == [(1,)]
    assert plant.rows("SELECT count(*) FROM pool_backoffs WHERE workload_id = %s", first)[0][0] <= 1
    plant.trigger(f"observation/{REGION}")
    query = "SELECT quota_until FROM provider_budgets WHERE region = %s"
    plant.until(lambda: plant.rows(query, REGION) == [(None,)], "the quota has room, so the hold is over")
    plant.write("UPDATE workloads SET updated_at = now() - interval '1 hour' WHERE workload_id = %s", first)
    plant.trigger(f"placement-sweep/{PARTITION}")
    plant.until(lambda: plant.settle(first)[first] == ("placed", 0, None), "it is placed after all")


def test_a_lasting_fault_ends_as_a_shortfall_with_its_reason(plant: Plant) -> None:
    started = placed_under(plant, LASTING)
    for workload, (phase, missing, reason) in plant.settle(*started).items():
        assert (phase, missing) == ("shortfall", UNITS), started[workload]
        assert reason, started[workload]
        assert plant.servers(workload) == []
