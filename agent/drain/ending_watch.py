"""Looks for work that ends with an error outside of any drain."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from uuid import uuid5

from agent.clock import Clock
from agent.drain.drains import Drains
from agent.drain.endings import endings_of
from agent.drain.ports import Ending, Record
from agent.telling import SPACE
from domain.cause import is_error
from wire.bundle import DrainPath
from wire.lifecycle import MAX_DETAIL, EventType

LOOK_SECONDS = 10.0
ASK_SECONDS = 2.0
# Systems tell the second in which work ended; one so near to a notice is told by its drain.
MARGIN = timedelta(seconds=2)
MOST_PER_LOOK = 32
MOST_KNOWN = 1024


class EndingWatch:
    """Tells of work that ended with an error while no notice stood: nobody but the work is to blame then."""

    def __init__(
        self,
        instance_id: str,
        drains: Drains,
        path: Callable[[], DrainPath],
        *,
        record: Record,
        clock: Clock,
    ) -> None:
        """`path` says by which drain path the work of this node is found now."""
        self._instance_id, self._drains, self._path = instance_id, drains, path
        self._record, self._clock = record, clock
        self._known: dict[tuple[str, str, str], None] = {}
        self._has_looked = False

    async def run(self) -> None:
        while True:
            await self.look()
            await asyncio.sleep(LOOK_SECONDS)

    async def look(self) -> None:
        """One look. Of what ended before the first one, only that counts whose moment is known."""
        found = await endings_of(self._drains.driver(self._path()), (), ASK_SECONDS)
        if found is None:
            return
        new = [one for one in found if (one.kind, one.name, one.mark) not in self._known]
        for one in new[:MOST_PER_LOOK]:
            self._known[one.kind, one.name, one.mark] = None
            if is_error(one.exit_code) and (self._has_looked or one.ended_at) and self._is_outside(one):
                self._tell(one)
        self._has_looked = True
        for old in list(self._known)[:-MOST_KNOWN]:
            del self._known[old]

    def _is_outside(self, ending: Ending) -> bool:
        drain = self._drains.current
        if drain is None:
            return True
        heard_at = self._clock.wall() - timedelta(seconds=self._clock.boot() - drain.heard_at)
        return ending.ended_at is not None and ending.ended_at < heard_at - MARGIN

    def _tell(self, ending: Ending) -> None:
        detail = f"{ending.kind} {ending.name}"[:MAX_DETAIL]
        at = {} if ending.ended_at is None else {"occurred_at": ending.ended_at}
        # Told again after a restart, it is the same event.
        event_id = uuid5(SPACE, f"{self._instance_id}/ended/{detail}/{ending.mark}")
        self._record.tell(
            EventType.WORK_ENDED, event_id=event_id, detail=detail, exit_code=ending.exit_code, **at
        )
