"""The clocks of a node: the steady one that drains run on, the wall, and the provider's as far as known."""

from __future__ import annotations

import time
from collections import deque
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Protocol

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
# An odd number, so that the middle is a sample; one wrong answer in nine moves nothing.
SAMPLES = 9
# An answer's date is cut to the second: on average half of it had passed.
HALF_RESOLUTION_SECONDS = 0.5


class Clock(Protocol):
    def boot(self) -> float:
        """Seconds since the node started, suspended ones included. Nobody can set this clock."""
        ...

    def wall(self) -> datetime:
        """What the node takes for the time. It may be wrong by hours."""
        ...


class SystemClock:
    """The clocks of this machine."""

    def boot(self) -> float:
        return time.clock_gettime(time.CLOCK_BOOTTIME)

    def wall(self) -> datetime:
        return datetime.now(UTC)


class ProviderClock:
    """The provider's time, learned from the dates of its answers and carried on by the steady clock."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._offsets: deque[float] = deque(maxlen=SAMPLES)

    def measure(self, date: datetime, asked_at: float, answered_at: float) -> None:
        """Take the date of one answer; the other two are steady seconds before and after it."""
        self._offsets.append(date.timestamp() + HALF_RESOLUTION_SECONDS - (asked_at + answered_at) / 2)

    def now(self) -> datetime | None:
        """The provider's time, right to about half a second; None while no answer has told a time."""
        if not self._offsets:
            return None
        try:
            return datetime.fromtimestamp(self._clock.boot() + median(self._offsets), UTC)
        except (ValueError, OverflowError):
            # A clock that shows the end of the calendar tells nothing.
            return None

    def offset_seconds(self) -> float | None:
        """How far the node's wall clock is behind the provider's; None while that is unknown."""
        now = self.now()
        return None if now is None else (now - self._clock.wall()).total_seconds()


def boot_id() -> str:
    """What tells one start of the machine from another; empty where the system does not say."""
    try:
        return BOOT_ID.read_text(encoding="ascii").strip()
    except OSError:
        return ""
