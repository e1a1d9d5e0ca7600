"""The watch over leases says what it found, where people look, and leaves failures to the next look."""

from __future__ import annotations

import asyncio
from typing import Any

from temporalio.api.sdk.v1 import WorkflowMetadata
from temporalio.client import WorkflowHandle

from activities.leasing_calls import RENEW_LEASES, LeasesWatched
from domain.ids import provider_queue
from tests.workflows.chronicle import asked
from tests.workflows.fake_hands import PATIENCE_SECONDS, TENANT, FakeHands, Stage
from tests.world import World
from workflows import terms
from workflows.leases import LeaseWatch, LeaseWatchInput

POLL_SECONDS = 0.1
REFUSED = "eu-north-h1-gp-l-committed: Not enough hosts available"


async def watch(stage: Stage, hands: FakeHands) -> WorkflowHandle[Any, Any]:
    region = hands.regions[0]
    handle = await stage.client.start_workflow(
        LeaseWatch.run,
        LeaseWatchInput(tenant_id=TENANT, region=region),
        id=f"leases/{region}",
        task_queue=provider_queue(TENANT, region),
    )
    found: LeasesWatched = await asyncio.wait_for(handle.result(), PATIENCE_SECONDS)
    assert found == hands.watched.model_copy(update={"region": region})
    return handle


async def details(handle: WorkflowHandle[Any, Any]) -> str:
    metadata = await handle.query("__temporal_workflow_metadata", result_type=WorkflowMetadata)
    assert isinstance(metadata, WorkflowMetadata)
    return metadata.current_details


async def test_a_look_tells_what_was_renewed_and_what_ends_next(stage: Stage) -> None:
    async with stage.playing(FakeHands()) as hands:
        handle = await watch(stage, hands)
        assert await details(handle) == "renewed 2 of 9, next end 2030-01-31 10:00 UTC"
    (waits,) = asked(await handle.fetch_history())
    assert waits.activity_type.name == RENEW_LEASES
    assert waits.start_to_close_timeout.ToTimedelta() == terms.LEASES_TIMEOUT
    assert waits.heartbeat_timeout.ToTimedelta() == terms.HEARTBEAT
    assert waits.retry_policy.maximum_attempts == terms.LEASES_RETRY.maximum_attempts


async def test_a_look_tells_of_the_first_problems_and_counts_the_rest(stage: Stage) -> None:
    async with stage.playing(FakeHands()) as hands:
        hands.watched = hands.watched.model_copy(
            update={"renewed": 0, "alarms": 1, "problems": (REFUSED,) * 5, "next_end_at": None}
        )
        handle = await watch(stage, hands)
        told = await details(handle)
    problems = "; ".join([f"problem: {REFUSED}"] * 3)
    assert told == f"renewed 0 of 9; 1 for a person to act on now; {problems}; and 2 more"


async def test_the_workers_watch_the_leases_of_every_region(world: World) -> None:
    """The schedule, the wiring and the sandbox, with nothing faked but the cloud."""
    held = (
        "SELECT region, count(*) FROM leases WHERE status = 'ACTIVE' AND problem IS NULL"
        " GROUP BY region ORDER BY region"
    )
    expected = [("eu-north", 36), ("eu-south", 36), ("eu-west", 36)]
    for _ in range(int(PATIENCE_SECONDS / POLL_SECONDS)):
        if await world.rows(held) == expected:
            break
        await asyncio.sleep(POLL_SECONDS)
    assert await world.rows(held) == expected
    assert await world.rows("SELECT count(*) FROM audit_log WHERE action = 'renew_lease'") == [(0,)]
