"""Every partition of a worker is reconciled, whoever ends what."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from uuid import uuid4

import pytest
import pytest_asyncio
from pydantic import SecretStr
from temporalio.client import Client, WorkflowExecutionStatus, WorkflowHandle
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.service import RPCError, RPCStatusCode

from activities.reconcile_calls import WATCH_REGIONS, WatchRegions
from domain.ids import reconcile_workflow_id
from lab.stack import Stack
from tests.running import until_stopped
from workers import promises
from workers.promises import keep_reconciling
from workers.settings import WorkerSettings

PATIENCE_SECONDS = 20.0


@pytest_asyncio.fixture
async def client(stack: Stack) -> Client:
    return await Client.connect(stack.temporal_address, data_converter=pydantic_data_converter)


@pytest.fixture
def settings(stack: Stack) -> WorkerSettings:
    """A worker of two partitions that nobody else has."""
    tag = uuid4().hex[:8]
    return WorkerSettings(
        database_url=SecretStr("postgresql://nobody@127.0.0.1/none"),
        temporal_address=stack.temporal_address,
        partitions=(f"k8s-{tag}", f"slurm-{tag}"),
        regions=("north", "south"),
    )


@asynccontextmanager
async def keeping(client: Client, settings: WorkerSettings) -> AsyncIterator[None]:
    stop = asyncio.Event()
    task = asyncio.create_task(keep_reconciling(client, settings, stop))
    try:
        yield
    finally:
        stop.set()
        await asyncio.wait_for(task, PATIENCE_SECONDS)
        for partition_id in settings.partitions:
            await client.get_workflow_handle(
                reconcile_workflow_id(settings.tenant_id, partition_id)
            ).terminate()


async def running(handle: WorkflowHandle[object, object]) -> str:
    """The run that is under way, once there is one."""
    for _ in range(int(PATIENCE_SECONDS / 0.05)):
        try:
            described = await handle.describe()
        except RPCError:
            described = None
        if described is not None and described.status is WorkflowExecutionStatus.RUNNING:
            return str(described.run_id)
        await asyncio.sleep(0.05)
    raise AssertionError(f"{handle.id} does not run")


async def told(handle: WorkflowHandle[object, object]) -> list[str]:
    """The bodies of the signals that a run got."""
    history = await handle.fetch_history()
    return [
        each.workflow_execution_signaled_event_attributes.input.payloads[0].data.decode()
        for each in history.events
        if each.HasField("workflow_execution_signaled_event_attributes")
        and each.workflow_execution_signaled_event_attributes.signal_name == WATCH_REGIONS
    ]


async def test_every_partition_is_reconciled_in_every_region(
    client: Client, settings: WorkerSettings
) -> None:
    async with keeping(client, settings):
        for partition_id in settings.partitions:
            handle = client.get_workflow_handle(reconcile_workflow_id(settings.tenant_id, partition_id))
            await running(handle)
            described = await handle.describe()
            assert described.workflow_type == "Reconcile"
            assert described.task_queue == f"partition-{partition_id}"
            assert await described.static_summary() == (
                f"Compare the fleet of {partition_id} with what exists"
            )


async def test_a_second_worker_joins_and_tells_of_its_regions(
    client: Client, settings: WorkerSettings
) -> None:
    other = settings.model_copy(update={"regions": ("west",)})
    handle = client.get_workflow_handle(reconcile_workflow_id(settings.tenant_id, settings.partitions[0]))
    async with keeping(client, settings):
        run = await running(handle)
        join = partial(keep_reconciling, client, other)
        async with until_stopped(join, patience_seconds=PATIENCE_SECONDS):
            for _ in range(int(PATIENCE_SECONDS / 0.05)):
                if len(await told(handle)) == 2:
                    break
                await asyncio.sleep(0.05)
        assert await told(handle) == [
            WatchRegions(regions=("north", "south")).model_dump_json(),
            WatchRegions(regions=("west",)).model_dump_json(),
        ]
        assert await running(handle) == run


async def test_one_that_a_person_ends_is_started_again(
    client: Client, settings: WorkerSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(promises, "ENSURE_EVERY_SECONDS", 0.1)
    handle = client.get_workflow_handle(reconcile_workflow_id(settings.tenant_id, settings.partitions[0]))
    async with keeping(client, settings):
        first = await running(handle)
        await handle.terminate("a person")
        for _ in range(int(PATIENCE_SECONDS / 0.05)):
            if await running(handle) != first:
                return
            await asyncio.sleep(0.05)
        raise AssertionError("it was not started again")


async def test_a_temporal_that_refuses_is_asked_again(
    client: Client, settings: WorkerSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(promises, "ENSURE_EVERY_SECONDS", 0.05)
    refusals = [3]
    start = promises._ensure

    async def refusing(*arguments: object, **options: object) -> None:
        if refusals[0]:
            refusals[0] -= 1
            raise RPCError("away", RPCStatusCode.UNAVAILABLE, b"")
        await start(*arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(promises, "_ensure", refusing)
    async with keeping(client, settings):
        for partition_id in settings.partitions:
            handle = client.get_workflow_handle(reconcile_workflow_id(settings.tenant_id, partition_id))
            await running(handle)
            assert len(await told(handle)) == 1
