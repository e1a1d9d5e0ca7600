"""The collector and the watch over endpoints: one hand each, within its terms, and told where people look."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
import pytest_asyncio
from temporalio.api.sdk.v1 import WorkflowMetadata
from temporalio.client import ScheduleActionStartWorkflow, WorkflowFailureError, WorkflowHandle

from activities.collecting_calls import COLLECT, CollectRequest
from activities.probing_calls import PROBE_POOLS, Probed, ProbeRequest
from domain.ids import SERVING_QUEUE
from tests.workflows.chronicle import asked
from tests.workflows.fake_hands import PATIENCE_SECONDS, Stage, open_stage, own_server
from tests.workflows.serving_hands import ServingHands, run_once, seeing_to_pools
from workers.schedules import ensure_schedules, wanted
from workflows import terms
from workflows.collector import Collector
from workflows.pool_health import PoolHealth

COLLECTING: tuple[Any, Any] = (Collector.run, CollectRequest())
PROBING: tuple[Any, Any] = (PoolHealth.run, ProbeRequest())


async def details(handle: WorkflowHandle[Any, Any]) -> str:
    metadata = await handle.query("__temporal_workflow_metadata", result_type=WorkflowMetadata)
    assert isinstance(metadata, WorkflowMetadata)
    return metadata.current_details


@pytest.fixture
def queue() -> str:
    return f"serving-{uuid4().hex[:8]}"


async def test_a_run_of_the_collector_tells_what_it_did(stage: Stage, queue: str) -> None:
    hands = ServingHands()
    async with seeing_to_pools(stage, hands, queue):
        handle = await run_once(stage, *COLLECTING, queue)
        assert await asyncio.wait_for(handle.result(), PATIENCE_SECONDS) == hands.collected
        assert await details(handle) == (
            "40 pool hours counted, 2 cold starts learned, 3 placements expired;"
            " silent now: platform/gpu-1, platform/gpu-2, platform/gpu-3, platform/gpu-4, platform/gpu-5"
            " and 2 more; heard again: acme/gpu-1"
        )
    (waits,) = asked(await handle.fetch_history())
    assert waits.activity_type.name == COLLECT
    assert waits.start_to_close_timeout.ToTimedelta() == terms.COLLECT_TIMEOUT
    assert waits.retry_policy.maximum_attempts == terms.COLLECT_RETRY.maximum_attempts


async def test_a_round_of_probes_tells_what_it_found(stage: Stage, queue: str) -> None:
    hands = ServingHands()
    async with seeing_to_pools(stage, hands, queue):
        handle = await run_once(stage, *PROBING, queue)
        assert await asyncio.wait_for(handle.result(), PATIENCE_SECONDS) == hands.probed
        assert await details(handle) == (
            "40 of 42 endpoints answered; 1 could not be asked; degraded now: acme/gpu-1;"
            " healthy again: platform/gpu-1"
        )
    (waits,) = asked(await handle.fetch_history())
    assert waits.activity_type.name == PROBE_POOLS
    assert waits.start_to_close_timeout.ToTimedelta() == terms.PROBE_TIMEOUT
    assert waits.heartbeat_timeout.ToTimedelta() == terms.HEARTBEAT


async def test_a_quiet_round_says_little(stage: Stage, queue: str) -> None:
    hands = ServingHands()
    hands.probed = Probed(probed=3)
    async with seeing_to_pools(stage, hands, queue):
        handle = await run_once(stage, *PROBING, queue)
        await asyncio.wait_for(handle.result(), PATIENCE_SECONDS)
        assert await details(handle) == "3 of 3 endpoints answered"


async def test_a_collector_that_failed_is_tried_again(stage: Stage, queue: str) -> None:
    hands = ServingHands()
    hands.failing = 1
    async with seeing_to_pools(stage, hands, queue):
        handle = await run_once(stage, *COLLECTING, queue)
        assert await asyncio.wait_for(handle.result(), PATIENCE_SECONDS) == hands.collected
    assert hands.calls == 2


async def test_a_round_of_probes_is_never_repeated(stage: Stage, queue: str) -> None:
    """What failed in it may have been counted: a second count would degrade a pool for one blip."""
    hands = ServingHands()
    hands.failing = 1
    async with seeing_to_pools(stage, hands, queue):
        handle = await run_once(stage, *PROBING, queue)
        with pytest.raises(WorkflowFailureError):
            await asyncio.wait_for(handle.result(), PATIENCE_SECONDS)
    assert hands.calls == 1


@pytest_asyncio.fixture(scope="module")
async def own_stage() -> AsyncIterator[Stage]:
    """A server of its own: the schedules of serving pools have the same names for everybody."""
    async with own_server({}) as address:
        yield await open_stage(address)


async def test_both_are_scheduled_once_for_all_tenants(own_stage: Stage) -> None:
    settings = own_stage.settings.model_copy(update={"collector_seconds": 30, "pool_probe_seconds": 5})
    for _ in range(2):
        await ensure_schedules(own_stage.client, settings)
    found = {}
    for schedule_id, _ in wanted(settings):
        described = await own_stage.client.get_schedule_handle(schedule_id).describe()
        action = described.schedule.action
        assert isinstance(action, ScheduleActionStartWorkflow)
        every = described.schedule.spec.intervals[0].every
        found[schedule_id] = (action.workflow, action.task_queue, every)
    assert found == {
        "collector": ("Collector", SERVING_QUEUE, timedelta(seconds=30)),
        "pool-health": ("PoolHealth", SERVING_QUEUE, timedelta(seconds=5)),
    }


async def test_a_process_may_leave_serving_pools_to_others(own_stage: Stage) -> None:
    settings = own_stage.settings.model_copy(update={"serving": False})
    assert [*wanted(settings)] == []
