"""What workloads on this node may know: whether the provider wants the node back, and until when."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, NamedTuple, Protocol

from wire.notices import Notice, NoticeKind


class Level(StrEnum):
    """How serious it is: nothing, it may end, it ends."""

    NONE = "none"
    ADVISORY = "advisory"
    HARD = "hard"


class Deadline(Protocol):
    def remaining_seconds(self) -> float: ...


class NoticeState(NamedTuple):
    """One state of the board. `deadline` is the provider's moment, `ends` counts down to it on the node."""

    level: Level = Level.NONE
    notice_id: str | None = None
    cause: str | None = None
    deadline: datetime | None = None
    ends: Deadline | None = None

    @classmethod
    def of(cls, notice: Notice, ends: Deadline | None = None) -> NoticeState:
        """What a notice in force says; a withdrawal says that nothing is wanted any more."""
        if notice.kind is NoticeKind.WITHDRAWAL:
            return cls()
        level = Level.HARD if notice.kind is NoticeKind.HARD else Level.ADVISORY
        return cls(level, str(notice.notice_id), str(notice.cause), notice.deadline, ends)

    def said(self) -> dict[str, Any]:
        """The state as workloads read it; what is not known is left out."""
        remaining = self.ends.remaining_seconds() if self.ends is not None else None
        fields = {
            "notice": str(self.level),
            "noticeId": self.notice_id,
            "cause": self.cause,
            "deadline": _text(self.deadline),
            "remainingSeconds": None if remaining is None else round(max(0.0, remaining), 3),
        }
        return {name: value for name, value in fields.items() if value is not None}


class NoticeBoard:
    """The state in force, and a way to wait for the next. Used by one event loop."""

    def __init__(self) -> None:
        self._state = NoticeState()
        self._version = 0
        self._changed = asyncio.Event()

    @property
    def state(self) -> NoticeState:
        return self._state

    @property
    def version(self) -> int:
        """Grows with every state that is published."""
        return self._version

    def publish(self, state: NoticeState) -> None:
        """Put up a new state and wake who waits. Returns at once."""
        self._state = state
        self._version += 1
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def newer_than(self, version: int) -> int:
        """Wait for a state after `version` and return the number of the one that is up then."""
        while self._version <= version:
            await self._changed.wait()
        return self._version


def _text(moment: datetime | None) -> str | None:
    if moment is None:
        return None
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
