"""Where calls are worked on: an event loop of its own, in a thread of its own.

The library takes on a call after a few turns of its loop. What makes turns long (rows, decisions, answers)
keeps calls waiting where nobody sees them, until the library refuses them in its own way. So the loop that
takes calls on lets in or refuses and nothing else, and the work is done here.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import AsyncIterator, Coroutine, Iterator
from concurrent.futures import Future
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from typing import Any, Protocol, TypeVar

import uvloop

Result = TypeVar("Result")
# How long one thread computes while the other waits. Ten times as long, calls are taken on too slowly; a
# fifth of it, and the work gets nowhere under overload.
SWITCH_SECONDS = 0.0005


class Work(Protocol):
    """Has something done, in this loop or another, and gives what comes of it."""

    async def __call__(self, work: Coroutine[Any, Any, Result]) -> Result:
        """What `work` returns or raises. Cancelled, it cancels the work and waits for its end."""


async def here(work: Coroutine[Any, Any, Result]) -> Result:
    """Have it done in the loop of whoever asks."""
    return await work


class Workroom:
    """Has things done in another thread's loop, each with the context variables of whoever asks for it."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    async def __call__(self, work: Coroutine[Any, Any, Result]) -> Result:
        ended: Future[Result] = Future()
        doing: list[asyncio.Task[Result]] = []

        def begin() -> None:
            doing.append(self._loop.create_task(work))
            doing[0].add_done_callback(partial(_hand_over, ended))

        def cancel() -> None:
            doing[0].cancel()

        self._loop.call_soon_threadsafe(begin)
        waiting = asyncio.wrap_future(ended)
        try:
            return await asyncio.shield(waiting)
        except asyncio.CancelledError:
            # Whoever asked must not go on while the work still holds a connection.
            if not waiting.done():
                self._loop.call_soon_threadsafe(cancel)
            return await waiting


def _hand_over(ended: Future[Result], task: asyncio.Task[Result]) -> None:
    """Give what came of a task to whoever waits, if anybody still does."""
    if task.cancelled():
        ended.cancel()
        return
    error = task.exception()
    if not ended.set_running_or_notify_cancel():
        return
    if error is None:
        ended.set_result(task.result())
    else:
        ended.set_exception(error)


@asynccontextmanager
async def workroom() -> AsyncIterator[Workroom]:
    """A workroom until the end of the block. What is not done by then is cancelled."""
    opened: Future[asyncio.AbstractEventLoop] = Future()
    stop = asyncio.Event()

    async def stay() -> None:
        opened.set_result(asyncio.get_running_loop())
        await stop.wait()

    with _switching_often():
        thread = threading.Thread(target=lambda: uvloop.run(stay()), name="workroom", daemon=True)
        thread.start()
        loop = await asyncio.wrap_future(opened)
        try:
            yield Workroom(loop)
        finally:
            loop.call_soon_threadsafe(stop.set)
            await asyncio.to_thread(thread.join)


@contextmanager
def _switching_often() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_SECONDS)
    try:
        yield
    finally:
        sys.setswitchinterval(before)
