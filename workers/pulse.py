"""The pulse: while a hand works or waits, its worker tells Temporal that it still lives.

What a hand waits for (a token, a silent provider) may take a minute; a worker that died should be
noticed in seconds. So the pulse is beaten beside the hand and not by it. A hand that hangs is ended by
its start-to-close timeout.
"""

from __future__ import annotations

import asyncio
from typing import Any

from temporalio import activity
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput, Interceptor

BEATS_PER_TIMEOUT = 5


class Pulse(Interceptor):
    """Heartbeats for every activity that has a heartbeat timeout."""

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:
        return _Beating(next)


class _Beating(ActivityInboundInterceptor):
    async def execute_activity(self, input: ExecuteActivityInput) -> Any:
        timeout = activity.info().heartbeat_timeout
        if not timeout:
            return await super().execute_activity(input)
        beating = asyncio.create_task(_beat(timeout.total_seconds() / BEATS_PER_TIMEOUT))
        try:
            return await super().execute_activity(input)
        finally:
            beating.cancel()


async def _beat(seconds: float) -> None:
    # The start of an activity counts as its first beat, so a short one costs none.
    while True:
        await asyncio.sleep(seconds)
        activity.heartbeat()
