"""A database with pumps, and the stream of events as a reader finds it."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

import nats
import orjson
from nats.js.api import AckPolicy, ConsumerConfig, StreamConfig
from nats.js.errors import BadRequestError, NotFoundError
from prometheus_client import REGISTRY

from domain.ids import event_id
from store import event_streams, outbox
from store.engine import Engine
from tests.estates import TENANT
from tests.running import until_stopped
from tests.streams import fresh_stream
from tests.workers.post_office import PATIENCE_SECONDS, until
from wire.events import STREAM
from wire.payloads import ModelWarmed
from workers.event_stream import StreamTerms
from workers.outbox_pump import OutboxPump

NAME_IN_USE = 10058


def utc_now() -> datetime:
    return datetime.now(UTC)


def metric(name: str) -> float:
    return REGISTRY.get_sample_value(name) or 0.0


class EventPost:
    """One database with its pumps, and what arrived in the stream."""

    def __init__(self, engine: Engine, nats_url: str) -> None:
        self.engine = engine
        self.nats_url = nats_url
        self.written: dict[str, list[UUID]] = defaultdict(list)

    async def write(self, key: str, *, commit: bool = True, model: str = "llama") -> UUID:
        number = len(self.written[key]) + 1
        payload = ModelWarmed(tenant_id=TENANT, pool_id=key, model=model, vram_gb=number)
        once = str(uuid4())
        told = event_id(payload.topic, TENANT, once)
        async with self.engine.connect() as connection:
            await outbox.add_event(connection, payload, once=once)
            if commit:
                await connection.commit()
                self.written[key].append(told)
        return told

    async def write_many(self, number: int, keys: Sequence[str] = ("a", "b", "c")) -> None:
        for place in range(number):
            await self.write(keys[place % len(keys)])

    @asynccontextmanager
    async def pump(self, terms: StreamTerms | None = None) -> AsyncIterator[asyncio.Task[None]]:
        """A pump that runs until it is told to stop, or is cancelled."""
        pump = OutboxPump(self.engine, self.nats_url, now=utc_now, terms=terms)
        async with until_stopped(pump.run, patience_seconds=PATIENCE_SECONDS) as task:
            yield task

    async def emptied(self) -> None:
        """Until nothing waits to be published for the first time."""

        async def nothing_waits() -> bool:
            async with self.engine.connect() as connection:
                return await outbox.waiting(connection) == 0

        await until(nothing_waits)

    async def caught_up(self) -> None:
        """Until the stream of now is the one that is remembered, and everything is in it."""

        async def complete() -> bool:
            async with self.engine.connect() as connection:
                known = await event_streams.find(connection, STREAM)
                waits = await outbox.waiting(connection)
            seen = await self._seen()
            return known is not None and known.resend_after is None and not waits and known.seen == seen

        await until(complete)

    async def _seen(self) -> event_streams.Seen | None:
        with suppress(nats.errors.Error, OSError):
            client = await nats.connect(self.nats_url, allow_reconnect=False, connect_timeout=1)
            try:
                info = await client.jetstream().stream_info(STREAM)
                assert info.created is not None
                return event_streams.Seen(info.created, info.state.last_seq)
            finally:
                await client.close()
        return None

    async def config(self) -> StreamConfig:
        client = await nats.connect(self.nats_url)
        found = (await client.jetstream().stream_info(STREAM)).config
        await client.close()
        return found

    async def messages(self) -> int:
        client = await nats.connect(self.nats_url)
        found = (await client.jetstream().stream_info(STREAM)).state.messages
        await client.close()
        return found

    async def change_stream(self, config: StreamConfig) -> None:
        client = await nats.connect(self.nats_url)
        await client.jetstream().update_stream(config)
        await client.close()

    async def make_stream(self, config: StreamConfig) -> None:
        """As somebody else would, in the place of one that is there; a pump may be faster, so again."""
        client = await nats.connect(self.nats_url)

        async def made() -> bool:
            try:
                await fresh_stream(client.jetstream(), config)
            except BadRequestError as error:
                if error.err_code != NAME_IN_USE:
                    raise
                return False
            return True

        await until(made)
        await client.close()

    async def forget_stream(self) -> None:
        client = await nats.connect(self.nats_url)
        with suppress(NotFoundError):
            await client.jetstream().delete_stream(STREAM)
        await client.close()

    async def arrived(self) -> list[dict[str, Any]]:
        """Every message of the stream, in its order."""
        client = await nats.connect(self.nats_url)
        try:
            stream = client.jetstream()
            left = (await stream.stream_info(STREAM)).state.messages
            pull = await stream.pull_subscribe(
                "compute-pools.>", config=ConsumerConfig(ack_policy=AckPolicy.NONE)
            )
            found: list[dict[str, Any]] = []
            while left > len(found):
                found += [orjson.loads(one.data) for one in await pull.fetch(200, timeout=5)]
            return found
        finally:
            await client.close()

    async def all_arrived_once_in_order(self) -> None:
        found = defaultdict(list)
        for one in await self.arrived():
            found[one["subject"]].append(UUID(one["id"]))
        assert {key: found[key] for key in self.written} == self.written
