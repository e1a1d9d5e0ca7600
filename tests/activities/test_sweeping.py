"""The sweep: what was left undone is started again, and what runs is only told."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import suppress
from typing import cast

import pytest_asyncio
from temporalio.client import Client, WorkflowExecutionStatus
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.service import RPCError
from temporalio.testing import ActivityEnvironment

from activities.placement_calls import SweepRequest, Swept
from activities.sweeping import SweepingActivities
from lab.stack import Stack
from tests.activities.deciding import Placer, halls
from tests.estates import PARTITION, TENANT, Estate, contract

NAMES = ("sweep-alpha", "sweep-beta", "sweep-calm")


@pytest_asyncio.fixture
async def client(stack: Stack) -> AsyncIterator[Client]:
    """A client whose placements nobody works on; they are ended after the test."""
    opened = await Client.connect(stack.temporal_address, data_converter=pydantic_data_converter)
    yield opened
    for name in NAMES[:2]:
        with suppress(RPCError):
            await opened.get_workflow_handle(f"placement/{PARTITION}/{name}").terminate("the test is over")


async def sweep(estate: Estate, client: Client, limit: int = 10) -> Swept:
    hands = SweepingActivities(estate.engine, client)
    request = SweepRequest(tenant_id=TENANT, partition_id=PARTITION, limit=limit)
    return cast(Swept, await ActivityEnvironment().run(hands.sweep_placements, request))


async def test_workloads_in_need_are_started_once_and_told_again(estate: Estate, client: Client) -> None:
    await estate.open(halls(), free=20)
    placer = Placer(estate)
    for name in NAMES:
        await estate.workload(name, contract())
        await placer.place(3, name)
    await placer.run()
    await estate.rows("UPDATE workloads SET phase = 'placed'")
    await estate.claim(5, NAMES[0])
    await estate.rows("UPDATE pools SET state = 'draining' WHERE pool_id = 'eu-north-h1-p1'")
    await estate.rows(
        "UPDATE reservations SET units = 0 WHERE workload_id IN (:a, :c)", a=NAMES[0], c=NAMES[2]
    )
    await estate.rows(
        "UPDATE workloads SET shortfall_units = 3, phase = 'shortfall' WHERE workload_id = :c", c=NAMES[2]
    )
    await estate.rows("UPDATE workloads SET updated_at = now() - interval '1 minute'")
    expected = {
        NAMES[0]: "its newest claim is not planned",
        NAMES[1]: "it holds units in a pool that may hold none",
    }
    assert (await sweep(estate, client, limit=1)).poked == {NAMES[0]: expected[NAMES[0]]}
    assert (await sweep(estate, client)).poked == expected
    runs = [await client.get_workflow_handle(f"placement/{PARTITION}/{one}").describe() for one in NAMES[:2]]
    assert [one.status for one in runs] == [WorkflowExecutionStatus.RUNNING] * 2
    assert [one.workflow_type for one in runs] == ["Placement"] * 2
    assert [one.task_queue for one in runs] == [f"partition-{PARTITION}"] * 2
    history = await client.get_workflow_handle(runs[0].id, run_id=runs[0].run_id).fetch_history()
    signals = [one for one in history.events if one.HasField("workflow_execution_signaled_event_attributes")]
    assert len(signals) == 1
