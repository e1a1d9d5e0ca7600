"""The history writer: what nodes tell on the node bus is kept once, and each node is told what is kept.

JetStream is transport: its store may be lost at any time. A node sends an event again until its receipt has
come, so the writer confirms a message after its commit, and gives receipts for repetitions too.
"""

from __future__ import annotations

import asyncio
from collections import Counter as Tally
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

import structlog
from nats.aio.client import Client as NatsClient
from nats.aio.msg import Msg
from nats.js.api import ConsumerConfig, StreamConfig
from prometheus_client import Counter, Histogram
from sqlalchemy.exc import DataError, IntegrityError

from domain.lifecycle import Outcome
from store import lifecycle
from store.engine import Engine
from store.lifecycle import Kept
from wire.lifecycle import Receipt
from wire.node import STREAM, STREAM_MAX_AGE, STREAM_SUBJECTS, inbox_prefix, receipt_subject
from workers.lifecycle_letters import Letter, Refusal, RefusedAs, read_letter
from workers.stream_reading import TROUBLE_SECONDS, Entry, Source, StreamReader, Tell

DURABLE = "history"
# Longer than the slowest commit; what is not confirmed by then is delivered again.
ACK_WAIT_SECONDS = 60.0
# What a whole hall tells at once, while none of it can be kept yet.
MOST_UNCONFIRMED = 50_000
STREAM_MAX_BYTES = 1024**3
# One node cannot push what others said out of the stream.
STREAM_MAX_OF_ONE = 1_000
# Shorter than a node waits for a receipt: what it sends again is to come through.
DUPLICATES_SECONDS = 20.0
# A server may speak before the record of its creation is written, hardly for longer than this.
UNKNOWN_SECONDS = 10.0
UNKNOWN_TRIES = 12

KEPT = Counter("sco_lifecycle_events_total", "Lifecycle events that were kept, each once", ["type"])
DUPLICATE = Counter("sco_lifecycle_events_duplicate_total", "Lifecycle events that were kept before")
REFUSED = Counter("sco_lifecycle_events_refused_total", "Messages of nodes that were thrown away", ["reason"])
WAITING = Counter(
    "sco_lifecycle_events_postponed_total", "Messages put off because their instance is not known yet"
)
DRAINS = Counter("sco_drains_total", "Drains of nodes by how they ended", ["outcome", "cause"])
FAILED = Counter("sco_history_writer_failures_total", "Rounds of the history writer that failed")
TO_HISTORY = Histogram(
    "sco_event_to_history_seconds",
    "Time from a lifecycle event, by the node's clock, to its commit",
    buckets=(0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 3600, 86400),
)

log = structlog.get_logger("history")


class Told(NamedTuple):
    """One message and what it says."""

    message: Msg
    letter: Letter

    @property
    def key(self) -> tuple[str, UUID]:
        return self.letter.arrival.instance_id, self.letter.arrival.event.event_id


class HistoryWriter:
    """Writes what comes on one node bus until it is stopped.

    Every worker process may run one: a message goes to one of them.
    """

    def __init__(
        self,
        engine: Engine,
        bus_url: str,
        *,
        now: Callable[[], datetime],
        credentials: Path | None = None,
        replicas: int = 1,
    ) -> None:
        """`credentials` is a NATS credentials file; `replicas` counts the servers that keep the stream."""
        self._engine = engine
        self._bus_url = bus_url
        self._now = now
        self._credentials = credentials
        self._replicas = replicas

    async def run(self, stop: asyncio.Event) -> None:
        """Write what comes until `stop` is set. Without the bus or Postgres it waits."""
        entry = Entry(self._bus_url, "sco-history", self._credentials, inbox_prefix(DURABLE))
        consumer = ConsumerConfig(ack_wait=ACK_WAIT_SECONDS, max_ack_pending=MOST_UNCONFIRMED)
        tell = Tell(FAILED.inc, _in_trouble, _recovered)
        await StreamReader(entry, Source(self._stream(), DURABLE, consumer), self._take, tell).run(stop)

    def _stream(self) -> StreamConfig:
        return StreamConfig(
            name=STREAM,
            description="What nodes tell of themselves, until it is in the history",
            subjects=list(STREAM_SUBJECTS),
            max_age=STREAM_MAX_AGE.total_seconds(),
            max_bytes=STREAM_MAX_BYTES,
            max_msgs_per_subject=STREAM_MAX_OF_ONE,
            duplicate_window=DUPLICATES_SECONDS,
            num_replicas=self._replicas,
        )

    async def _take(self, client: NatsClient, messages: Sequence[Msg]) -> None:
        told: list[Told] = []
        refused: list[tuple[Msg, Refusal]] = []
        for message in messages:
            read = read_letter(message.subject, message.data)
            if isinstance(read, Refusal):
                refused.append((message, read))
            else:
                told.append(Told(message, read))
        await _refuse(refused)
        await self._keep(client, told)

    async def _keep(self, client: NatsClient, told: Sequence[Told]) -> None:
        """Keep, confirm and give receipts. What the database will never take is found one by one."""
        try:
            kept, unknown = await self._commit(told)
        except (DataError, IntegrityError) as error:
            if len(told) == 1:
                await _refuse([(told[0].message, Refusal(RefusedAs.STORE, str(error.orig)[:200]))])
                return
            for one in told:
                await self._keep(client, [one])
            return
        await _postpone([one for one in told if one.letter.arrival.instance_id in unknown])
        full = [one for one in told if one.key not in kept.all and one.key[0] not in unknown]
        why = Refusal(RefusedAs.TOO_MANY, f"more than {lifecycle.MOST_EVENTS} events of one instance")
        await _refuse([(one.message, why) for one in full])
        done = [one for one in told if one.key in kept.all]
        for one in done:
            await one.message.ack()
        await _give_receipts(client, done)

    async def _commit(self, told: Sequence[Told]) -> tuple[Kept, frozenset[str]]:
        """One transaction; answers what is kept now, and the instances that are not known."""
        arrivals = [one.letter.arrival for one in told]
        named = {one.instance_id for one in arrivals}
        async with self._engine.begin() as connection:
            owned = await lifecycle.owners(connection, named)
            kept = await lifecycle.keep(connection, arrivals, owned, self._now())
        _count(told, kept, self._now())
        return kept, frozenset(named - owned.keys())


def _in_trouble(problem: str) -> None:
    log.warning("history_writer_failed", problem=problem, retry_seconds=TROUBLE_SECONDS)


def _recovered(problem: str) -> None:
    log.info("history_writer_recovered", after=problem)


def _count(told: Sequence[Told], kept: Kept, at: datetime) -> None:
    new = set(kept.new)
    for one in told:
        event = one.letter.arrival.event
        if one.key in new:
            new.discard(one.key)
            KEPT.labels(event.type).inc()
            TO_HISTORY.observe(max(0.0, (at - event.occurred_at).total_seconds()))
        elif one.key in kept.all:
            DUPLICATE.inc()
    for changed in kept.changed:
        if changed.outcome is not Outcome.OPEN:
            DRAINS.labels(changed.outcome, changed.cause).inc()


async def _give_receipts(client: NatsClient, done: Sequence[Told]) -> None:
    """Tell each node what it need not keep any longer; a lost receipt is given at the next repetition."""
    of_node: dict[str, list[UUID]] = {}
    for one in done:
        subject = receipt_subject(one.letter.hall, one.letter.arrival.instance_id)
        of_node.setdefault(subject, []).append(one.letter.arrival.event.event_id)
    for subject, event_ids in of_node.items():
        receipt = Receipt(event_ids=tuple(dict.fromkeys(event_ids)))
        await client.publish(subject, receipt.model_dump_json(by_alias=True).encode())


async def _postpone(unknown: Sequence[Told]) -> None:
    """Look again later at what nobody of ours is known to have said; in the end it is thrown away."""
    late = [one for one in unknown if one.message.metadata.num_delivered >= UNKNOWN_TRIES]
    await _refuse(
        [
            (
                one.message,
                Refusal(RefusedAs.UNKNOWN_INSTANCE, f"no instance {one.letter.arrival.instance_id}"),
            )
            for one in late
        ]
    )
    for one in unknown:
        if one not in late:
            WAITING.inc()
            await one.message.nak(delay=UNKNOWN_SECONDS)


async def _refuse(refused: Sequence[tuple[Msg, Refusal]]) -> None:
    """Throw away what can never be used, so that it does not come again; one log line for each reason."""
    for message, refusal in refused:
        REFUSED.labels(refusal.reason).inc()
        await message.term()
    details = {refusal.reason: refusal.detail for _, refusal in refused}
    for reason, messages in sorted(Tally(refusal.reason for _, refusal in refused).items()):
        log.warning("lifecycle_events_refused", reason=reason, messages=messages, example=details[reason])
