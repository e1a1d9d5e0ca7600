"""The outbox pump: what transactions wrote is published to JetStream, in order, until it is confirmed.

Postgres is the truth. An event is marked as published only after JetStream acknowledged it; a crash
between the two publishes it again under the same message id, and consumers deduplicate in the store.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime

import nats
import orjson
import structlog
from nats.aio.client import Client as NatsClient
from nats.js import JetStreamContext
from nats.js.api import StreamConfig
from nats.js.errors import NotFoundError
from prometheus_client import Counter, Gauge
from sqlalchemy.exc import SQLAlchemyError

from store import outbox
from store.engine import Engine
from wire.events import STREAM, STREAM_SUBJECTS, envelope

BATCH = 200
IDLE_SECONDS = 0.5
TROUBLE_SECONDS = 2.0
PUBLISH_TIMEOUT_SECONDS = 5.0

PUBLISHED = Counter("sco_outbox_published_total", "Events published from the outbox", ["topic"])
WAITING = Gauge("sco_outbox_waiting", "Events in the outbox that are not published yet")
FAILED = Counter("sco_outbox_failures_total", "Rounds of the outbox pump that failed")

log = structlog.get_logger("outbox")


class OutboxPump:
    """Publishes the outbox of one database to one NATS cluster until it is stopped."""

    def __init__(self, engine: Engine, nats_url: str, *, now: Callable[[], datetime]) -> None:
        self._engine = engine
        self._nats_url = nats_url
        self._now = now

    async def run(self, stop: asyncio.Event) -> None:
        """Pump until `stop` is set. NATS or Postgres being away only delays what is published."""
        while not stop.is_set():
            try:
                await self._session(stop)
            except Exception as error:
                FAILED.inc()
                log.warning("outbox_pump_failed", problem=str(error), retry_seconds=TROUBLE_SECONDS)
                await self._count_waiting()
                await _pause(stop, TROUBLE_SECONDS)

    async def _count_waiting(self) -> None:
        """What waits grows while nothing is published; without Postgres nobody knows how much it is."""
        try:
            async with self._engine.connect() as connection:
                WAITING.set(await outbox.waiting(connection))
        except (SQLAlchemyError, OSError):
            WAITING.set(float("nan"))

    async def _session(self, stop: asyncio.Event) -> None:
        client = await nats.connect(
            self._nats_url, name="sco-outbox", connect_timeout=3, max_reconnect_attempts=1
        )
        try:
            stream = await self._stream(client)
            while not stop.is_set():
                if await self.pump_once(stream) < BATCH:
                    await _pause(stop, IDLE_SECONDS)
        finally:
            await client.close()

    async def _stream(self, client: NatsClient) -> JetStreamContext:
        """JetStream with our stream in it, also after its store was lost."""
        stream = client.jetstream(timeout=PUBLISH_TIMEOUT_SECONDS)
        try:
            await stream.stream_info(STREAM)
        except NotFoundError:
            await stream.add_stream(StreamConfig(name=STREAM, subjects=list(STREAM_SUBJECTS)))
        return stream

    async def pump_once(self, stream: JetStreamContext) -> int:
        """Publish one batch in order; returns how many events it had."""
        async with self._engine.begin() as connection:
            rows = await outbox.unpublished(connection, BATCH)
            for row in rows:
                body = envelope(
                    event_id=row.event_id,
                    topic=row.topic,
                    key=row.key,
                    tenant_id=row.tenant_id,
                    payload=row.payload,
                    at=row.created_at,
                )
                headers = {"Nats-Msg-Id": str(row.event_id), "Content-Type": "application/cloudevents+json"}
                await stream.publish(row.topic, orjson.dumps(body), headers=headers)
                PUBLISHED.labels(row.topic).inc()
            await outbox.mark_published(connection, [row.sequence for row in rows], self._now())
            WAITING.set(await outbox.waiting(connection))
        return len(rows)


async def _pause(stop: asyncio.Event, seconds: float) -> None:
    try:
        await asyncio.wait_for(stop.wait(), seconds)
    except TimeoutError:
        return
