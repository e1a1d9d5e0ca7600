"""Calls in threads of their own, for what nothing can cut off, as a resolver of names that hangs."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")


class Threads:
    """Runs each call in a thread of its own, and refuses one when so many hang that this is one too many.

    The threads of the event loop are not used: calls that hang there would keep a drain from its files.
    """

    def __init__(self, name: str, most: int) -> None:
        self._name, self._most = name, most
        self._slots = threading.BoundedSemaphore(most)

    async def run(self, call: Callable[[], T]) -> T:
        """The call's answer. Raises OSError for whatever it raises. A caller who gives up does not end it."""
        if not self._slots.acquire(blocking=False):
            raise OSError(f"{self._most} earlier requests hang")
        answer: Future[T] = Future()
        try:
            threading.Thread(target=self._run, args=(call, answer), name=self._name, daemon=True).start()
        except RuntimeError as error:
            self._slots.release()
            raise OSError(f"no thread can be had: {error}") from error
        return await asyncio.wrap_future(answer)

    def _run(self, call: Callable[[], T], answer: Future[T]) -> None:
        try:
            found = call()
        except Exception as error:
            # Whatever a server brings a parser to, it is no answer.
            failed = error if isinstance(error, OSError) else OSError(type(error).__name__)
            if answer.set_running_or_notify_cancel():
                answer.set_exception(failed)
        else:
            if answer.set_running_or_notify_cancel():
                answer.set_result(found)
        finally:
            self._slots.release()
