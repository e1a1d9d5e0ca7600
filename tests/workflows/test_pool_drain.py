"""The promise of a drain: looked at until nothing is held, ended at once by a resume, never lost."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from temporalio.client import WorkflowExecutionStatus, WorkflowHandle

from activities.drain_calls import (
    DRAIN_POOL,
    POOL_CHANGED,
    PoolChanged,
    PoolDrained,
    PoolDrainInput,
)
from activities.drain_start import POOL, start_drain, tell_drain
from activities.placement_start import PHASE
from activities.placement_start import TENANT as TENANT_KEY
from domain.ids import partition_queue, pool_drain_workflow_id
from tests.workflows.chronicle import asked
from tests.workflows.drain_hands import DONE, SINCE
from tests.workflows.fake_hands import PATIENCE_SECONDS, TENANT, FakeHands, Stage, comes_true, eventually
from workflows import terms

Handle = WorkflowHandle[Any, PoolDrained]


async def begin(stage: Stage, own: FakeHands, change: PoolChanged | None = None) -> Handle:
    request = PoolDrainInput(tenant_id=TENANT, pool_id=f"pool-{own.tag}")
    workflow_id = await start_drain(
        stage.client, request, change, queue=partition_queue(TENANT, own.partition)
    )
    return stage.client.get_workflow_handle(workflow_id, result_type=PoolDrained)


async def ended(handle: Handle) -> PoolDrained:
    return await asyncio.wait_for(handle.result(), PATIENCE_SECONDS)


async def current_details(handle: Handle) -> str:
    metadata: Any = await handle.query("__temporal_workflow_metadata")
    return str(metadata.current_details)


def looks(own: FakeHands) -> list[PoolDrainInput]:
    return [request for name, request in own.calls if name == DRAIN_POOL]


async def test_an_empty_pool_is_drained_with_one_look(stage: Stage) -> None:
    async with stage.playing(FakeHands()) as own:
        own.draining.held = 0
        done = await ended(await begin(stage, own))
    assert done == PoolDrained(outcome="drained", drained_at=DONE)
    assert own.counts[DRAIN_POOL] == 1


async def test_it_looks_by_timer_until_nothing_is_held(stage: Stage) -> None:
    async with stage.playing(FakeHands()) as own:
        own.draining.pause_seconds = 0.05
        handle = await begin(stage, own)
        await eventually(lambda: own.counts[DRAIN_POOL] >= 3, "looks by timer")
        own.draining.held = 0
        assert (await ended(handle)).outcome == "drained"
    assert looks(own)[0].told_since is None
    assert {one.told_since for one in looks(own)[1:]} == {SINCE}


async def test_a_resume_ends_it_at_once(stage: Stage) -> None:
    async with stage.playing(FakeHands()) as own:
        handle = await begin(stage, own)
        await eventually(lambda: own.counts[DRAIN_POOL] == 1, "the first look")
        own.draining.resumed = True
        assert await tell_drain(stage.client, TENANT, f"pool-{own.tag}", PoolChanged(why="resumed"))
        assert await ended(handle) == PoolDrained(outcome="resumed", drained_at=None)
        assert await current_details(handle) == "the pool is active again"


@pytest.mark.parametrize("body", [(), (None,), ({"why": "a person"},), ({"why": "one"}, "more")])
async def test_a_stray_signal_only_makes_it_look(stage: Stage, body: tuple[Any, ...]) -> None:
    async with stage.playing(FakeHands()) as own:
        handle = await begin(stage, own)
        await eventually(lambda: own.counts[DRAIN_POOL] == 1, "the first look")
        await handle.signal(POOL_CHANGED, args=list(body))
        await eventually(lambda: own.counts[DRAIN_POOL] == 2, "a look asked for")
        assert (await handle.describe()).status is WorkflowExecutionStatus.RUNNING
        own.draining.held = 0
        await handle.signal(POOL_CHANGED)
        await ended(handle)


async def test_a_change_during_the_last_look_is_looked_at(stage: Stage) -> None:
    async with stage.playing(FakeHands()) as own:
        own.draining.resumed = True
        own.hold(DRAIN_POOL)
        handle = await begin(stage, own)
        await own.until(DRAIN_POOL)
        await handle.signal(POOL_CHANGED)
        own.let_go(DRAIN_POOL)
        await ended(handle)
    assert own.counts[DRAIN_POOL] == 2


async def test_starting_it_twice_runs_it_once_and_tells_it(stage: Stage) -> None:
    async with stage.playing(FakeHands()) as own:
        first = await begin(stage, own)
        await eventually(lambda: own.counts[DRAIN_POOL] == 1, "the first look")
        await begin(stage, own)
        again = await begin(stage, own, PoolChanged(why="asked again"))
        await eventually(lambda: own.counts[DRAIN_POOL] == 2, "a look asked for")
        assert first.id == again.id == pool_drain_workflow_id(TENANT, f"pool-{own.tag}")
        own.draining.held = 0
        await first.signal(POOL_CHANGED)
        await ended(first)


async def test_telling_a_drain_that_does_not_run_is_no_failure(stage: Stage) -> None:
    assert not await tell_drain(stage.client, TENANT, "nobody-drains", PoolChanged())


async def test_a_database_that_is_away_is_waited_for(stage: Stage) -> None:
    async with stage.playing(FakeHands()) as own:
        own.draining.held, own.draining.failing = 0, 2
        assert (await ended(await begin(stage, own))).outcome == "drained"
    assert own.counts[DRAIN_POOL] == 3


async def test_a_worker_that_is_gone_is_waited_for(stage: Stage) -> None:
    own = FakeHands()
    async with stage.playing(own):
        handle = await begin(stage, own)
        await eventually(lambda: own.counts[DRAIN_POOL] == 1, "the first look")
    own.draining.held = 0
    await handle.signal(POOL_CHANGED)
    async with stage.playing(own):
        assert (await ended(handle)).outcome == "drained"


async def test_a_long_drain_continues_as_new_and_remembers_whom_it_told(forgetful_stage: Stage) -> None:
    async with forgetful_stage.playing(FakeHands()) as own:
        own.draining.pause_seconds = 0.05
        handle = await begin(forgetful_stage, own)
        first = (await handle.describe()).run_id

        async def runs_anew() -> bool:
            return (await handle.describe()).run_id != first

        await comes_true(runs_anew, "a new run")
        own.draining.held = 0
        assert (await ended(handle)).outcome == "drained"
    assert [one.told_since for one in looks(own)].count(None) == 1


async def test_it_can_be_read_in_temporal(stage: Stage) -> None:
    async with stage.playing(FakeHands()) as own:
        own.draining.evicting = ("llama",)
        handle = await begin(stage, own)

        async def told() -> bool:
            return "holds" in await current_details(handle)

        await comes_true(told, "details")
        described = await handle.describe()
        assert await described.static_summary() == f"Drain pool-{own.tag}"
        assert await current_details(handle) == (
            "draining since 2030-01-31 10:00 UTC; holds 2 units, 2 instances of orders; unloaded llama"
        )
        found = described.typed_search_attributes
        assert (found[TENANT_KEY], found[POOL], found[PHASE]) == (TENANT, f"pool-{own.tag}", "draining")
        own.draining.held = 0
        await handle.signal(POOL_CHANGED)
        await ended(handle)
        assert await current_details(handle) == "drained at 2030-01-31 10:30 UTC"
        assert (await handle.describe()).typed_search_attributes[PHASE] == "drained"


async def test_a_look_is_waited_for_within_its_terms(stage: Stage) -> None:
    async with stage.playing(FakeHands()) as own:
        own.draining.held = 0
        handle = await begin(stage, own)
        await ended(handle)
    (one,) = asked(await handle.fetch_history())
    assert one.start_to_close_timeout.ToTimedelta() == terms.DRAIN_LOOK_TIMEOUT
    assert one.heartbeat_timeout.ToTimedelta() == terms.HEARTBEAT
