"""The spool: what the node has to tell, kept until the history keeps it.

Handing an event over costs a lock and an append; a thread of its own writes it to disk. When the disk is
full, gone or broken, events wait in memory within a bound and are still sent. Nothing here raises into a
drain, and nothing waits for the disk but who asks for the content.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any, NamedTuple
from uuid import UUID

from agent.spool_file import size_on_disk
from agent.spool_keeper import GapMaker, Keeper, SpoolStats
from agent.spool_policy import Spooled, spooled, to_give_up
from wire.lifecycle import EventType, LifecycleEvent

LIMIT_BYTES = 64 * 1024 * 1024
MEMORY_EVENTS = 2000
# A drain tells of its signal within less than this after its notice: one write for both, once the signal is
# sent. A kill in between loses nothing: a drain that has not signalled tells of its notice again.
GATHER_SECONDS = 0.05
# Asks that wait for the thread; more only pile up when the disk hangs.
MAX_ASKS = 32

log = logging.getLogger(__name__)


class SpoolBusyError(OSError):
    """The disk does not answer, and enough callers wait for it already."""


class _Ask(NamedTuple):
    work: Callable[[Keeper], Any]
    answer: Future[Any]


class Spool:
    """Events in the order they were handed over, each with a sequence that only grows, restarts included."""

    def __init__(
        self,
        path: Path,
        gap: GapMaker,
        *,
        limit_bytes: int = LIMIT_BYTES,
        memory_events: int = MEMORY_EVENTS,
        steady: Callable[[], float] = monotonic,
    ) -> None:
        """Nothing is opened before `start`. `gap` is called in the spool's thread."""
        self._path = path
        self._new_keeper = partial(Keeper, path, gap, limit_bytes, memory_events, steady)
        self._memory_events = memory_events
        self._lock = threading.Condition()
        # Under the lock: what arrived and was not looked at, and what was lost before that.
        self._arrived: list[LifecycleEvent] = []
        self._overflow = 0
        self._asks: list[_Ask] = []
        self._closing = False
        self._listener: Callable[[], None] | None = None
        self._stats = SpoolStats()
        self._thread = threading.Thread(target=self._run, name="spool", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def append(self, event: LifecycleEvent) -> None:
        """Hand over an event. Never raises, never waits for the disk; the sequence is given by the spool."""
        with self._lock:
            self._arrived.append(event)
            if len(self._arrived) > self._memory_events:
                self._arrived = _without_least(self._arrived)
                self._overflow += 1
            self._lock.notify()

    def listen(self, listener: Callable[[], None]) -> None:
        """Call `listener` from the spool's thread whenever something new can be sent."""
        self._listener = listener

    async def pending(self, limit: int, after: int = 0) -> list[Spooled]:
        """The oldest `limit` events with a sequence above `after`, a gap that is due included.

        Raises SpoolBusyError when the disk hangs; bound the wait besides.
        """
        answer: list[Spooled] = await asyncio.wrap_future(
            self._ask(lambda keeper: keeper.pending(limit, after))
        )
        return answer

    async def confirmed(self, event_ids: Sequence[UUID]) -> None:
        """The history keeps these: let them go. Raises SpoolBusyError when the disk hangs."""
        ids = tuple(event_ids)
        await asyncio.wrap_future(self._ask(lambda keeper: keeper.remove(ids)))

    def stats(self) -> SpoolStats:
        return self._stats

    def size_on_disk(self) -> int:
        """Bytes, looked up now."""
        return size_on_disk(self._path)

    def flush(self, timeout: float) -> bool:
        """Wait until what was handed over is on disk; False when it is not after `timeout` seconds."""
        try:
            return bool(self._ask(lambda keeper: keeper.saved()).result(timeout))
        except (TimeoutError, OSError):
            return False

    def close(self, timeout: float = 5.0) -> None:
        """Write what is left and end the thread; a disk that hangs is not waited for any longer."""
        with self._lock:
            self._closing = True
            self._lock.notify()
        if self._thread.is_alive():
            self._thread.join(timeout)

    def _ask(self, work: Callable[[Keeper], Any]) -> Future[Any]:
        ask = _Ask(work, Future())
        with self._lock:
            if len(self._asks) >= MAX_ASKS or self._closing:
                raise SpoolBusyError(f"{len(self._asks)} calls wait for the spool already")
            self._asks.append(ask)
            self._lock.notify()
        return ask.answer

    def _run(self) -> None:
        keeper = self._new_keeper()
        closing = False
        while not closing:
            with self._lock:
                if not (self._arrived or self._asks or self._closing):
                    self._lock.wait(keeper.patience())
                self._gather()
                arrived, self._arrived = self._arrived, []
                overflow, self._overflow = self._overflow, 0
                asks, self._asks = self._asks, []
                closing = self._closing
            self._turn(keeper, arrived, overflow, asks)
        keeper.close()

    def _gather(self) -> None:
        """A notice alone waits a moment for its signal, unless somebody wants an answer."""

        def is_pressed() -> bool:
            urgent = any(one.type is not EventType.NOTICE for one in self._arrived)
            return urgent or bool(self._asks) or self._closing

        if self._arrived:
            self._lock.wait_for(is_pressed, GATHER_SECONDS)

    def _turn(self, keeper: Keeper, arrived: list[LifecycleEvent], overflow: int, asks: list[_Ask]) -> None:
        try:
            keeper.take(arrived, overflow)
            if arrived and self._listener is not None:
                self._listener()
        except Exception:
            # The thread outlives what nobody foresaw: without it nothing is ever told.
            log.exception("the spool failed in an unforeseen way")
        self._stats = keeper.stats()
        for ask in asks:
            _answer(ask, keeper)
            self._stats = keeper.stats()


def _answer(ask: _Ask, keeper: Keeper) -> None:
    if not ask.answer.set_running_or_notify_cancel():
        return
    try:
        ask.answer.set_result(ask.work(keeper))
    except Exception as error:
        ask.answer.set_exception(error)


def _without_least(events: list[LifecycleEvent]) -> list[LifecycleEvent]:
    numbered = [spooled(event, number) for number, event in enumerate(events)]
    least = to_give_up(numbered, 1)[0].sequence
    return events[:least] + events[least + 1 :]
