"""What the nodes said: the lifecycle events on the bus's stream, in the order in which they came."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import nats
from nats.errors import TimeoutError as NatsTimeoutError

from lab.relay.admission import HISTORY
from lab.relay.bus import NodeBus
from wire.lifecycle import EventType, LifecycleEvent, read_event
from wire.node import STREAM, inbox_prefix

FETCHED = 500
OUTCOMES = frozenset({EventType.DRAINED, EventType.OVERRUN})


async def events_on(bus: NodeBus, *, patience_seconds: float = 0.5) -> list[LifecycleEvent]:
    """Everything on the stream so far; reading takes nothing off it."""
    client = await nats.connect(
        bus.url,
        user_credentials=str(bus.admission.history_file()),
        inbox_prefix=inbox_prefix(HISTORY).encode(),
    )
    found: list[LifecycleEvent] = []
    try:
        reader = await client.jetstream().pull_subscribe("lifecycle.>", stream=STREAM)
        while True:
            try:
                messages = await reader.fetch(FETCHED, timeout=patience_seconds)
            except NatsTimeoutError:
                return found
            for message in messages:
                await message.ack()
                event = read_event(message.data)
                if isinstance(event, LifecycleEvent):
                    found.append(event)
    finally:
        await client.close()


def outcomes(events: Sequence[LifecycleEvent]) -> dict[str, EventType]:
    """By instance, how its last drain ended as far as is known: an overrun stays one."""
    ended = {one.instance_id: one.type for one in events if one.type is EventType.DRAINED}
    return ended | {one.instance_id: one.type for one in events if one.type is EventType.OVERRUN}


def story(events: Sequence[LifecycleEvent], name: Callable[[str], str] = str) -> list[str]:
    """One line per event, by time, for people."""
    return [
        f"{one.occurred_at:%H:%M:%S}.{one.occurred_at.microsecond // 1000:03d}  {name(one.instance_id)}"
        f"  {one.type.replace('_', ' ')}{_spare(one)}{f' ({one.detail})' if one.detail else ''}"
        for one in sorted(events, key=lambda one: (one.occurred_at, one.instance_id, one.sequence))
    ]


def _spare(event: LifecycleEvent) -> str:
    return "" if event.seconds_to_spare is None else f", {event.seconds_to_spare:.1f} s to spare"
