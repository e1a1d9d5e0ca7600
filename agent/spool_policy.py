"""What a full spool gives up first: the oldest of what matters least.

What the account of a drain cannot do without is kept longest: that a notice came, or did not, and how it
ended.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple
from uuid import UUID

from pydantic import ValidationError

from wire.lifecycle import EventType, LifecycleEvent

# From what is given up first to what is kept longest. Types that share a rank go by age alone; a gap has one
# of its own.
WORTH: dict[EventType, int] = {
    EventType.READY: 0,
    EventType.REFUSED: 0,
    EventType.CHECKPOINTED: 1,
    EventType.CHECKPOINT_FAILED: 2,
    EventType.SIGNALLED: 2,
    EventType.WORK_ENDED: 2,
    EventType.WITHDRAWN: 3,
    EventType.GAP: 4,
    EventType.NOTICE: 5,
    EventType.DRAINED: 5,
    EventType.OVERRUN: 5,
    EventType.NO_NOTICE: 5,
}
LEAST_KNOWN_WORTH = 2


def worth(event_type: EventType) -> int:
    """How long an event of this type is kept; a higher number is given up later."""
    return WORTH.get(event_type, LEAST_KNOWN_WORTH)


class Spooled(NamedTuple):
    """One event as it waits. `body` is its JSON without the sequence, which it may still be given anew."""

    sequence: int
    event_id: UUID
    worth: int
    body: bytes

    def event(self) -> LifecycleEvent | None:
        """The event with its sequence; None when the body is not one (of a newer agent, or damaged)."""
        try:
            return LifecycleEvent.model_validate_json(self.body).model_copy(
                update={"sequence": self.sequence}
            )
        except ValidationError:
            return None


class Loss(NamedTuple):
    """What is missing from the record: events known to be given up, and times that nobody knows how many."""

    events: int = 0
    unknown: int = 0

    def plus(self, other: Loss) -> Loss:
        return Loss(self.events + other.events, self.unknown + other.unknown)

    def minus(self, other: Loss) -> Loss:
        return Loss(self.events - other.events, self.unknown - other.unknown)

    def detail(self) -> str:
        if not self.unknown:
            return f"{self.events} events were given up: there was no room for them"
        return f"part of the spool was lost, more than {self.events} events may be missing"


def spooled(event: LifecycleEvent, sequence: int) -> Spooled:
    """The event as it waits under its sequence."""
    body = event.model_dump_json(by_alias=True, exclude_none=True).encode()
    return Spooled(sequence, event.event_id, worth(event.type), body)


def to_give_up(waiting: Iterable[Spooled], count: int) -> list[Spooled]:
    """The `count` events that are given up first."""
    return sorted(waiting, key=lambda one: (one.worth, one.sequence))[:count]
