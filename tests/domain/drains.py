"""Drains as nodes tell of them, made to measure."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid5

from domain.cause import Cause
from domain.lifecycle import Event, EventType, NoticeKind

AT = datetime(2030, 1, 31, 23, 59, 30, tzinfo=UTC)
SPACE = UUID("00000000-0000-4000-8000-000000000000")
NODE = "node-1"


def notice(number: int = 1) -> UUID:
    return uuid5(SPACE, f"notice {number}")


def happened(
    kind: EventType, seconds: float, sequence: int = 0, *, of: int | None = 1, **fields: Any
) -> Event:
    """An event so many seconds after AT; of the notice with this number, or of none."""
    at = AT + timedelta(seconds=seconds)
    told: dict[str, Any] = {
        "event_id": uuid5(SPACE, f"{kind} {seconds} {sequence} {of}"),
        "notice_id": None if of is None else notice(of),
        "cause": Cause.UNKNOWN,
    }
    return Event(type=kind, occurred_at=at, sequence=sequence, **(told | fields))


def honest(of: int = 1, *, starts: float = 0.0, cause: Cause = Cause.RECLAIM, first: int = 1) -> list[Event]:
    """A drain that went well, over the border of two months: 83.1 s to spare."""
    deadline = AT + timedelta(seconds=starts + 120)

    def at(kind: EventType, seconds: float, number: int, **fields: Any) -> Event:
        known = {"deadline": deadline, "seconds_since_notice": seconds, "cause": cause}
        fields = {"notice_kind": NoticeKind.HARD} | known | fields
        return happened(kind, starts + seconds, first + number, of=of, **fields)

    return [
        at(EventType.NOTICE, 0.0, 0, path="push"),
        at(EventType.SIGNALLED, 0.12, 1, path="slurm"),
        at(EventType.CHECKPOINTED, 35.0, 2, detail="generation 7"),
        at(EventType.WORK_ENDED, 36.8, 3, exit_code=0),
        at(EventType.DRAINED, 36.9, 4, seconds_to_spare=83.1, path="slurm"),
    ]
