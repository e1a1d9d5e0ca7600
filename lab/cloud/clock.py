"""The cloud's own clock: faster than real time, or moved by hand."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta


class CloudClock:
    """Time as the cloud sees it. It never runs backwards, whatever the speed is set to."""

    def __init__(self, start: datetime, speed: float, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._speed = speed
        self._base = start.astimezone(UTC)
        self._mark = monotonic()

    @property
    def speed(self) -> float:
        """Cloud seconds per real second; 0 means the clock is moved by hand."""
        return self._speed

    def now(self) -> datetime:
        elapsed = self._monotonic() - self._mark
        return self._base + timedelta(seconds=elapsed * self._speed)

    def set_speed(self, speed: float) -> None:
        if speed < 0:
            raise ValueError(f"clock speed {speed} is negative: give 0 for a manual clock, or more")
        self._rebase(self.now())
        self._speed = speed

    def advance(self, seconds: float) -> None:
        """Move the clock forward at once."""
        if seconds < 0:
            raise ValueError(f"cannot advance the clock by {seconds} seconds: give 0 or more")
        self._rebase(self.now() + timedelta(seconds=seconds))

    def _rebase(self, now: datetime) -> None:
        self._base = now
        self._mark = self._monotonic()
