"""A node bus with nodes that tell of themselves on it, and the history writer that reads it."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

import nats
import sqlalchemy as sa
from nats.aio.client import Client as NatsClient
from nats.aio.msg import Msg
from nats.errors import Error as NatsError
from nats.js.errors import NotFoundError

from domain.lifecycle import Event
from lab.relay.bus import NodeBus
from lab.stack.nats import taken_in
from store.engine import Engine
from tests.running import until_stopped
from tests.workers.post_office import until
from wire.lifecycle import LifecycleEvent, Receipt, envelope
from wire.node import STREAM, inbox_prefix, lifecycle_subject, receipt_subject
from workers.history_writer import HistoryWriter

HALL = "eu-north-h1"


def letter(node: str, event: Event, **said: Any) -> bytes:
    """An event as a node sends it; what it says of tenant, pool and workload is not true."""
    known = {name: value for name, value in event._asdict().items() if name != "source"}
    claimed = dict.fromkeys(("tenant_id", "region", "pool_id", "partition_id", "workload_id"), "another's")
    fields = known | claimed | {"hall": HALL, "instance_id": node} | said
    return json.dumps(envelope(LifecycleEvent.model_validate(fields))).encode()


class Node:
    """One node on the bus, with nothing but its own credentials."""

    def __init__(self, name: str, client: NatsClient) -> None:
        self.name = name
        self.client = client
        self.receipts: list[UUID] = []

    async def tell(self, *bodies: bytes) -> None:
        """Hand over until JetStream has it. Without message ids, so that the stream keeps repetitions."""
        for body in bodies:
            await self.client.jetstream().publish(lifecycle_subject(HALL, self.name), body)

    async def events(self, events: Iterable[Event]) -> None:
        await self.tell(*(letter(self.name, one) for one in events))

    async def _heard(self, message: Msg) -> None:
        self.receipts.extend(Receipt.model_validate_json(message.data).event_ids)

    async def has_receipts(self, events: Iterable[Event], times: int = 1) -> None:
        wanted = [one.event_id for one in events]

        async def complete() -> bool:
            return all(self.receipts.count(one) >= times for one in wanted)

        await until(complete)


class NodePost:
    """One bus and one database."""

    def __init__(self, engine: Engine, writer_engine: Engine, bus: NodeBus, folder: Path) -> None:
        self.engine = engine
        self.writer_engine = writer_engine
        self.bus = bus
        self.folder = folder

    def new_writer(self) -> HistoryWriter:
        from tests.domain.drains import AT

        return HistoryWriter(
            self.writer_engine, self.bus.url, now=lambda: AT, credentials=self.bus.admission.history_file()
        )

    @asynccontextmanager
    async def writer(self) -> AsyncIterator[asyncio.Task[None]]:
        """A writer that has made its stream, until it is told to stop or is cancelled."""
        async with until_stopped(self.new_writer().run, patience_seconds=40) as task:
            await until(self.has_stream)
            yield task

    @asynccontextmanager
    async def node(self, name: str) -> AsyncIterator[Node]:
        path = self.folder / f"{name}.creds"
        path.write_text(self.bus.admission.agent_credentials(HALL, name))
        client = await nats.connect(
            self.bus.url,
            user_credentials=str(path),
            inbox_prefix=inbox_prefix(name).encode(),
            error_cb=_quiet,
            reconnect_time_wait=0.1,
            max_reconnect_attempts=-1,
        )
        node = Node(name, client)
        await client.subscribe(receipt_subject(HALL, name), cb=node._heard)
        await taken_in(client)
        try:
            yield node
        finally:
            await client.close()

    @asynccontextmanager
    async def history(self) -> AsyncIterator[NatsClient]:
        """A client with the rights of the history."""
        client = await nats.connect(
            self.bus.url,
            user_credentials=str(self.bus.admission.history_file()),
            inbox_prefix=inbox_prefix("history").encode(),
            error_cb=_quiet,
            max_reconnect_attempts=0,
        )
        try:
            yield client
        finally:
            await client.close()

    async def has_stream(self) -> bool:
        try:
            async with self.history() as client:
                seen = await client.jetstream().consumer_info(STREAM, "history")
                return seen is not None
        except (NotFoundError, NatsError, OSError):
            return False

    async def emptied(self) -> None:
        """Until every message was delivered and confirmed or thrown away."""

        async def idle() -> bool:
            async with self.history() as client:
                seen = await client.jetstream().consumer_info(STREAM, "history")
                return not seen.num_pending and not seen.num_ack_pending

        await until(idle)

    async def forget_stream(self) -> None:
        async with self.history() as client:
            await client.jetstream().delete_stream(STREAM)

    def lose_store(self) -> None:
        """The machine of the bus is lost with its disk, and another takes its place."""
        self.bus.kill()
        shutil.rmtree(self.folder / "bus" / "store")
        self.bus.start()

    async def value(self, query: str) -> Any:
        async with self.engine.begin() as connection:
            return (await connection.execute(sa.text(query))).scalar()

    async def outcomes(self) -> list[str]:
        return await self.value("SELECT array_agg(outcome ORDER BY at) FROM node_drains") or []


async def _quiet(error: Exception) -> None:
    """Trouble of a connection shows in what a test waits for."""
