"""A hand that drains and only says what it would have seen."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any

from temporalio import activity

from activities.drain_calls import DRAIN_POOL, DrainLooked, PoolDrainInput
from domain.pool import PoolState

SINCE = datetime(2030, 1, 31, 10, tzinfo=UTC)
DONE = datetime(2030, 1, 31, 10, 30, tzinfo=UTC)


class DrainHands:
    """A pool that holds units until `held` is set to zero; `resumed` makes it active again."""

    def __init__(self, called: Callable[[str, Any], Awaitable[None]]) -> None:
        self._called = called
        self.held = 2
        self.resumed = False
        self.evicting: tuple[str, ...] = ()
        self.pause_seconds = 3_600.0
        self.failing = 0

    @activity.defn(name=DRAIN_POOL)
    async def drain_pool(self, request: PoolDrainInput) -> DrainLooked:
        await self._called(DRAIN_POOL, request)
        if self.failing:
            self.failing -= 1
            raise ConnectionError("the database is away")
        if self.resumed:
            return DrainLooked(state=PoolState.ACTIVE, since=None, drained_at=None, over=True)
        held, evicted = self.held, self.evicting
        self.evicting = ()
        return DrainLooked(
            state=PoolState.DRAINING,
            since=SINCE,
            drained_at=None if held else DONE,
            over=not held,
            units=held,
            instances=held,
            held=f"{held} units, {held} instances of orders" if held else "nothing",
            evicted=evicted,
            pause_seconds=self.pause_seconds,
        )
