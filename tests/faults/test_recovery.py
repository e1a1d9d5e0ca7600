"""After an outage, a lie, a loss of records or a provider that hangs: what the hands must and must not do."""

from __future__ import annotations

import asyncio

import pytest

from lab.chaos.lane import Lane
from tests.faults import scenes
from tests.faults.lanes import lane  # noqa: F401 - a fixture
from tests.faults.scenes import Scene

SECONDS = 90.0
ALL: tuple[Scene, ...] = (
    scenes.outage,
    scenes.disagreement,
    scenes.recovery,
    scenes.amnesia,
    scenes.strangers,
    scenes.lying_list,
    scenes.failed_pages,
    scenes.bound_meanwhile,
    scenes.two_workers,
    scenes.tight_budget,
    scenes.over_quota,
    scenes.errored_quota,
    scenes.late_for_good,
    scenes.untagged,
    scenes.stuck_delete,
)


@pytest.mark.parametrize("scene", ALL, ids=lambda scene: scene.__name__)
async def test_all_goes_well(lane: Lane, scene: Scene) -> None:  # noqa: F811
    async with asyncio.timeout(SECONDS):
        assert await scene(lane) == []
