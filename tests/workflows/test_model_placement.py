"""The promise of a model placement: its model is loaded, and it ends with a release or when time is over."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest
from temporalio.client import WorkflowExecutionStatus

from activities.drain_start import POOL
from activities.model_placement_calls import (
    FAIL_PLACEMENT,
    LOAD_MODEL,
    LOOK_AT_PLACEMENT,
    PLACEMENT_RELEASED,
    RECORD_LOAD,
    LoadModelRequest,
    LoadRecord,
    ModelPlacementEnded,
    PlacementFailure,
    PlacementReleased,
    PlacementRequest,
)
from activities.model_placement_start import tell_model_placement
from activities.placement_start import PHASE
from activities.placement_start import TENANT as TENANT_KEY
from domain.ids import model_placement_workflow_id
from tests.workflows.chronicle import asked, chronicle
from tests.workflows.fake_hands import PATIENCE_SECONDS, TENANT, FakeHands, Stage, comes_true, eventually
from tests.workflows.model_placement_hands import MODEL, Handle, ModelPlacementHands, begin, serving
from workflows import terms


async def ended(handle: Handle) -> ModelPlacementEnded:
    return await asyncio.wait_for(handle.result(), PATIENCE_SECONDS)


async def current_details(handle: Handle) -> str:
    metadata: Any = await handle.query("__temporal_workflow_metadata")
    return str(metadata.current_details)


async def phase(handle: Handle) -> str:
    return str((await handle.describe()).typed_search_attributes[PHASE])


async def tell(stage: Stage, hands: ModelPlacementHands) -> bool:
    request = PlacementRequest(tenant_id=TENANT, placement_id=hands.placement_id)
    return await tell_model_placement(stage.client, request, PlacementReleased(why="released"))


async def test_it_loads_the_model_and_ends_with_the_release(stage: Stage) -> None:
    async with serving(stage, FakeHands()) as hands:
        handle = await begin(stage, hands)
        await eventually(lambda: hands.times(RECORD_LOAD) == 1, "a load that is recorded")
        hands.state = "released"
        assert await tell(stage, hands)
        assert await ended(handle) == ModelPlacementEnded(outcome="released", loaded=True)
    assert hands.asked(LOAD_MODEL) == [
        LoadModelRequest(
            tenant_id=TENANT,
            pool_id=hands.request.pool_id,
            model=MODEL,
            vram_gb=70,
            cause="placement",
        )
    ]
    assert hands.asked(RECORD_LOAD) == [
        LoadRecord(tenant_id=TENANT, placement_id=hands.placement_id, caused=True)
    ]
    assert handle.id == model_placement_workflow_id(TENANT, hands.placement_id)


async def test_it_ends_when_its_time_is_over(stage: Stage) -> None:
    async with serving(stage, FakeHands()) as hands:
        hands.expires_at = datetime.now(UTC) + timedelta(seconds=1.5)
        done = await ended(await begin(stage, hands))
    assert done == ModelPlacementEnded(outcome="expired", loaded=True)


async def test_a_renewal_is_read_from_the_store_before_it_is_given_up(stage: Stage) -> None:
    async with serving(stage, FakeHands()) as hands:
        hands.expires_at = datetime.now(UTC) + timedelta(seconds=1.5)
        handle = await begin(stage, hands)
        await eventually(lambda: hands.times(RECORD_LOAD) == 1, "a load that is recorded")
        hands.expires_at = datetime.now(UTC) + timedelta(hours=1)
        await eventually(lambda: hands.times(LOOK_AT_PLACEMENT) == 2, "a look at the old end")
        assert (await handle.describe()).status is WorkflowExecutionStatus.RUNNING
        hands.state = "released"
        await tell(stage, hands)
        assert (await ended(handle)).outcome == "released"


async def test_what_was_released_before_it_began_is_not_loaded(stage: Stage) -> None:
    async with serving(stage, FakeHands()) as hands:
        hands.state = "released"
        assert await ended(await begin(stage, hands)) == ModelPlacementEnded(outcome="released", loaded=False)
    assert hands.times(LOAD_MODEL) == 0


async def test_a_release_while_it_loads_lets_the_load_end(stage: Stage) -> None:
    """Others may count on it by now."""
    own = FakeHands()
    own.hold(LOAD_MODEL)
    async with serving(stage, own) as hands:
        handle = await begin(stage, hands)
        await own.until(LOAD_MODEL)
        hands.state = "released"
        await tell(stage, hands)
        assert (await handle.describe()).status is WorkflowExecutionStatus.RUNNING
        own.let_go(LOAD_MODEL)
        assert await ended(handle) == ModelPlacementEnded(outcome="released", loaded=True)
    assert hands.times(RECORD_LOAD) == 1


async def test_time_that_is_over_while_it_loads_ends_it_after_the_load(stage: Stage) -> None:
    own = FakeHands()
    own.hold(LOAD_MODEL)
    async with serving(stage, own) as hands:
        handle = await begin(stage, hands)
        await own.until(LOAD_MODEL)
        hands.state = "expired"
        own.let_go(LOAD_MODEL)
        assert await ended(handle) == ModelPlacementEnded(outcome="expired", loaded=True)


async def test_a_load_that_fails_gives_the_placement_back_with_the_problem(stage: Stage) -> None:
    async with serving(stage, FakeHands()) as hands:
        hands.refusal = ("unknown_model", "the endpoint has no llama3.3:70b")
        handle = await begin(stage, hands)
        assert await ended(handle) == ModelPlacementEnded(outcome="failed", loaded=False)
        assert await current_details(handle) == "failed: unknown_model: the endpoint has no llama3.3:70b"
        assert await phase(handle) == "failed"
    assert hands.asked(FAIL_PLACEMENT) == [
        PlacementFailure(
            tenant_id=TENANT,
            placement_id=hands.placement_id,
            kind="unknown_model",
            problem="the endpoint has no llama3.3:70b",
        )
    ]


async def test_a_load_that_nobody_does_in_time_has_failed(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(terms, "LOAD_PATIENCE", timedelta(seconds=1))
    own = FakeHands()
    own.hold(LOAD_MODEL)
    async with serving(stage, own, sandbox=False) as hands:
        assert (await ended(await begin(stage, hands))).outcome == "failed"
        own.let_go(LOAD_MODEL)
    (failure,) = hands.asked(FAIL_PLACEMENT)
    assert isinstance(failure, PlacementFailure)
    assert (failure.kind, failure.problem) == ("timeout", "the model was not loaded in time")


@pytest.mark.parametrize("body", [(), (None,), ({"why": "a person"},), ({"why": "one"}, "more"), (7,)])
async def test_a_stray_signal_only_makes_it_look(stage: Stage, body: tuple[Any, ...]) -> None:
    async with serving(stage, FakeHands()) as hands:
        handle = await begin(stage, hands)
        await eventually(lambda: hands.times(RECORD_LOAD) == 1, "a load that is recorded")
        await handle.signal(PLACEMENT_RELEASED, args=list(body))
        if body != (7,):
            await eventually(lambda: hands.times(LOOK_AT_PLACEMENT) == 2, "a look asked for")
        assert (await handle.describe()).status is WorkflowExecutionStatus.RUNNING
        hands.state = "released"
        await handle.signal(PLACEMENT_RELEASED)
        assert (await ended(handle)).outcome == "released"


async def test_starting_it_twice_runs_it_once(stage: Stage) -> None:
    own = FakeHands()
    own.hold(LOAD_MODEL)
    async with serving(stage, own) as hands:
        first, second = await begin(stage, hands), await begin(stage, hands)
        assert first.id == second.id
        await own.until(LOAD_MODEL)
        own.let_go(LOAD_MODEL)
        await eventually(lambda: hands.times(RECORD_LOAD) == 1, "a load that is recorded")
        hands.state = "released"
        await tell(stage, hands)
        await ended(first)
    assert hands.times(LOAD_MODEL) == 1


async def test_telling_one_that_does_not_run_is_no_failure(stage: Stage) -> None:
    request = PlacementRequest(tenant_id=TENANT, placement_id=uuid4())
    assert not await tell_model_placement(stage.client, request, PlacementReleased())


async def test_a_database_that_is_away_is_waited_for(stage: Stage) -> None:
    async with serving(stage, FakeHands()) as hands:
        hands.failing, hands.state = 2, "released"
        assert (await ended(await begin(stage, hands))).outcome == "released"
    assert hands.times(LOOK_AT_PLACEMENT) == 3


async def test_a_worker_that_is_gone_is_waited_for(stage: Stage) -> None:
    own = FakeHands()
    async with serving(stage, own) as hands:
        handle = await begin(stage, hands)
        await eventually(lambda: hands.times(RECORD_LOAD) == 1, "a load that is recorded")
    await tell(stage, hands)
    async with serving(stage, own) as again:
        again.state = "released"
        assert (await ended(handle)).outcome == "released"
    assert own.counts[LOAD_MODEL] == 1


async def test_a_long_placement_continues_as_new_and_loads_once(forgetful_stage: Stage) -> None:
    async with serving(forgetful_stage, FakeHands()) as hands:
        handle = await begin(forgetful_stage, hands)
        await eventually(lambda: hands.times(RECORD_LOAD) == 1, "a load that is recorded")
        first = (await handle.describe()).run_id

        async def runs_anew() -> bool:
            await tell(forgetful_stage, hands)
            return (await handle.describe()).run_id != first

        await comes_true(runs_anew, "a new run")
        hands.state = "released"
        await tell(forgetful_stage, hands)
        assert await ended(handle) == ModelPlacementEnded(outcome="released", loaded=True)
    assert hands.times(LOAD_MODEL) == 1


async def test_it_can_be_read_in_temporal(stage: Stage) -> None:
    own = FakeHands()
    own.hold(LOAD_MODEL)
    async with serving(stage, own) as hands:
        hands.expires_at = datetime(2130, 1, 31, 10, tzinfo=UTC)
        handle = await begin(stage, hands)
        await own.until(LOAD_MODEL)
        described = await handle.describe()
        pool = hands.request.pool_id
        assert await described.static_summary() == f"Place {MODEL} on {pool}"
        assert await current_details(handle) == (
            f"loading {MODEL} on {pool}, about 40 s; held until 2130-01-31 10:00 UTC"
        )
        found = described.typed_search_attributes
        assert (found[TENANT_KEY], found[POOL], found[PHASE]) == (TENANT, pool, "loading")
        own.let_go(LOAD_MODEL)

        async def is_held() -> bool:
            return await phase(handle) == "held"

        await comes_true(is_held, "a placement that is held")
        assert await current_details(handle) == (
            f"{MODEL} is loaded on {pool}; held until 2130-01-31 10:00 UTC"
        )
        hands.state = "released"
        await tell(stage, hands)
        await ended(handle)
        assert await phase(handle) == "released"


async def test_its_hands_are_waited_for_within_their_terms(stage: Stage) -> None:
    async with serving(stage, FakeHands()) as hands:
        hands.expires_at = datetime.now(UTC) + timedelta(seconds=1)
        handle = await begin(stage, hands)
        await ended(handle)
    history = await handle.fetch_history()
    assert chronicle(history)[:4] == [
        f"+{LOOK_AT_PLACEMENT}",
        f"-{LOOK_AT_PLACEMENT}",
        f"+{LOAD_MODEL}",
        f"-{LOAD_MODEL}",
    ]
    timeouts = {one.activity_type.name: one.start_to_close_timeout.ToTimedelta() for one in asked(history)}
    assert timeouts == {
        LOOK_AT_PLACEMENT: terms.STORE_TIMEOUT,
        LOAD_MODEL: terms.LOAD_TIMEOUT,
        RECORD_LOAD: terms.STORE_TIMEOUT,
    }
    assert {one.heartbeat_timeout.ToTimedelta() for one in asked(history)} == {terms.HEARTBEAT}


async def test_no_history_holds_a_credential_or_an_endpoint(stage: Stage) -> None:
    async with serving(stage, FakeHands()) as hands:
        hands.state = "released"
        handle = await begin(stage, hands)
        await ended(handle)
    text = (await handle.fetch_history()).to_json()
    assert "credential" not in text
    assert "https://" not in text
