"""What the nodes said: the lifecycle events on the bus's stream, in the order in which they came."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

import nats
from nats.errors import Error as NatsError
from nats.errors import TimeoutError as NatsTimeoutError
from nats.js.client import JetStreamContext

from lab.relay.admission import HISTORY
from lab.relay.bus import NodeBus
from wire.lifecycle import EventType, LifecycleEvent, read_event
from wire.node import STREAM, STREAM_SUBJECTS, inbox_prefix

FETCHED = 500
FETCH_SECONDS = 1.0


class Heard:
    """Every event that was said so far, each once."""

    def __init__(self) -> None:
        self._events: dict[str, LifecycleEvent] = {}
        self._changed = asyncio.Event()

    @property
    def events(self) -> tuple[LifecycleEvent, ...]:
        return tuple(self._events.values())

    def add(self, event: LifecycleEvent) -> None:
        self._events.setdefault(str(event.event_id), event)
        self._changed.set()

    def instances(self, *types: EventType) -> frozenset[str]:
        """Who said one of these."""
        return frozenset(one.instance_id for one in self._events.values() if one.type in types)

    async def until(self, happened: Callable[[Heard], bool], seconds: float) -> bool:
        """Wait until it has happened; False when it has not after `seconds`."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not happened(self):
                    self._changed.clear()
                    await self._changed.wait()
        return happened(self)


@asynccontextmanager
async def listening(bus: NodeBus) -> AsyncIterator[Heard]:
    """Hear everything on the stream, from its beginning; listening takes nothing off it."""
    client = await nats.connect(
        bus.url,
        user_credentials=str(bus.admission.history_file()),
        inbox_prefix=inbox_prefix(HISTORY).encode(),
    )
    heard = Heard()
    reader = await client.jetstream().pull_subscribe(STREAM_SUBJECTS[0], stream=STREAM)
    task = asyncio.create_task(_take(reader, heard))
    try:
        yield heard
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        await client.close()


async def _take(reader: JetStreamContext.PullSubscription, heard: Heard) -> None:
    while True:
        try:
            messages = await reader.fetch(FETCHED, timeout=FETCH_SECONDS)
        except (NatsTimeoutError, TimeoutError):
            continue
        except NatsError:
            # The bus is away; what is told meanwhile waits in the nodes' spools.
            await asyncio.sleep(FETCH_SECONDS)
            continue
        for message in messages:
            await message.ack()
            event = read_event(message.data)
            if isinstance(event, LifecycleEvent):
                heard.add(event)


def story(events: Sequence[LifecycleEvent]) -> list[str]:
    """One line per event, by time, for people."""
    ordered = sorted(events, key=lambda one: (one.occurred_at, one.instance_id, one.sequence))
    return [
        f"{one.occurred_at:%H:%M:%S}.{one.occurred_at.microsecond // 1000:03d}  {one.instance_id}"
        f"  {one.type.replace('_', ' ')}{_spare(one)}{f' ({one.detail})' if one.detail else ''}"
        for one in ordered
    ]


def _spare(event: LifecycleEvent) -> str:
    return "" if event.seconds_to_spare is None else f", {event.seconds_to_spare:.1f} s to spare"
