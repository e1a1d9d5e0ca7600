"""How many calls are worked on at once, how many may wait, and whose turn is next.

More work at once would not be faster: each call holds a database connection for a few milliseconds. What
waits is bounded, so that under overload an answer is either soon or a refusal at once. Tenants take turns,
and none of them may fill the queue alone.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from grpc import StatusCode

from api.grpc.calls import Refused
from api.grpc.refusals import BUSY

Turn = asyncio.Future[None]


def busy() -> Refused:
    """What a call beyond the limits is told."""
    return Refused(StatusCode.RESOURCE_EXHAUSTED, BUSY, retry=True)


class Admission:
    """Gives out turns in one event loop. `most_waiting` is the length of the queue of all tenants."""

    def __init__(self, at_once: int, most_waiting: int) -> None:
        self._at_once = at_once
        self._most_waiting = most_waiting
        self._tenant_share = max(1, most_waiting // 2)
        self._busy = 0
        self._queues: dict[str, deque[Turn]] = {}

    @property
    def waiting(self) -> int:
        return sum(len(queue) for queue in self._queues.values())

    def is_full(self, tenant_id: str | None) -> bool:
        """Whether a call of this tenant would be refused; None stands for one who is not known yet."""
        if self._busy < self._at_once:
            return False
        own = () if tenant_id is None else self._queues.get(tenant_id, ())
        return self.waiting >= self._most_waiting or len(own) >= self._tenant_share

    @asynccontextmanager
    async def turn(self, tenant_id: str) -> AsyncIterator[None]:
        """Wait for a turn and keep it until the end of the block; `Refused` where the queue is full."""
        if self._busy < self._at_once:
            self._busy += 1
        else:
            await self._wait(tenant_id)
        try:
            yield
        finally:
            self._pass_on()

    async def _wait(self, tenant_id: str) -> None:
        if self.is_full(tenant_id):
            raise busy()
        turn: Turn = asyncio.get_running_loop().create_future()
        self._queues.setdefault(tenant_id, deque()).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            # A turn that was given just before has to go on; one that is still queued is skipped there.
            if not turn.cancelled():
                self._pass_on()
            raise

    def _pass_on(self) -> None:
        """Give this turn to the next who still waits."""
        while self._queues:
            turn = self._next()
            if not turn.done():
                turn.set_result(None)
                return
        self._busy -= 1

    def _next(self) -> Turn:
        """The first of the next tenant, who then goes to the end of the tenants."""
        tenant_id = next(iter(self._queues))
        queue = self._queues.pop(tenant_id)
        turn = queue.popleft()
        if queue:
            self._queues[tenant_id] = queue
        return turn


class Places:
    """At most so many open streams, and of one tenant at most half of them."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._tenant_share = max(1, most // 2)
        self._open: dict[str, int] = {}

    @asynccontextmanager
    async def taken(self, tenant_id: str) -> AsyncIterator[None]:
        own = self._open.get(tenant_id, 0)
        if own >= self._tenant_share or sum(self._open.values()) >= self._most:
            text = "too many streams are open; send more pools' reports through one stream"
            raise Refused(StatusCode.RESOURCE_EXHAUSTED, text, retry=True)
        self._open[tenant_id] = own + 1
        try:
            yield
        finally:
            self._open[tenant_id] -= 1
            if not self._open[tenant_id]:
                del self._open[tenant_id]
