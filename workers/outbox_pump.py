"""The outbox pump: what transactions wrote is published to JetStream, in order, until it is confirmed.

Postgres is the truth. An event is marked as published only after JetStream acknowledged it; a crash
between the two publishes it again under the same message id, and consumers deduplicate in the store.
Published events are kept for a while: when the stream turns out to have lost what it had acknowledged,
all that is kept is published again, in order, before anything new.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any

import nats
import orjson
import sqlalchemy as sa
import structlog
from prometheus_client import Counter, Gauge
from sqlalchemy.exc import SQLAlchemyError

from store import event_streams, outbox
from store.engine import Connection, Engine
from store.event_streams import Known, Seen
from wire.events import STREAM, envelope
from workers.event_stream import EventStream, Message, StreamReplaced, StreamTerms

BATCH = 200
IDLE_SECONDS = 0.5
TROUBLE_SECONDS = 2.0
PUBLISH_TIMEOUT_SECONDS = 5.0
MEASURE_SECONDS = 1.0
PURGE_EVERY_SECONDS = 600.0
PURGE_BATCH = 1000
PURGE_BATCHES = 100

PUBLISHED = Counter("sco_outbox_published_total", "Events published from the outbox", ["topic"])
REPUBLISHED = Counter(
    "sco_outbox_republished_total", "Events published again because the stream had lost them"
)
WAITING = Gauge("sco_outbox_waiting", "Events in the outbox that are not published yet")
LAG = Gauge("sco_outbox_lag_seconds", "Age of the oldest event in the outbox that is not published yet")
FAILED = Counter("sco_outbox_failures_total", "Rounds of the outbox pump that failed")

log = structlog.get_logger("outbox")


class OutboxPump:
    """Publishes the outbox of one database to one NATS cluster until it is stopped."""

    def __init__(
        self,
        engine: Engine,
        nats_url: str,
        *,
        now: Callable[[], datetime],
        keep: timedelta = timedelta(days=7),
        terms: StreamTerms | None = None,
    ) -> None:
        self._engine = engine
        self._nats_url = nats_url
        self._now = now
        self._keep = keep
        self._terms = terms or StreamTerms()
        self._measured = float("-inf")

    async def run(self, stop: asyncio.Event) -> None:
        """Pump until `stop` is set. NATS or Postgres being away only delays what is published."""
        purging = asyncio.create_task(self._purge())
        try:
            while not stop.is_set():
                try:
                    await self._session(stop)
                except Exception as error:
                    FAILED.inc()
                    log.warning("outbox_pump_failed", problem=str(error), retry_seconds=TROUBLE_SECONDS)
                    await self._measure_alone()
                    await _pause(stop, TROUBLE_SECONDS)
        finally:
            purging.cancel()
            await asyncio.gather(purging, return_exceptions=True)

    async def _session(self, stop: asyncio.Event) -> None:
        client = await nats.connect(
            self._nats_url, name="sco-outbox", connect_timeout=3, max_reconnect_attempts=1
        )
        try:
            stream = EventStream(client, self._terms, timeout_seconds=PUBLISH_TIMEOUT_SECONDS)
            await stream.settle()
            while not stop.is_set():
                if await self.pump_once(stream) < BATCH:
                    await _pause(stop, IDLE_SECONDS)
        finally:
            await client.close()

    async def pump_once(self, stream: EventStream) -> int:
        """Publish one batch in order; returns how many events it had."""
        async with self._engine.begin() as connection:
            if not await outbox.take_turn(connection):
                return 0
            known = await self._known(connection, await stream.look())
            rows = await outbox.to_publish(connection, BATCH, resend_after=known.resend_after)
            if rows:
                await stream.publish([_message(row) for row in rows], known.seen)
                await self._published(connection, known, rows, await stream.look())
            elif known.resend_after is not None:
                await self._caught_up(connection, known)
            await self._measure(connection, known.resend_after, force=len(rows) < BATCH)
        return len(rows)

    async def _known(self, connection: Connection, seen: Seen) -> Known:
        """The stream as it is, remembered; from the start of what is kept where it lost what it had."""
        known = await event_streams.find(connection, STREAM)
        if not event_streams.is_lost(known, seen):
            return Known(seen, known.resend_after if known is not None else None)
        again = Known(seen, resend_after=0)
        await event_streams.remember(connection, STREAM, again)
        kept = await outbox.backlog(connection, resend_after=0)
        log.warning("event_stream_lost", events_to_publish_again=kept.events)
        return again

    async def _published(
        self, connection: Connection, known: Known, rows: Sequence[sa.Row[Any]], seen: Seen
    ) -> None:
        """Mark what is in the stream, unless it is another one by now."""
        if event_streams.is_lost(known, seen):
            raise StreamReplaced
        await outbox.mark_published(connection, [row.sequence for row in rows], self._now())
        after = known.resend_after
        if after is not None:
            after = max(after, rows[-1].sequence)
        await event_streams.remember(connection, STREAM, Known(seen, after))
        for row in rows:
            PUBLISHED.labels(row.topic).inc()
            if row.published_at is not None:
                REPUBLISHED.inc()

    async def _caught_up(self, connection: Connection, known: Known) -> None:
        await event_streams.remember(connection, STREAM, known._replace(resend_after=None))
        log.info("event_stream_caught_up")

    async def _measure(self, connection: Connection, resend_after: int | None, *, force: bool) -> None:
        """Count what waits; during a long way back not after every batch."""
        at = asyncio.get_running_loop().time()
        if force or at - self._measured >= MEASURE_SECONDS:
            self._measured = at
            waits = await outbox.backlog(connection, resend_after)
            WAITING.set(waits.events)
            LAG.set(waits.oldest_seconds)

    async def _measure_alone(self) -> None:
        """What waits grows while nothing is published; without Postgres nobody knows how much it is."""
        try:
            async with self._engine.connect() as connection:
                known = await event_streams.find(connection, STREAM)
                await self._measure(connection, known.resend_after if known else None, force=True)
        except (SQLAlchemyError, OSError):
            WAITING.set(float("nan"))
            LAG.set(float("nan"))

    async def _purge(self) -> None:
        """Forget what was published long ago, in small deletes, now and then, until cancelled."""
        while True:
            try:
                for _ in range(PURGE_BATCHES):
                    if await self._purge_batch() < PURGE_BATCH:
                        break
            except Exception as error:
                log.warning("outbox_purge_failed", problem=str(error))
            await asyncio.sleep(PURGE_EVERY_SECONDS)

    async def _purge_batch(self) -> int:
        async with self._engine.begin() as connection:
            return await outbox.purge(connection, self._now() - self._keep, limit=PURGE_BATCH)


def _message(row: sa.Row[Any]) -> Message:
    body = envelope(
        event_id=row.event_id,
        topic=row.topic,
        key=row.key,
        tenant_id=row.tenant_id,
        sequence=row.sequence,
        payload=row.payload,
        at=row.created_at,
    )
    return Message(row.topic, str(row.event_id), orjson.dumps(body))


async def _pause(stop: asyncio.Event, seconds: float) -> None:
    with suppress(TimeoutError):
        await asyncio.wait_for(stop.wait(), seconds)
