"""Loops of the product that run beside a test, and end with it, also when it fails."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager


@asynccontextmanager
async def until_stopped(
    run: Callable[[asyncio.Event], Coroutine[object, object, None]], *, patience_seconds: float
) -> AsyncIterator[asyncio.Task[None]]:
    """A loop that is told to stop in the end; the test may cancel it before.

    A loop left behind by a test that failed would go on working on what the next test starts with.
    """
    stop = asyncio.Event()
    task = asyncio.create_task(run(stop))
    try:
        yield task
    finally:
        stop.set()
        done, _ = await asyncio.wait([task], timeout=patience_seconds)
        task.cancel()
    assert done, "the loop does not stop"
    if not task.cancelled():
        task.result()
