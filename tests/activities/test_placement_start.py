"""One way in: a placement is started once, whoever asks, and one that runs is told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any
from uuid import uuid4

import pytest
import pytest_asyncio
from temporalio.client import Client, WorkflowExecutionStatus
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.exceptions import WorkflowAlreadyStartedError
from temporalio.service import RPCError, RPCStatusCode

from activities.audit_calls import AuditInput
from activities.audit_start import start_audit
from activities.placement_calls import ClaimChanged, PlacementInput
from activities.placement_start import ATTEMPTS, start_placement
from lab.stack import Stack

CHANGE = ClaimChanged(claim_version=7, why="asked for in a test")


@pytest_asyncio.fixture
async def client(stack: Stack) -> AsyncIterator[Client]:
    yield await Client.connect(stack.temporal_address, data_converter=pydantic_data_converter)


@pytest.fixture
def request_() -> PlacementInput:
    """A workload of its own, in a partition that nobody works on."""
    return PlacementInput(tenant_id="platform", partition_id="idle", workload_id=f"start-{uuid4().hex[:8]}")


async def test_many_callers_at_once_start_one_placement_and_tell_it(
    client: Client, request_: PlacementInput
) -> None:
    ids = await asyncio.gather(*(start_placement(client, request_, CHANGE) for _ in range(12)))
    handle = client.get_workflow_handle(ids[0])
    try:
        assert set(ids) == {f"placement/idle/{request_.workload_id}"}
        assert (await handle.describe()).status is WorkflowExecutionStatus.RUNNING
        events = (await handle.fetch_history()).events
        told = [one for one in events if one.HasField("workflow_execution_signaled_event_attributes")]
        assert len(told) == 11
    finally:
        await handle.terminate("the test is over")


async def test_tenants_with_the_same_names_have_a_placement_and_a_queue_each(
    client: Client, request_: PlacementInput
) -> None:
    """Whoever calls a partition and a workload as another does keeps nothing of theirs from being placed."""
    theirs = request_.model_copy(update={"tenant_id": "others"})
    first, second = [await start_placement(client, one, CHANGE) for one in (theirs, request_)]
    handles = [client.get_workflow_handle(one) for one in (first, second)]
    try:
        described = [await one.describe() for one in handles]
        assert [one.task_queue for one in described] == [
            "partition-tenant/others/idle",
            "partition-idle",
        ]
        histories = [(await one.fetch_history()).events for one in handles]
        for events, asked in zip(histories, (theirs, request_), strict=True):
            assert not any(one.HasField("workflow_execution_signaled_event_attributes") for one in events)
            (began,) = events[0].workflow_execution_started_event_attributes.input.payloads
            assert PlacementInput.model_validate_json(began.data) == asked
    finally:
        for one in handles:
            await one.terminate("the test is over")


async def test_no_worker_of_another_tenant_runs_an_audit(client: Client) -> None:
    """It would read the provider of that tenant, and set the figures that its operators watch."""
    for tenant_id, queue in (("others", "partition-tenant/others/idle"), ("platform", "partition-idle")):
        request = AuditInput(tenant_id=tenant_id, audit_id=uuid4(), partition_id="idle")
        handle = client.get_workflow_handle(await start_audit(client, request, "idle"))
        try:
            assert (await handle.describe()).task_queue == queue
        finally:
            await handle.terminate("the test is over")


async def test_a_placement_that_ended_is_started_again(client: Client, request_: PlacementInput) -> None:
    workflow_id = await start_placement(client, request_, CHANGE)
    first = await client.get_workflow_handle(workflow_id).describe()
    await client.get_workflow_handle(workflow_id).terminate("it ended")

    assert await start_placement(client, request_, CHANGE) == workflow_id

    second = await client.get_workflow_handle(workflow_id).describe()
    assert second.run_id != first.run_id
    assert second.status is WorkflowExecutionStatus.RUNNING
    await client.get_workflow_handle(workflow_id).terminate("the test is over")


class Racing:
    """A client whose placement runs whenever it is started and has ended whenever it is told."""

    def __init__(self, lost: int) -> None:
        self.lost = lost
        self.starts = 0

    async def start_workflow(self, *_: Any, **__: Any) -> None:
        self.starts += 1
        if self.starts <= self.lost:
            raise WorkflowAlreadyStartedError("placement", "Placement")

    def get_workflow_handle(self, _: str) -> Racing:
        return self

    async def signal(self, *_: Any) -> None:
        raise RPCError("workflow execution already completed", RPCStatusCode.NOT_FOUND, b"")


async def test_one_that_ends_while_it_is_told_is_started_instead(request_: PlacementInput) -> None:
    racing: Any = Racing(lost=2)
    await start_placement(racing, request_, CHANGE)
    assert racing.starts == 3


async def test_the_race_is_bounded(request_: PlacementInput) -> None:
    racing: Any = Racing(lost=1_000)
    with pytest.raises(RuntimeError, match=f"{ATTEMPTS} times"):
        await start_placement(racing, request_, CHANGE)
    assert racing.starts == ATTEMPTS
