"""The promise of placement on a real Temporal server, in the strict sandbox, with fake hands."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest
from temporalio.api.common.v1 import Payload, Payloads, WorkflowExecution
from temporalio.api.sdk.v1 import WorkflowMetadata
from temporalio.api.workflowservice.v1 import SignalWorkflowExecutionRequest
from temporalio.client import WorkflowExecutionStatus, WorkflowFailureError
from temporalio.exceptions import ApplicationError, CancelledError

from activities.placement_calls import (
    ACQUIRE,
    CLAIM_CHANGED,
    DECIDE,
    FINISH,
    NOTHING_TO_PLACE,
    PLAN_RELEASE,
    RELEASE,
    ClaimChanged,
)
from activities.placement_start import PARTITION, PHASE, TENANT, WORKLOAD
from tests.workflows.chronicle import asked, chronicle
from tests.workflows.fake_hands import TENANT as TENANT_ID
from tests.workflows.fake_hands import FakeHands, Stage
from workflows import terms

PLAIN = {"encoding": b"json/plain"}


async def test_a_claim_is_decided_acquired_and_recorded(stage: Stage) -> None:
    async with stage.playing(FakeHands()) as hands:
        finished = await stage.place(hands)
        told = chronicle(await stage.handle(hands).fetch_history())
    assert finished.phase == "placed"
    assert told == [DECIDE, f"+{ACQUIRE}", f"-{ACQUIRE}", f"+{FINISH}", f"-{FINISH}"]


async def test_every_region_is_launched_in_at_once(stage: Stage) -> None:
    async with stage.playing(FakeHands(("here", "there"))) as hands:
        hands.hold(ACQUIRE)
        await stage.start(hands)
        await hands.until(ACQUIRE)
        hands.let_go(ACQUIRE)
        await stage.result(hands)
        history = await stage.handle(hands).fetch_history()
    assert chronicle(history)[1:3] == [f"+{ACQUIRE}", f"+{ACQUIRE}"]
    queues = {one.task_queue.name for one in asked(history) if one.activity_type.name == ACQUIRE}
    assert queues == {f"provider-{region}" for region in hands.regions}


async def test_failed_launches_are_planned_again(stage: Stage) -> None:
    async with stage.playing(FakeHands()) as hands:
        hands.failing = 2
        finished = await stage.place(hands)
    assert finished.phase == "placed"
    assert hands.counts == {DECIDE: 3, ACQUIRE: 3, FINISH: 1}
    assert len({request.decision_id for name, request in hands.calls if name == DECIDE}) == 3


async def test_launches_that_always_fail_end_as_a_shortfall(stage: Stage) -> None:
    async with stage.playing(FakeHands()) as hands:
        hands.failing, hands.surplus = 1000, True
        finished = await stage.place(hands)
    assert (finished.phase, finished.shortfall_reason) == ("shortfall", "launches_failed")
    tries = terms.MAX_REPLANS + 1
    # Nothing is given back: what was to replace it does not run.
    assert hands.counts == {DECIDE: tries, ACQUIRE: tries, FINISH: 1}


async def test_an_answer_that_was_lost_is_asked_for_again_under_the_same_id(stage: Stage) -> None:
    async with stage.playing(FakeHands()) as hands:
        hands.lost_answers = 2
        finished = await stage.place(hands)
    assert finished.phase == "placed"
    assert hands.counts[DECIDE] == 3
    assert len({request.decision_id for name, request in hands.calls if name == DECIDE}) == 1


async def test_without_a_claim_there_is_nothing_to_retry(stage: Stage) -> None:
    async with stage.playing(FakeHands()) as hands:
        hands.no_claim = True
        with pytest.raises(WorkflowFailureError) as failed:
            await stage.place(hands)
    assert isinstance(failed.value.cause, ApplicationError)
    assert failed.value.cause.type == NOTHING_TO_PLACE


async def test_an_unreachable_region_is_waited_for_once_and_then_recorded(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The sandbox would load these terms anew for every workflow.
    monkeypatch.setattr(terms, "REGION_PATIENCE", timedelta(seconds=2))
    hands = FakeHands(("here", "there"))
    hands.unreachable, hands.surplus = frozenset(hands.regions[:1]), True
    async with stage.playing(hands, sandbox=False):
        await stage.place(hands)
        told = chronicle(await stage.handle(hands).fetch_history())
    assert (told.count(f"+{ACQUIRE}"), told.count(f"-{ACQUIRE}")) == (2, 1)
    counts = hands.counts
    assert counts.pop(ACQUIRE) > 2, "the region was tried again while there was patience"
    assert counts == {DECIDE: 1, FINISH: 1}


async def test_a_long_history_is_continued_and_nothing_is_lost(forgetful_stage: Stage) -> None:
    stage = forgetful_stage
    async with stage.playing(FakeHands()) as hands:
        hands.hold(ACQUIRE)
        handle = await stage.start(hands)
        await hands.until(ACQUIRE)
        first = await handle.describe()
        hands.hold(FINISH)
        await stage.newer(hands, versions=20)
        hands.let_go(ACQUIRE)
        await hands.until(FINISH)
        await stage.newer(hands)
        hands.let_go(FINISH)
        finished = await stage.result(hands)
        last = await stage.handle(hands).describe()
    assert finished.phase == "placed"
    assert hands.planned == [1, 22]
    assert last.run_id != first.run_id
    assert last.typed_search_attributes[WORKLOAD] == hands.workload


async def test_a_hand_that_waits_long_is_not_taken_for_dead(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(terms, "HEARTBEAT", timedelta(seconds=1))
    async with stage.playing(FakeHands(), sandbox=False) as hands:
        hands.hold(ACQUIRE)
        await stage.start(hands)
        await hands.until(ACQUIRE)
        await asyncio.sleep(2.5)
        hands.let_go(ACQUIRE)
        await stage.result(hands)
    assert hands.counts[ACQUIRE] == 1


async def test_surplus_is_given_back_only_when_its_replacement_runs(stage: Stage) -> None:
    async with stage.playing(FakeHands()) as hands:
        hands.surplus, hands.failing = True, 1
        await stage.place(hands)
        told = chronicle(await stage.handle(hands).fetch_history())
    last_launch = len(told) - told[::-1].index(f"-{ACQUIRE}") - 1
    assert told.count(f"-{ACQUIRE}") == 2
    assert told[last_launch + 1 :] == [
        *(f"+{PLAN_RELEASE}", f"-{PLAN_RELEASE}"),
        *(f"+{RELEASE}", f"-{RELEASE}"),
        *(f"+{FINISH}", f"-{FINISH}"),
    ]


@pytest.mark.parametrize("busy_with", [DECIDE, ACQUIRE, FINISH])
async def test_claims_that_arrive_meanwhile_are_planned_once(stage: Stage, busy_with: str) -> None:
    async with stage.playing(FakeHands()) as hands:
        hands.hold(busy_with)
        await stage.start(hands)
        await hands.until(busy_with)
        await stage.newer(hands, versions=20)
        hands.let_go(busy_with)
        await stage.result(hands)
    assert hands.planned == [1, 21]
    assert hands.counts[DECIDE] == 2


async def test_claims_sent_before_a_worker_came_are_one_decision(stage: Stage) -> None:
    hands = FakeHands()
    await stage.start(hands)
    await stage.newer(hands, versions=5)
    async with stage.playing(hands):
        await stage.result(hands)
    assert hands.planned == [6]


async def test_a_version_that_does_not_exist_asks_for_one_more_plan(stage: Stage) -> None:
    async with stage.playing(FakeHands()) as hands:
        hands.hold(ACQUIRE)
        handle = await stage.start(hands)
        await hands.until(ACQUIRE)
        await handle.signal(CLAIM_CHANGED, ClaimChanged(claim_version=10**9))
        hands.let_go(ACQUIRE)
        finished = await stage.result(hands)
    assert finished.phase == "placed"
    assert hands.counts[DECIDE] == 2


@pytest.mark.parametrize(
    ("payloads", "plans"),
    [
        pytest.param([], 2, id="no argument"),
        pytest.param([b"null"], 2, id="null"),
        pytest.param([b"{}"], 2, id="empty object"),
        pytest.param([b"{}", b"{}"], 2, id="two arguments"),
        pytest.param([b'{"claim_version": 7}', b'"x"', b"3"], 2, id="three arguments"),
        pytest.param([b"not json"], 1, id="no json"),
        pytest.param([b'{"claimVersion": 7}'], 1, id="unknown field"),
        pytest.param([b'{"claim_version": "soon"}'], 1, id="wrong type"),
        pytest.param([b"[1, 2]"], 1, id="list"),
        pytest.param([b"not json", b"{"], 1, id="two without json"),
    ],
)
async def test_a_signal_typed_by_a_person_never_stops_a_placement(
    stage: Stage, payloads: list[bytes], plans: int
) -> None:
    """What can be read asks for another plan; what cannot is left out."""
    async with stage.playing(FakeHands()) as hands:
        hands.hold(ACQUIRE)
        handle = await stage.start(hands)
        await hands.until(ACQUIRE)
        await stage.client.workflow_service.signal_workflow_execution(
            SignalWorkflowExecutionRequest(
                namespace="default",
                workflow_execution=WorkflowExecution(workflow_id=handle.id),
                signal_name=CLAIM_CHANGED,
                input=Payloads(payloads=[Payload(metadata=PLAIN, data=data) for data in payloads]),
            )
        )
        hands.let_go(ACQUIRE)
        finished = await stage.result(hands)
    assert finished.phase == "placed"
    assert hands.counts[DECIDE] == plans


async def test_a_signal_nobody_knows_is_ignored(stage: Stage) -> None:
    async with stage.playing(FakeHands()) as hands:
        hands.hold(ACQUIRE)
        handle = await stage.start(hands)
        await hands.until(ACQUIRE)
        await handle.signal("claim_change", "typo")
        hands.let_go(ACQUIRE)
        finished = await stage.result(hands)
    assert finished.phase == "placed"
    assert hands.counts[DECIDE] == 1


async def test_a_cancelled_placement_stops_at_once(stage: Stage) -> None:
    async with stage.playing(FakeHands(("here", "there"))) as hands:
        hands.hold(ACQUIRE)
        hands.surplus = True
        handle = await stage.start(hands)
        await hands.until(ACQUIRE)
        await handle.cancel()
        with pytest.raises(WorkflowFailureError) as failed:
            await stage.result(hands)
        hands.let_go(ACQUIRE)
    assert isinstance(failed.value.cause, CancelledError)
    assert hands.counts == {DECIDE: 1, ACQUIRE: 2}


async def test_what_happens_can_be_read_in_the_web_ui(stage: Stage) -> None:
    async with stage.playing(FakeHands()) as hands:
        hands.hold(ACQUIRE)
        handle = await stage.start(hands)
        await hands.until(ACQUIRE)
        found = await handle.describe()
        attributes = found.typed_search_attributes
        assert attributes[TENANT] == TENANT_ID
        assert attributes[PARTITION] == hands.partition
        assert attributes[WORKLOAD] == hands.workload
        assert attributes[PHASE] == terms.PLACING
        assert await found.static_summary() == f"Place {hands.workload} in {hands.partition}"
        waiting = await current_details(stage, hands)
        assert f"waiting for instances in {hands.regions[0]}" in waiting
        assert "42 of 42 units (13 floor) for 2.744795 USD per hour" in waiting
        hands.let_go(ACQUIRE)
        await stage.result(hands)
        assert (await handle.describe()).typed_search_attributes[PHASE] == "placed"
        assert await current_details(stage, hands) == "placed: 42 of 42 units on 24 instances"


async def test_a_shortfall_is_told_with_its_reason(stage: Stage) -> None:
    async with stage.playing(FakeHands()) as hands:
        hands.failing = 1000
        await stage.place(hands)
        told = await current_details(stage, hands)
        phase = (await stage.handle(hands).describe()).typed_search_attributes[PHASE]
    assert told == "shortfall: 40 of 42 units on 24 instances; 2 units missing (launches_failed)"
    assert phase == "shortfall"


async def test_a_placement_that_plans_again_is_not_called_placed(stage: Stage) -> None:
    async with stage.playing(FakeHands()) as hands:
        hands.hold(FINISH)
        handle = await stage.start(hands)
        await hands.until(FINISH)
        hands.hold(ACQUIRE)
        await stage.newer(hands)
        hands.let_go(FINISH)
        await hands.until(ACQUIRE)
        assert (await handle.describe()).typed_search_attributes[PHASE] == terms.PLACING
        hands.let_go(ACQUIRE)
        await stage.result(hands)


async def test_a_second_run_is_a_new_run_of_the_same_workflow(stage: Stage) -> None:
    async with stage.playing(FakeHands()) as hands:
        await stage.place(hands)
        first = await stage.handle(hands).describe()
        await stage.newer(hands)
        await stage.result(hands)
        second = await stage.handle(hands).describe()
    assert first.id == second.id
    assert first.run_id != second.run_id
    assert hands.planned == [1, 2]
    assert second.status is WorkflowExecutionStatus.COMPLETED


async def test_every_wait_for_a_hand_is_bounded(stage: Stage) -> None:
    async with stage.playing(FakeHands()) as hands:
        hands.surplus = True
        await stage.place(hands)
        history = await stage.handle(hands).fetch_history()
    waits = asked(history)
    assert {one.activity_type.name for one in waits} == {ACQUIRE, PLAN_RELEASE, RELEASE, FINISH}
    for one in waits:
        assert timedelta(0) < one.start_to_close_timeout.ToTimedelta() <= terms.REGION_TIMEOUT
        assert one.heartbeat_timeout.ToTimedelta() == terms.HEARTBEAT
        if one.activity_type.name in (ACQUIRE, RELEASE):
            assert one.schedule_to_close_timeout.ToTimedelta() == terms.REGION_PATIENCE


async def current_details(stage: Stage, hands: FakeHands) -> str:
    metadata = await stage.handle(hands).query("__temporal_workflow_metadata", result_type=WorkflowMetadata)
    assert isinstance(metadata, WorkflowMetadata)
    return metadata.current_details
