"""Every region of a partition is looked at again and again, each at a pace of its own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
from temporalio.api.sdk.v1 import WorkflowMetadata
from temporalio.client import WorkflowHandle

from activities.reconcile_calls import (
    LOOK_NOW,
    RECONCILE_REGION,
    WATCH_REGIONS,
    LookNow,
    ReconcileInput,
    WatchRegions,
)
from domain.ids import partition_queue, reconcile_workflow_id
from tests.workflows.chronicle import asked
from tests.workflows.fake_hands import TENANT, FakeHands, Stage, comes_true, eventually
from workflows import terms
from workflows.reconcile import Reconcile

Handle = WorkflowHandle[Any, Any]


@asynccontextmanager
async def watching(
    stage: Stage, hands: FakeHands, regions: Sequence[str] | None = None
) -> AsyncIterator[Handle]:
    """A reconcile that looks at these regions, until the test ends."""
    async with stage.playing(hands):
        handle = await stage.client.start_workflow(
            Reconcile.run,
            ReconcileInput(
                tenant_id=TENANT,
                partition_id=hands.partition,
                regions=tuple(hands.regions if regions is None else regions),
            ),
            id=reconcile_workflow_id(TENANT, hands.partition),
            task_queue=partition_queue(TENANT, hands.partition),
        )
        try:
            yield handle
        finally:
            await handle.terminate()


def looks(hands: FakeHands, region: str) -> int:
    return sum(name == RECONCILE_REGION and request.region == region for name, request in hands.calls)


async def details(handle: Handle) -> str:
    metadata = await handle.query("__temporal_workflow_metadata", result_type=WorkflowMetadata)
    assert isinstance(metadata, WorkflowMetadata)
    return metadata.current_details


async def test_every_region_is_looked_at_again_and_again(stage: Stage) -> None:
    hands = FakeHands(("here", "there"))
    hands.pause_seconds = 0.05
    async with watching(stage, hands) as handle:
        await eventually(lambda: min(looks(hands, one) for one in hands.regions) >= 3, "three looks")
        waits = asked(await handle.fetch_history())[0]
    assert waits.start_to_close_timeout.ToTimedelta() == terms.CYCLE_TIMEOUT
    assert waits.heartbeat_timeout.ToTimedelta() == terms.HEARTBEAT
    assert waits.retry_policy.maximum_attempts == 1


async def test_people_read_what_the_last_look_saw(stage: Stage) -> None:
    hands = FakeHands()
    async with watching(stage, hands) as handle:
        await eventually(lambda: looks(hands, hands.regions[0]) == 1, "a look")
        region = hands.regions[0]
        expected = f"{region}: pacing, 40 servers, drift 3 lost, 1 orphan; 2 lost; 2 wait for the pace"

        async def told() -> bool:
            return await details(handle) == expected

        await comes_true(told, expected)


async def test_a_region_that_cannot_be_reached_holds_up_no_other(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    hands = FakeHands(("here", "there"))
    hands.pause_seconds = 0.05
    hands.unreachable = frozenset(hands.regions[1:])
    async with watching(stage, hands) as handle:
        await eventually(lambda: looks(hands, hands.regions[0]) >= 3, "three looks")
        assert looks(hands, hands.regions[1]) == 1
        assert f"{hands.regions[1]}: the last cycle failed: " in await details(handle)


@pytest.mark.parametrize("body", [[], [None], [LookNow()], [LookNow(region="here")]])
async def test_a_look_can_be_asked_for(stage: Stage, body: list[Any]) -> None:
    hands = FakeHands()
    if body and body[0] and body[0].region:
        body = [LookNow(region=hands.regions[0])]
    async with watching(stage, hands) as handle:
        await eventually(lambda: looks(hands, hands.regions[0]) == 1, "a look")
        await handle.signal(LOOK_NOW, args=body)
        await eventually(lambda: looks(hands, hands.regions[0]) == 2, "the look that was asked for")


async def test_hundreds_of_requests_are_one_look(stage: Stage) -> None:
    hands = FakeHands()
    hands.hold(RECONCILE_REGION)
    async with watching(stage, hands) as handle:
        await hands.until(RECONCILE_REGION)
        for _ in range(100):
            await handle.signal(LOOK_NOW, LookNow(region=hands.regions[0]))
        hands.let_go(RECONCILE_REGION)
        await eventually(lambda: looks(hands, hands.regions[0]) == 2, "the look that was asked for")
        await asyncio.sleep(0.3)
        assert looks(hands, hands.regions[0]) == 2


async def test_a_look_at_another_region_and_nonsense_change_nothing(stage: Stage) -> None:
    hands = FakeHands()
    async with watching(stage, hands) as handle:
        await eventually(lambda: looks(hands, hands.regions[0]) == 1, "a look")
        await handle.signal(LOOK_NOW, LookNow(region="elsewhere"))
        await handle.signal(WATCH_REGIONS, args=[])
        await handle.signal(WATCH_REGIONS, WatchRegions(regions=hands.regions))
        await handle.signal(LOOK_NOW, args=[{"region": hands.regions[0]}])
        await eventually(lambda: looks(hands, hands.regions[0]) == 2, "the look that was asked for")


async def test_regions_can_be_added(stage: Stage) -> None:
    hands = FakeHands(("here", "there"))
    async with watching(stage, hands, hands.regions[:1]) as handle:
        await eventually(lambda: looks(hands, hands.regions[0]) == 1, "a look")
        await handle.signal(WATCH_REGIONS, WatchRegions(regions=hands.regions))
        await eventually(lambda: looks(hands, hands.regions[1]) == 1, "a look at the new region")
        assert looks(hands, hands.regions[0]) == 1


async def test_it_goes_on_in_a_new_run_with_all_its_regions(forgetful_stage: Stage) -> None:
    hands = FakeHands(("here", "there"))
    hands.pause_seconds = 0.05
    async with watching(forgetful_stage, hands, hands.regions[:1]) as handle:
        await handle.signal(WATCH_REGIONS, WatchRegions(regions=hands.regions))
        first = (await handle.describe()).run_id

        async def runs_anew() -> bool:
            return (await handle.describe()).run_id != first

        await comes_true(runs_anew, "a new run")
        before = {region: looks(hands, region) for region in hands.regions}
        await eventually(
            lambda: all(looks(hands, one) > before[one] for one in hands.regions), "looks in the new run"
        )
