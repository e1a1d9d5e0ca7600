"""After an outage, a lie, a loss of records or a provider that hangs: what the hands must and must not do."""

from __future__ import annotations

import asyncio

import pytest

from lab.chaos.lane import Lane
from tests.faults import launches, outages
from tests.faults.fleet import Scene
from tests.faults.lanes import lane  # noqa: F401 - a fixture

SECONDS = 90.0
ALL: tuple[Scene, ...] = (
    outages.neighbours,
    launches.fewer,
    launches.slow_to_show,
    outages.outage,
    outages.disagreement,
    outages.recovery,
    outages.amnesia,
    outages.strangers,
    outages.lying_list,
    launches.failed_pages,
    outages.bound_meanwhile,
    launches.two_workers,
    launches.tight_budget,
    launches.over_quota,
    launches.errored_quota,
    launches.late_for_good,
    launches.untagged,
    launches.stuck_delete,
)


@pytest.mark.parametrize("scene", ALL, ids=lambda scene: scene.__name__)
async def test_all_goes_well(lane: Lane, scene: Scene) -> None:  # noqa: F811
    async with asyncio.timeout(SECONDS):
        assert await scene(lane) == []
