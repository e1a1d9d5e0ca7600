"""One control plane of real processes on a stack of its own, shared by the tests that break it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest

from lab.bring_up import bring_up
from lab.control_plane import WORKER, ControlPlane, Pace
from lab.stack import Stack
from tests.faults.plant import Plant
from tests.stack_fixtures import new_folder

PACE = Pace(
    cloud_speed=20,
    poll_seconds=0.2,
    settle_seconds=1.5,
    build_patience_seconds=12,
    backoff_seconds=60,
    provider_calls_per_second=30,
    cycle_seconds=3,
    lapse_seconds=8,
    pace_window_seconds=4,
)


@pytest.fixture(scope="package")
def own_plant() -> Iterator[Plant]:
    folder = new_folder()
    stack = Stack.start(folder / "lab")
    plane = ControlPlane(stack, PACE)
    try:
        bring_up(plane, api=False)
        plant = Plant(plane)
        yield plant
        plant.close()
    finally:
        # Nothing is left to hand over, so its grace need not be waited for.
        plane.kill(WORKER)
        plane.stop_all()
        stack.stop()
        shutil.rmtree(folder)


@pytest.fixture
def plant(own_plant: Plant) -> Iterator[Plant]:
    """The control plane with everything running and a cloud that behaves."""
    yield own_plant
    own_plant.cloud.clear_faults()
    own_plant.forgive()
    own_plant.cloud.set_speed(PACE.cloud_speed)
