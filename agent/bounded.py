"""Calls that end when their time is up, whatever they do about it, and tasks that are started again."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")
FIRST_PAUSE_SECONDS = 0.5
LONGEST_PAUSE_SECONDS = 5.0
log = logging.getLogger("sco.agent")


async def bounded(call: Coroutine[Any, Any, T], seconds: float) -> T:
    """The call's answer. TimeoutError when it takes longer, even if it will not let itself be cancelled."""
    task = asyncio.ensure_future(call)
    try:
        done, _ = await asyncio.wait({task}, timeout=seconds)
    except asyncio.CancelledError:
        task.cancel()
        raise
    if done:
        return task.result()
    task.cancel()
    task.add_done_callback(_forget)
    raise TimeoutError(f"no answer within {seconds:g} s")


async def supervise(name: str, run: Callable[[], Awaitable[None]], failed: Callable[[str], None]) -> None:
    """Run something that should never end, and run it again whenever it does."""
    pause = FIRST_PAUSE_SECONDS
    loop = asyncio.get_running_loop()
    while True:
        began = loop.time()
        try:
            await run()
        except asyncio.CancelledError:
            raise
        except Exception as error:
            log.warning("%s ended: %s; it is started again", name, describe(error))
            failed(name)
        pause = FIRST_PAUSE_SECONDS if loop.time() - began > LONGEST_PAUSE_SECONDS else pause
        await asyncio.sleep(pause)
        pause = min(pause * 2, LONGEST_PAUSE_SECONDS)


def describe(error: BaseException) -> str:
    """An error in one line."""
    text = " ".join(str(error).split())[:200]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _forget(task: asyncio.Task[Any]) -> None:
    if not task.cancelled():
        task.exception()
