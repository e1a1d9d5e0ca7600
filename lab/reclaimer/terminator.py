"""What makes a notice true: at its deadline the instance ends, whatever still runs on it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from datetime import datetime

from wire.notices import Notice, NoticeKind

TICK_SECONDS = 0.1


class Terminator:
    """Ends each instance at the deadline of its hard notice, unless that was withdrawn."""

    def __init__(
        self,
        standing: Callable[[], Iterable[Notice]],
        end: Callable[[str], Awaitable[None]],
        clock: Callable[[], datetime],
    ) -> None:
        self._standing = standing
        self._end = end
        self._clock = clock
        self._done: set[str] = set()

    async def run(self) -> None:
        """Watch the deadlines until cancelled."""
        while True:
            await self.tick()
            await asyncio.sleep(TICK_SECONDS)

    async def tick(self) -> None:
        now = self._clock()
        for notice in tuple(self._standing()):
            due = notice.kind is NoticeKind.HARD and notice.deadline is not None and notice.deadline <= now
            if due and notice.instance_id not in self._done:
                self._done.add(notice.instance_id)
                await self._end(notice.instance_id)
