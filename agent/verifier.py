"""Whether anything is left. Only an answer that says so counts; silence never does."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

from agent.bounded import bounded, describe
from agent.drain.ports import Deadline, DrainDriver, Work

# At this much before the deadline, what still runs has overrun: T+118 of 120.
EDGE_SECONDS = 2.0
# A notice that came too late for that still gives the work a moment between its signal and its end.
LEAST_SECONDS = 1.0
LOOK_LIMIT_SECONDS = 1.0
FIRST_PAUSE_SECONDS = 0.25
LONGEST_PAUSE_SECONDS = 1.0
log = logging.getLogger("sco.agent")


class Left(NamedTuple):
    """What one look saw and who saw it; `work` is None when nobody could say."""

    work: tuple[Work, ...] | None
    seen_by: DrainDriver
    detail: str = ""


class Verifier:
    """Looks for work of this node until none is left or the edge is reached."""

    def __init__(self, ended: Callable[[Sequence[Work], DrainDriver], Awaitable[None]]) -> None:
        """`ended` is told of work that was there and is gone, and by whom it is not seen any more."""
        self._ended = ended
        self._before: dict[tuple[str, str], Work] = {}
        self._seen_by: DrainDriver | None = None

    async def note(self, asked: DrainDriver, seconds: float) -> None:
        """Take note of what is there before it is signalled; what cannot be seen in time is not noted."""
        try:
            work = await bounded(asked.left(), seconds)
        except Exception as error:
            log.info("%s does not say what runs: %s", asked.name, describe(error))
        else:
            await self.saw(work, asked)

    async def look(self, asked: DrainDriver, instead: DrainDriver) -> Left:
        """What is left, as the one asked says, or the other where it does not answer."""
        detail = ""
        for driver in dict.fromkeys((asked, instead)):
            try:
                work = await bounded(driver.left(), LOOK_LIMIT_SECONDS)
            except Exception as error:
                detail = f"{driver.name}: {describe(error)}"
                continue
            await self.saw(work, driver)
            return Left(work, driver)
        return Left(None, asked, detail)

    async def until_gone(
        self, asked: DrainDriver, instead: DrainDriver, deadline: Deadline, until_remaining: float
    ) -> Left:
        """The look that saw nothing, or the last one before the deadline was that near."""
        pause = FIRST_PAUSE_SECONDS
        while True:
            left = await self.look(asked, instead)
            spare = deadline.remaining_seconds() - until_remaining
            if left.work == () or spare <= 0:
                return left
            await asyncio.sleep(min(pause, spare))
            pause = min(pause * 2, LONGEST_PAUSE_SECONDS)

    async def saw(self, work: tuple[Work, ...], seen_by: DrainDriver) -> None:
        """Take what one look saw. Two systems name work differently: only looks of the same are compared."""
        now = {(one.kind, one.name): one for one in work}
        before = self._before if seen_by is self._seen_by else {}
        self._before, self._seen_by = now, seen_by
        gone = [before[key] for key in sorted(before.keys() - now.keys())]
        if gone:
            await self._ended(gone, seen_by)


def edge(remaining_seconds: float) -> float:
    """How near the deadline may come before the rest is forced, seen from the moment of the signal."""
    return min(EDGE_SECONDS, max(remaining_seconds - LEAST_SECONDS, remaining_seconds / 2))
