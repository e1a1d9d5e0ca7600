"""How long to wait between two looks at the provider: soon while something moves, longer while nothing does.

Looks cost tokens of the region's budget, and a hundred placements that wait for builds must not eat it.
"""

from __future__ import annotations

import asyncio

GROWTH = 1.5
MOST = 8


class Pauses:
    """Pauses of one loop: the first is `first_seconds`, the longest `MOST` times as long."""

    def __init__(self, first_seconds: float) -> None:
        self._first_seconds = first_seconds
        self._next_seconds = first_seconds

    def next_seconds(self, *, moved: bool) -> float:
        """The pause that is due now; `moved` says whether the last look found anything new."""
        if moved:
            self._next_seconds = self._first_seconds
        due = self._next_seconds
        self._next_seconds = min(due * GROWTH, self._first_seconds * MOST)
        return due

    async def pause(self, *, moved: bool) -> None:
        await asyncio.sleep(self.next_seconds(moved=moved))
