"""Whatever the provider does, a placement ends, and nothing is left over or counted twice."""

from __future__ import annotations

from typing import Any

import pytest

from lab.cloud.faults import FaultKind
from tests.faults.plant import CREATE, LIST, Plant

UNITS = 12
POST: dict[str, Any] = {"method": "POST", "path": CREATE}

PASSING = [
    pytest.param(FaultKind.ERROR_AFTER, POST | {"times": 3}, id="503 after building all the same"),
    pytest.param(
        FaultKind.TIMEOUT_AFTER, POST | {"times": 2, "delay_seconds": 2}, id="silence after building"
    ),
    pytest.param(FaultKind.RATE_LIMITED, {"times": 3, "retry_after_seconds": 1}, id="rate limited"),
    pytest.param(FaultKind.NOT_CREATED, POST | {"times": 2, "count": 1}, id="one of a batch not created"),
    pytest.param(FaultKind.BUILD_ERROR, POST | {"times": 2, "count": 1}, id="one of a batch ends in ERROR"),
    pytest.param(FaultKind.STUCK_BUILD, POST | {"times": 1, "count": 1}, id="one of a batch never ends"),
    pytest.param(FaultKind.QUOTA_EXCEEDED, POST | {"times": 2}, id="quota for a moment"),
    pytest.param(FaultKind.NO_VALID_HOST, POST | {"times": 2}, id="no valid host in two pools"),
    pytest.param(FaultKind.ERROR_BEFORE, {"path": LIST, "times": 2}, id="lists fail"),
]


@pytest.mark.parametrize(("kind", "matching"), PASSING)
def test_a_passing_fault_costs_time_and_no_unit(
    plant: Plant, kind: FaultKind, matching: dict[str, Any]
) -> None:
    plant.fault(kind, **matching)
    workload = plant.new(UNITS)
    assert plant.settle(workload) == {workload: ("placed", 0, None)}
    assert plant.fired() == [matching["times"]]


@pytest.mark.parametrize("kind", [FaultKind.QUOTA_EXCEEDED, FaultKind.NO_VALID_HOST])
def test_a_lasting_fault_ends_as_a_shortfall_with_its_reason(plant: Plant, kind: FaultKind) -> None:
    plant.fault(kind, times=None)
    workload = plant.new(UNITS)
    (phase, missing, reason) = plant.settle(workload)[workload]
    assert (phase, missing) == ("shortfall", UNITS)
    assert reason
    assert plant.servers(workload) == []
