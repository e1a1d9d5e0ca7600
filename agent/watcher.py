"""Hears notices: pushed over the node bus and laid down in the metadata. Whichever comes first wins."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent.bounded import describe
from agent.bundle import BundleStore
from agent.clock import Clock
from agent.listener import Listener, Source
from agent.metadata import Laid, Metadata
from agent.metrics import AgentMetrics
from wire.node import inbox_prefix, notice_subject

if TYPE_CHECKING:
    from agent.bus import NodeBus

WATCH_SECONDS = 1.0
# A source that was silent for three polls does not answer.
SILENT_POLLS = 3
log = logging.getLogger("sco.agent")


class Push:
    """Notices over the node bus, and events on their way back: a connection that is sought for ever."""

    def __init__(
        self,
        servers: tuple[str, ...],
        credentials: Path,
        *,
        instance_id: str,
        bundles: BundleStore,
        listener: Listener,
        metrics: AgentMetrics,
        beside: Callable[[NodeBus, str], Coroutine[Any, Any, None]],
    ) -> None:
        """`servers` go before those of the bundle; `beside` runs on each bus, for the hall it is given."""
        self._servers, self._credentials = servers, credentials
        self._instance_id, self._bundles, self._listener = instance_id, bundles, listener
        self._up, self._beside = metrics.source_up.labels(Source.PUSH), beside
        self._bus: NodeBus | None = None

    @property
    def is_up(self) -> bool:
        return self._bus is not None and self._bus.connected

    async def connects(self, seconds: float) -> bool:
        """Whether the bus lets this node in within that time. Nothing is heard or said."""
        wanted = self._wanted()
        if wanted is None:
            return False
        from agent.bus import connect_bus  # noqa: PLC0415 - a node without a bus does not load its client

        bus = await connect_bus(wanted[1], wanted[2], inbox_prefix(self._instance_id))
        connected = asyncio.Event()
        bus.on_connected(connected.set)
        try:
            return await asyncio.wait_for(connected.wait(), seconds)
        except TimeoutError:
            return False
        finally:
            await bus.close()

    async def run(self) -> None:
        """Hold the subscription while servers, hall and credentials stay what they are."""
        wanted = self._wanted()
        if wanted is None:
            self._up.set(0)
            await asyncio.sleep(WATCH_SECONDS)
            return
        from agent.bus import connect_bus  # noqa: PLC0415 - a node without a bus does not load its client

        hall, servers, credentials = wanted
        bus = await connect_bus(servers, credentials, inbox_prefix(self._instance_id))
        beside = asyncio.ensure_future(self._beside(bus, hall))
        try:
            await bus.subscribe(notice_subject(hall, self._instance_id), self._hear)
            self._bus = bus
            while self._wanted() == wanted and not beside.done():
                self._up.set(bus.connected)
                await asyncio.sleep(WATCH_SECONDS)
        finally:
            self._bus = None
            self._up.set(0)
            beside.cancel()
            await bus.close()

    def _wanted(self) -> tuple[str, tuple[str, ...], Path | None] | None:
        bundle = self._bundles.bundle
        servers = self._servers or (bundle.node_bus if bundle else ())
        if bundle is None or not servers:
            return None
        return bundle.hall, servers, self._credentials if self._credentials.exists() else None

    async def _hear(self, letter: bytes) -> None:
        self._listener.hear((letter,), Source.PUSH)


class Poll:
    """Notices laid down in the metadata, looked for every few seconds whatever became of the last look."""

    def __init__(
        self,
        metadata: Metadata,
        *,
        listener: Listener,
        metrics: AgentMetrics,
        clock: Clock,
        seconds: float,
        laid: Callable[[Laid], None] = lambda laid: None,
    ) -> None:
        """`laid` is told everything that was read besides the notices."""
        self._metadata, self._listener, self._clock, self._seconds = metadata, listener, clock, seconds
        self._laid = laid
        self._up = metrics.source_up.labels(Source.POLL)
        self._answered_at: float | None = None

    @property
    def is_up(self) -> bool:
        within = self._seconds * SILENT_POLLS
        return self._answered_at is not None and self._clock.boot() - self._answered_at <= within

    async def answers(self) -> bool:
        """Whether the service answers now. What it says is not listened to."""
        try:
            await self._metadata.laid()
        except Exception as error:
            log.info("the metadata service does not answer: %s", describe(error))
            return False
        return True

    async def run(self) -> None:
        while True:
            began = self._clock.boot()
            await self.look()
            await asyncio.sleep(max(0.0, self._seconds - (self._clock.boot() - began)))

    async def look(self) -> None:
        """One look. What goes wrong is logged once, and the next look is made as if nothing had been."""
        was_up = self.is_up
        try:
            laid = await self._metadata.laid()
        except Exception as error:
            if was_up:
                log.warning("the metadata service does not answer: %s", describe(error))
            self._up.set(self.is_up)
            return
        self._answered_at = self._clock.boot()
        self._up.set(1)
        self._listener.hear(laid.notices, Source.POLL)
        self._laid(laid)
