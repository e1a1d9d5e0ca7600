"""Lifecycle events as the rules see them: what happened to one instance and its work."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import NamedTuple
from uuid import UUID

from domain.cause import Cause


class EventType(StrEnum):
    NOTICE = "notice"
    DRAINED = "drained"
    OVERRUN = "overrun"
    NO_NOTICE = "no_notice"
    SIGNALLED = "signalled"
    CHECKPOINTED = "checkpointed"
    CHECKPOINT_FAILED = "checkpoint_failed"
    WORK_ENDED = "work_ended"
    WITHDRAWN = "withdrawn"
    REFUSED = "refused"
    READY = "ready"
    GAP = "gap"


class NoticeKind(StrEnum):
    """Whether the node certainly goes, or may."""

    HARD = "hard"
    ADVISORY = "advisory"


class EventSource(StrEnum):
    """Who tells: the node of itself, or the control plane of a node that tells nothing any more."""

    NODE = "node"
    CONTROLLER = "controller"


class Outcome(StrEnum):
    """How a drain ended; `open` while that is not known."""

    OPEN = "open"
    DRAINED = "drained"
    OVERRUN = "overrun"
    WITHDRAWN = "withdrawn"
    NO_NOTICE = "no_notice"


# Events by which a drain is known even where the event of its notice never came.
OF_DRAINS = frozenset(
    {
        EventType.NOTICE,
        EventType.SIGNALLED,
        EventType.CHECKPOINTED,
        EventType.CHECKPOINT_FAILED,
        EventType.WORK_ENDED,
        EventType.WITHDRAWN,
        EventType.DRAINED,
        EventType.OVERRUN,
    }
)


class Event(NamedTuple):
    """One event. `cause` is what the sender said; `sequence` is 0 unless the node counted it.

    `seconds_since_notice` runs on the node's steady clock and `occurred_at` on its wall clock, which may
    be wrong; `deadline` is the provider's time.
    """

    event_id: UUID
    type: EventType
    occurred_at: datetime
    sequence: int = 0
    source: EventSource = EventSource.NODE
    cause: Cause = Cause.UNKNOWN
    notice_id: UUID | None = None
    notice_kind: NoticeKind | None = None
    deadline: datetime | None = None
    path: str | None = None
    seconds_since_notice: float | None = None
    seconds_to_spare: float | None = None
    exit_code: int | None = None
    lost_events: int | None = None
    detail: str = ""


class Drain(NamedTuple):
    """One drain of an instance, or its end without a notice. Times are the node's.

    `drain_id` is the id of the notice that began it; without a notice one that is made from the instance.
    """

    drain_id: UUID
    outcome: Outcome
    cause: Cause
    notice_id: UUID | None = None
    notice_at: datetime | None = None
    deadline: datetime | None = None
    signalled_at: datetime | None = None
    signalled_after_seconds: float | None = None
    ended_at: datetime | None = None
    seconds_to_spare: float | None = None
    path: str | None = None
