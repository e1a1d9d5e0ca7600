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
