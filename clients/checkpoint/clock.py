"""The clocks that the client runs on, in one place so that a test can bring its own."""

from __future__ import annotations

import time
from datetime import UTC, datetime


class Clock:
    """This machine's clocks."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def steady(self) -> float:
        """Seconds that nobody can set."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)
