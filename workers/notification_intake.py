"""The notification intake: what the provider tells by itself is kept once, and has reconcile look at once.

It only makes things faster. Nothing is launched, deleted or written off because of a notification: they
come twice, late, in any order or not at all, so reconcile looks at the provider's list whatever was told.
"""

from __future__ import annotations

import asyncio
from collections import Counter as Tally
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

import structlog
from nats.aio.client import Client as NatsClient
from nats.aio.msg import Msg
from nats.js.api import ConsumerConfig, StreamConfig
from prometheus_client import Counter, Histogram
from sqlalchemy.exc import DataError, IntegrityError
from temporalio.client import Client

from store import notifications
from store.engine import Engine
from store.notifications import Kept
from wire.notifications import (
    STREAM,
    STREAM_MAX_AGE,
    STREAM_MAX_BYTES,
    STREAM_SUBJECTS,
    EventKind,
    Notification,
    Refusal,
    RefusedAs,
    parse_notification,
)
from workers.looks import Looks
from workers.stream_reading import TROUBLE_SECONDS, Entry, Source, StreamReader, Tell

# Longer than the slowest commit; what is not confirmed by then is delivered again.
ACK_WAIT_SECONDS = 30.0
KEEP = timedelta(days=30)
PURGE_EVERY_SECONDS = 600.0
PURGE_BATCH = 1000
PURGE_BATCHES = 100

RECEIVED = Counter(
    "sco_provider_notifications_total", "Notifications of the provider by what they mean", ["region", "kind"]
)
DUPLICATE = Counter(
    "sco_provider_notifications_duplicate_total", "Notifications that were kept before", ["region"]
)
REFUSED = Counter("sco_provider_notifications_refused_total", "Messages that were thrown away", ["reason"])
FAILED = Counter("sco_notification_intake_failures_total", "Rounds of the notification intake that failed")
LAG = Histogram(
    "sco_provider_notification_lag_seconds",
    "Time from the sending of a notification to its commit",
    ["region"],
    buckets=(0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 3600),
)

log = structlog.get_logger("notifications")
Told = tuple[Msg, Notification]


class NotificationIntake:
    """Keeps the notifications of all regions for one tenant until it is stopped.

    Every worker process may run one: a message goes to one of them.
    """

    def __init__(
        self, engine: Engine, client: Client, nats_url: str, *, tenant_id: str, now: Callable[[], datetime]
    ) -> None:
        self._engine = engine
        self._nats_url = nats_url
        self._tenant_id = tenant_id
        self._now = now
        self._looks = Looks(client, tenant_id)

    async def run(self, stop: asyncio.Event) -> None:
        """Take what comes until `stop` is set. Without NATS or Postgres it waits, and hurts nothing else."""
        helpers = [asyncio.create_task(self._looks.run()), asyncio.create_task(self._purge())]
        source = Source(
            _stream(), f"notifications-{self._tenant_id}", ConsumerConfig(ack_wait=ACK_WAIT_SECONDS)
        )
        tell = Tell(FAILED.inc, _in_trouble, _recovered)
        try:
            await StreamReader(Entry(self._nats_url, "sco-notifications"), source, self._take, tell).run(stop)
        finally:
            for helper in helpers:
                helper.cancel()
            await asyncio.gather(*helpers, return_exceptions=True)

    async def _take(self, client: NatsClient, messages: Sequence[Msg]) -> None:
        told: list[Told] = []
        refused: list[tuple[Msg, Refusal]] = []
        for message in messages:
            read = parse_notification(message.subject, message.data)
            if isinstance(read, Refusal):
                refused.append((message, read))
            else:
                told.append((message, read))
        await _refuse(refused)
        await self._keep(told)

    async def _keep(self, told: Sequence[Told]) -> None:
        """Keep and confirm. What the database will never take is found one by one and thrown away."""
        try:
            await self._commit(told)
        except (DataError, IntegrityError) as error:
            if len(told) == 1:
                await _refuse([(told[0][0], Refusal(RefusedAs.STORE, str(error.orig)[:200]))])
                return
            for one in told:
                await self._keep([one])
            return
        for message, _ in told:
            await message.ack()

    async def _commit(self, told: Sequence[Told]) -> None:
        """One transaction. A message that comes again may have died before its look was asked for."""
        at = self._now()
        async with self._engine.begin() as connection:
            kept = await notifications.keep(connection, self._tenant_id, [one for _, one in told], at)
            fresh = [
                one
                for message, one in told
                if one.message_id in kept.new or message.metadata.num_delivered > 1
            ]
            places = await notifications.unasked(connection, self._tenant_id, fresh)
        self._looks.ask(places)
        _count([one for _, one in told], kept, self._now())

    async def _purge(self) -> None:
        """Forget what is old, in small deletes, now and then, until cancelled."""
        while True:
            try:
                for _ in range(PURGE_BATCHES):
                    if await self._purge_batch() < PURGE_BATCH:
                        break
            except Exception as error:
                log.warning("notification_purge_failed", problem=str(error))
            await asyncio.sleep(PURGE_EVERY_SECONDS)

    async def _purge_batch(self) -> int:
        async with self._engine.begin() as connection:
            before = self._now() - KEEP
            return await notifications.purge(connection, self._tenant_id, before, limit=PURGE_BATCH)


def _stream() -> StreamConfig:
    return StreamConfig(
        name=STREAM,
        subjects=list(STREAM_SUBJECTS),
        max_age=STREAM_MAX_AGE.total_seconds(),
        max_bytes=STREAM_MAX_BYTES,
    )


def _in_trouble(problem: str) -> None:
    log.warning("notification_intake_failed", problem=problem, retry_seconds=TROUBLE_SECONDS)


def _recovered(problem: str) -> None:
    log.info("notification_intake_recovered", after=problem)


def _count(told: Sequence[Notification], kept: Kept, at: datetime) -> None:
    new = set(kept.new)
    for one in told:
        if one.message_id in new:
            new.discard(one.message_id)
            RECEIVED.labels(one.region, one.kind).inc()
            LAG.labels(one.region).observe(max(0.0, (at - one.emitted_at).total_seconds()))
        elif one.message_id in kept.all:
            DUPLICATE.labels(one.region).inc()
        else:
            RECEIVED.labels(one.region, EventKind.OTHER).inc()


async def _refuse(refused: Sequence[tuple[Msg, Refusal]]) -> None:
    """Throw away what can never be used, so that it does not come again; one log line for each reason."""
    for message, refusal in refused:
        REFUSED.labels(refusal.reason).inc()
        await (message.ack() if refusal.reason is RefusedAs.UNRELATED else message.term())
    tally = Tally(refusal.reason for _, refusal in refused)
    details = {refusal.reason: refusal.detail for _, refusal in refused}
    for reason, messages in sorted(tally.items()):
        if reason is not RefusedAs.UNRELATED:
            log.warning("notifications_refused", reason=reason, messages=messages, example=details[reason])
