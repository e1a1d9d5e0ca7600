"""Ships what waits in the spool to the node bus, until the history has said that it keeps it.

JetStream's acknowledgement only means that a message is under way: its store may be lost. So every event is
sent in its order, and sent again after each new connection and at growing intervals while its receipt is
missing. Nobody on the other side minds a duplicate.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import random
from collections.abc import Callable, Sequence
from time import monotonic
from typing import NamedTuple, Protocol
from uuid import UUID

from pydantic import ValidationError

from agent.bus import BusRefusedError, BusUnavailableError, Handler
from agent.spool import SpoolBusyError
from agent.spool_keeper import SpoolStats
from agent.spool_policy import Spooled
from wire.lifecycle import Receipt, envelope
from wire.node import lifecycle_subject, receipt_subject

BATCH = 64
MAX_RECEIPT_BYTES = 64 * 1024
# How long the spool may take to answer; a disk that hangs takes for ever.
SPOOL_SECONDS = 10.0

log = logging.getLogger(__name__)


class Pace(NamedTuple):
    """First and longest pause in seconds: between rounds without receipts, and after a failure to send.

    `gather` is the least and the most that something new waits before it is sent.
    """

    resend: tuple[float, float] = (30.0, 600.0)
    retry: tuple[float, float] = (1.0, 60.0)
    # Nodes that lost the same bus do not all come back in the same moment.
    spread: float = 0.2
    # A drain has more urgent things to do at first, and the nodes of a hall do not tell of it all at once.
    gather: tuple[float, float] = (0.1, 1.0)


class SpoolPort(Protocol):
    async def pending(self, limit: int, after: int = 0) -> list[Spooled]: ...

    async def confirmed(self, event_ids: Sequence[UUID]) -> None: ...

    def listen(self, listener: Callable[[], None]) -> None: ...

    def stats(self) -> SpoolStats: ...


class BusPort(Protocol):
    @property
    def connected(self) -> bool: ...

    def on_connected(self, listener: Callable[[], None]) -> None: ...

    async def subscribe(self, subject: str, handler: Handler) -> None: ...

    async def publish(self, subject: str, body: bytes, message_id: str) -> None: ...


class UplinkStats(NamedTuple):
    """Since the start of the process. `sent` counts every acknowledged message, repetitions included."""

    sent: int = 0
    failed: int = 0
    receipts: int = 0
    bad_receipts: int = 0


class Uplink:
    """One node's events on their way to the history."""

    def __init__(
        self,
        spool: SpoolPort,
        bus: BusPort,
        *,
        hall: str,
        instance_id: str,
        pace: Pace | None = None,
        dice: random.Random | None = None,
        steady: Callable[[], float] = monotonic,
    ) -> None:
        self._spool, self._bus, self._steady = spool, bus, steady
        self._subject = lifecycle_subject(hall, instance_id)
        self._receipts = receipt_subject(hall, instance_id)
        self._pace = pace or Pace()
        self._dice = dice or random.Random()  # noqa: S311 - spreads load, guards nothing
        self._wake = asyncio.Event()
        self._connections = 0
        self._cursor = 0
        self._resend_seconds = self._pace.resend[0]
        self._resend_at: float | None = None
        self._retry_seconds = self._pace.retry[0]
        self._stats = UplinkStats()

    def stats(self) -> UplinkStats:
        return self._stats

    async def run(self) -> None:
        """Ship for ever; cancel to stop. Whatever fails is tried again, after a pause."""
        loop = asyncio.get_running_loop()

        def wake() -> None:
            with contextlib.suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(self._wake.set)

        self._spool.listen(wake)
        self._bus.on_connected(self._start_over)
        await self._bus.subscribe(self._receipts, self._hear)
        while True:
            self._wake.clear()
            try:
                pause = await self._step()
            except (SpoolBusyError, TimeoutError):
                pause = self._pace.retry[1]
            except Exception:
                log.exception("the uplink failed in an unforeseen way")
                pause = self._pace.retry[1]
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), pause)
                if pause != 0.0:
                    await asyncio.sleep(self._dice.uniform(*self._pace.gather))

    async def _step(self) -> float | None:
        """Send one batch. Answers how long to rest, unless woken; None is until woken."""
        if not self._bus.connected:
            return None
        began = self._connections
        batch = await asyncio.wait_for(self._spool.pending(BATCH, self._cursor), SPOOL_SECONDS)
        for spooled in batch:
            if not await self._send(spooled):
                return self._after_failure()
            if began != self._connections:
                # A new connection meanwhile: what went over the old one may be lost.
                return 0.0
            self._cursor = spooled.sequence
        return 0.0 if batch else self._after_round()

    async def _send(self, spooled: Spooled) -> bool:
        """Whether to go on with the next: what the stream refuses is left for the next round."""
        event = spooled.event()
        if event is None:
            return True
        body = json.dumps(envelope(event), separators=(",", ":")).encode()
        try:
            await self._bus.publish(self._subject, body, str(event.event_id))
        except BusUnavailableError:
            self._count(failed=1)
            return False
        except BusRefusedError as error:
            log.warning("an event is refused: %s", error)
            self._count(failed=1)
            return True
        self._count(sent=1)
        self._retry_seconds = self._pace.retry[0]
        return True

    def _after_failure(self) -> float:
        pause = self._spread(self._retry_seconds)
        self._retry_seconds = min(2 * self._retry_seconds, self._pace.retry[1])
        return pause

    def _after_round(self) -> float | None:
        """All has been sent at least once since the round began: rest until the next is due."""
        if not self._spool.stats().events:
            self._resend_seconds, self._resend_at = self._pace.resend[0], None
            return None
        now = self._steady()
        if self._resend_at is None:
            self._resend_at = now + self._spread(self._resend_seconds)
        if now < self._resend_at:
            return self._resend_at - now
        self._cursor, self._resend_at = 0, None
        self._resend_seconds = min(2 * self._resend_seconds, self._pace.resend[1])
        return 0.0

    def _start_over(self) -> None:
        self._connections += 1
        self._cursor, self._resend_at = 0, None
        self._resend_seconds, self._retry_seconds = self._pace.resend[0], self._pace.retry[0]
        self._wake.set()

    async def _hear(self, body: bytes) -> None:
        if len(body) > MAX_RECEIPT_BYTES:
            self._count(bad_receipts=1)
            return
        try:
            receipt = Receipt.model_validate_json(body)
        except (ValidationError, RecursionError):
            self._count(bad_receipts=1)
            return
        self._count(receipts=1)
        with contextlib.suppress(SpoolBusyError, TimeoutError):
            await asyncio.wait_for(self._spool.confirmed(receipt.event_ids), SPOOL_SECONDS)
        self._resend_seconds = self._pace.resend[0]

    def _count(self, sent: int = 0, failed: int = 0, receipts: int = 0, bad_receipts: int = 0) -> None:
        more = (sent, failed, receipts, bad_receipts)
        self._stats = UplinkStats(*(a + b for a, b in zip(self._stats, more, strict=True)))

    def _spread(self, seconds: float) -> float:
        return seconds * self._dice.uniform(1 - self._pace.spread, 1 + self._pace.spread)
