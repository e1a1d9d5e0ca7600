"""The promise of warm keeping: looks by timer and when asked, loads beside them, an end with the pool."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from temporalio.api.enums.v1 import EventType
from temporalio.client import WorkflowExecutionStatus

from activities.drain_start import POOL
from activities.model_placement_calls import LOAD_MODEL
from activities.placement_start import PHASE
from activities.placement_start import TENANT as TENANT_KEY
from activities.warm_calls import LOOK_AT_MODELS, WANTED, FailedLoad, Wanted
from domain.ids import warm_keep_workflow_id
from tests.workflows.chronicle import asked
from tests.workflows.fake_hands import PATIENCE_SECONDS, TENANT, FakeHands, Stage, comes_true, eventually
from tests.workflows.warm_hands import Handle, WarmHands, begin, keeping, played
from workflows import terms

UPSERTED = EventType.EVENT_TYPE_UPSERT_WORKFLOW_SEARCH_ATTRIBUTES


async def ended(handle: Handle) -> str:
    result: Any = await asyncio.wait_for(handle.result(), PATIENCE_SECONDS)
    return str(result["why"])


async def end(hands: WarmHands, handle: Handle) -> str:
    hands.over = True
    await handle.signal(WANTED)
    return await ended(handle)


async def current_details(handle: Handle) -> str:
    metadata: Any = await handle.query("__temporal_workflow_metadata")
    return str(metadata.current_details)


async def test_a_pool_that_serves_no_models_is_let_be(stage: Stage) -> None:
    async with keeping(stage, FakeHands()) as hands:
        hands.over = True
        assert "no models" in await ended(await begin(stage, hands))
        assert hands.counts[LOOK_AT_MODELS] == 1


async def test_it_loads_what_is_wanted_and_looks_again(stage: Stage) -> None:
    async with keeping(stage, FakeHands()) as hands:
        hands.wants = ["a", "b"]
        handle = await begin(stage, hands)
        await eventually(lambda: sorted(hands.loaded) == ["a", "b"], "both loads")

        async def told() -> bool:
            return await current_details(handle) == "2 of 2 models warm; next look 14:35 UTC"

        await comes_true(told, "details")
        assert hands.counts[LOAD_MODEL] == 2
        await end(hands, handle)


async def test_it_looks_by_timer(stage: Stage) -> None:
    async with keeping(stage, FakeHands()) as hands:
        hands.pause_seconds = 0.05
        handle = await begin(stage, hands)
        await eventually(lambda: hands.counts[LOOK_AT_MODELS] >= 3, "looks by timer")
        await end(hands, handle)


async def test_a_failed_load_is_told_once_and_not_repeated_at_once(stage: Stage) -> None:
    async with keeping(stage, FakeHands()) as hands:
        hands.wants, hands.refuses = ["a"], {"a"}
        handle = await begin(stage, hands)
        await eventually(lambda: hands.counts[LOOK_AT_MODELS] == 2, "the look after the load")
        assert hands.looks[1].failed == (FailedLoad(model="a", kind="no_memory", problem="40 GB do not fit"),)

        async def told() -> bool:
            return "a was not loaded: 40 GB do not fit; next look" in await current_details(handle)

        await comes_true(told, "why it was not loaded")
        hands.refuses = set()
        await handle.signal(WANTED, Wanted(why="again"))
        await eventually(lambda: hands.loaded == ["a"], "the load that is tried again")
        assert hands.looks[2].failed == ()
        await end(hands, handle)


async def test_a_load_that_ends_is_no_reason_to_repeat_another_that_failed(stage: Stage) -> None:
    async with keeping(stage, FakeHands()) as hands:
        hands.wants, hands.refuses = ["a", "slow"], {"a"}
        hands.slow = asyncio.Event()
        handle = await begin(stage, hands)
        await eventually(lambda: hands.counts[LOOK_AT_MODELS] == 2, "the look after the load that failed")
        hands.slow.set()
        await eventually(lambda: hands.counts[LOOK_AT_MODELS] == 3, "the look after the other load")
        assert [one.model for one in hands.looks[2].failed] == ["a"]
        assert hands.counts[LOAD_MODEL] == 2
        await end(hands, handle)


async def test_a_load_that_takes_long_keeps_nobody_waiting(stage: Stage) -> None:
    async with keeping(stage, FakeHands()) as hands:
        hands.wants = ["slow"]
        hands.own.hold(LOAD_MODEL)
        handle = await begin(stage, hands)
        await hands.own.until(LOAD_MODEL)
        hands.wants = ["slow", "other"]
        await handle.signal(WANTED)
        await eventually(lambda: hands.counts[LOAD_MODEL] == 2, "a second load beside the first")
        assert "loading slow, other" in await current_details(handle)
        hands.own.let_go(LOAD_MODEL)
        await eventually(lambda: len(hands.loaded) == 2, "both loads")
        await end(hands, handle)


async def test_a_pool_that_stops_to_serve_ends_it_in_the_middle_of_a_load(stage: Stage) -> None:
    async with keeping(stage, FakeHands()) as hands:
        hands.wants = ["slow"]
        hands.own.hold(LOAD_MODEL)
        handle = await begin(stage, hands)
        await hands.own.until(LOAD_MODEL)
        assert "no models" in await end(hands, handle)
        hands.own.let_go(LOAD_MODEL)


@pytest.mark.parametrize("body", [(), (None,), ({"why": "a person"},), ({"why": "one"}, "more"), (7,)])
async def test_a_stray_signal_only_makes_it_look(stage: Stage, body: tuple[Any, ...]) -> None:
    async with keeping(stage, FakeHands()) as hands:
        handle = await begin(stage, hands)
        await eventually(lambda: hands.counts[LOOK_AT_MODELS] == 1, "the first look")
        await handle.signal(WANTED, args=list(body))
        await handle.signal(WANTED)
        await eventually(lambda: hands.counts[LOOK_AT_MODELS] >= 2, "a look asked for")
        assert (await handle.describe()).status is WorkflowExecutionStatus.RUNNING
        await end(hands, handle)


async def test_what_is_wanted_during_the_last_look_is_looked_at(stage: Stage) -> None:
    async with keeping(stage, FakeHands()) as hands:
        hands.over = True
        hands.own.hold(LOOK_AT_MODELS)
        handle = await begin(stage, hands)
        await hands.own.until(LOOK_AT_MODELS)
        await handle.signal(WANTED)
        hands.own.let_go(LOOK_AT_MODELS)
        await ended(handle)
        assert hands.counts[LOOK_AT_MODELS] == 2


async def test_starting_it_twice_runs_it_once_and_tells_it(stage: Stage) -> None:
    async with keeping(stage, FakeHands()) as hands:
        first = await begin(stage, hands)
        await eventually(lambda: hands.counts[LOOK_AT_MODELS] == 1, "the first look")
        await begin(stage, hands)
        again = await begin(stage, hands, Wanted(why="asked for"))
        await eventually(lambda: hands.counts[LOOK_AT_MODELS] == 2, "a look asked for")
        assert first.id == again.id == warm_keep_workflow_id(TENANT, hands.pool_id)
        await end(hands, first)


async def test_a_database_or_a_worker_that_is_away_is_waited_for(stage: Stage) -> None:
    own = FakeHands()
    async with keeping(stage, own) as hands:
        hands.failing = 2
        handle = await begin(stage, hands)
        await eventually(lambda: hands.counts[LOOK_AT_MODELS] == 3, "the look that is tried again")
    hands.over = True
    await handle.signal(WANTED)
    async with played(stage, hands):
        await ended(handle)


async def test_a_long_keeping_continues_as_new(forgetful_stage: Stage) -> None:
    async with keeping(forgetful_stage, FakeHands()) as hands:
        hands.pause_seconds = 0.05
        hands.wants = ["a"]
        handle = await begin(forgetful_stage, hands)
        first = (await handle.describe()).run_id

        async def runs_anew() -> bool:
            return (await handle.describe()).run_id != first

        await comes_true(runs_anew, "a new run")
        await end(hands, handle)
        assert hands.counts[LOAD_MODEL] == 1


async def test_it_can_be_read_in_temporal(stage: Stage) -> None:
    async with keeping(stage, FakeHands()) as hands:
        hands.problem = "gpu-7 cannot be reached"
        handle = await begin(stage, hands)

        async def told() -> bool:
            return "cannot be asked" in await current_details(handle)

        await comes_true(told, "details")
        assert await current_details(handle) == (
            "the endpoint cannot be asked: gpu-7 cannot be reached; next look 14:35 UTC"
        )
        described = await handle.describe()
        assert await described.static_summary() == f"Keep {hands.pool_id} warm"
        found = described.typed_search_attributes
        assert (found[TENANT_KEY], found[POOL], found[PHASE]) == (TENANT, hands.pool_id, "unseen")
        await end(hands, handle)
        assert (await handle.describe()).typed_search_attributes[PHASE] == "ended"


async def test_its_phase_tells_a_warm_pool_from_one_that_misses_models(stage: Stage) -> None:
    async with keeping(stage, FakeHands()) as hands:
        hands.wants, hands.refuses = ["a"], {"a"}
        handle = await begin(stage, hands)

        async def phase() -> str:
            return (await handle.describe()).typed_search_attributes[PHASE]

        async def misses() -> bool:
            return await phase() == "missing"

        async def is_warm() -> bool:
            return await phase() == "warm"

        await comes_true(misses, "a model that is missing")
        hands.refuses = set()
        await handle.signal(WANTED)
        await comes_true(is_warm, "every model that is wanted")
        upserts = [one.event_type for one in (await handle.fetch_history()).events].count(UPSERTED)
        looks = hands.counts[LOOK_AT_MODELS]
        await handle.signal(WANTED)
        await eventually(lambda: hands.counts[LOOK_AT_MODELS] > looks, "a look that finds the same")
        again = [one.event_type for one in (await handle.fetch_history()).events].count(UPSERTED)
        assert again == upserts
        await end(hands, handle)


async def test_hands_are_waited_for_within_their_terms(stage: Stage) -> None:
    async with keeping(stage, FakeHands()) as hands:
        hands.wants = ["a"]
        handle = await begin(stage, hands)
        await eventually(lambda: hands.counts[LOOK_AT_MODELS] == 2, "the look after the load")
        await end(hands, handle)
        by_name = {one.activity_type.name: one for one in asked(await handle.fetch_history())}
    look, load = by_name[LOOK_AT_MODELS], by_name[LOAD_MODEL]
    assert look.start_to_close_timeout.ToTimedelta() == terms.MODELS_LOOK_TIMEOUT
    assert load.start_to_close_timeout.ToTimedelta() == terms.LOAD_TIMEOUT
    assert load.schedule_to_close_timeout.ToTimedelta() == terms.LOAD_PATIENCE
    assert load.heartbeat_timeout.ToTimedelta() == terms.HEARTBEAT
