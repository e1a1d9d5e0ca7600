"""A stream of notifications, an intake that reads it, and a workflow that counts what it is asked."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import nats
from nats.js import JetStreamContext
from nats.js.errors import NotFoundError
from temporalio import workflow
from temporalio.client import Client, WorkflowHandle
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from activities.reconcile_calls import LOOK_NOW, LookNow
from tests.activities.deciding import Placer, halls
from tests.estates import TENANT, Estate
from tests.running import until_stopped
from tests.wire.messages import SUBJECT, plain
from wire.notifications import STREAM
from workers.notification_intake import NotificationIntake

PATIENCE_SECONDS = 40
QUEUE = "looking"


@workflow.defn(name="Lookout")
class Lookout:
    """Stands where reconcile stands: takes its signal and remembers it."""

    def __init__(self) -> None:
        self._looks: list[str | None] = []

    @workflow.run
    async def run(self) -> None:
        await workflow.wait_condition(lambda: False)

    @workflow.signal(name=LOOK_NOW)
    def look_now(self, look: LookNow | None = None) -> None:
        self._looks.append(look.region if look else None)

    @workflow.query
    def looks(self) -> list[str | None]:
        return self._looks


class PostOffice:
    """One database, one stream, one lookout for each partition that a test wants."""

    def __init__(self, estate: Estate, nats_url: str, client: Client) -> None:
        self.estate = estate
        self.nats_url = nats_url
        self.client = client
        self.batches: list[str] = []

    async def place(self, units: int = 6) -> list[str]:
        """Place a workload whose servers run; returns their ids."""
        await self.estate.open(halls(), free=400)
        await self.estate.workload()
        placer = Placer(self.estate)
        await placer.place(units)
        await self.estate.rows("UPDATE instances SET state = 'building', server_id = gen_random_uuid()::text")
        await self.estate.rows("UPDATE instances SET state = 'active'")
        rows = await self.estate.rows("SELECT server_id, batch_key FROM instances ORDER BY slot_key")
        self.batches = [batch for _, batch in rows]
        return [server for server, _ in rows]

    @asynccontextmanager
    async def intake(self) -> AsyncIterator[asyncio.Task[None]]:
        """An intake that runs until it is told to stop, or is cancelled."""
        async with until_stopped(self.new_intake().run, patience_seconds=PATIENCE_SECONDS) as task:
            yield task

    def new_intake(self) -> NotificationIntake:
        return NotificationIntake(
            self.estate.engine, self.client, self.nats_url, tenant_id=TENANT, now=self.estate.clock
        )

    async def publish(self, *bodies: bytes | dict[str, Any], subject: str = SUBJECT) -> None:
        """Publish without message ids, so that the stream keeps every repetition."""
        client = await nats.connect(self.nats_url)
        stream = client.jetstream()
        try:
            for body in bodies:
                await stream.publish(subject, body if isinstance(body, bytes) else plain(body))
        finally:
            await client.close()

    async def stream_is_there(self) -> None:
        await until(lambda: self._info("messages"))

    async def emptied(self) -> None:
        """Until every message was delivered and confirmed or thrown away."""

        async def idle() -> bool:
            pending = await self._info("unconfirmed")
            return pending == 0

        await until(idle)

    async def _info(self, what: str) -> int | None:
        client = await nats.connect(self.nats_url)
        stream: JetStreamContext = client.jetstream()
        try:
            if what == "messages":
                return (await stream.stream_info(STREAM)).state.messages + 1
            seen = await stream.consumer_info(STREAM, f"notifications-{TENANT}")
            return (seen.num_pending or 0) + (seen.num_ack_pending or 0)
        except NotFoundError:
            return None
        finally:
            await client.close()

    async def forget_stream(self) -> None:
        client = await nats.connect(self.nats_url)
        try:
            await client.jetstream().delete_stream(STREAM)
        except NotFoundError:
            return
        finally:
            await client.close()

    async def forget_consumer(self) -> None:
        client = await nats.connect(self.nats_url)
        await client.jetstream().delete_consumer(STREAM, f"notifications-{TENANT}")
        await client.close()

    async def kept(self) -> list[tuple[str, str]]:
        """Kind and server of every notification that is kept."""
        rows = await self.estate.rows("SELECT kind, server_id FROM provider_notifications ORDER BY 1, 2")
        return [(kind, server) for kind, server in rows]

    @asynccontextmanager
    async def lookout(self, *partitions: str) -> AsyncIterator[list[WorkflowHandle[Lookout, None]]]:
        async with Worker(
            self.client, task_queue=QUEUE, workflows=[Lookout], workflow_runner=UnsandboxedWorkflowRunner()
        ):
            handles = [
                await self.client.start_workflow(Lookout.run, id=f"reconcile/{one}", task_queue=QUEUE)
                for one in partitions
            ]
            try:
                yield handles
            finally:
                for handle in handles:
                    await handle.terminate()


async def looks(handle: WorkflowHandle[Lookout, None]) -> list[str | None]:
    return await handle.query(Lookout.looks)


async def until(condition: Callable[[], Awaitable[object]]) -> None:
    """Until an asynchronous condition holds; fails when it takes too long."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not await condition():  # noqa: ASYNC110 - what is waited for is in another process
            await asyncio.sleep(0.02)


async def temporal(address: str) -> Client:
    return await Client.connect(address, data_converter=pydantic_data_converter)
