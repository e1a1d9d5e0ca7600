"""The provider's side of the node plane in one event loop: bus, relay, metadata, and the end of instances."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import nats
from nats.js.api import StorageType, StreamConfig
from nats.js.errors import NotFoundError

from lab.nodes.metadata import REPEATED_SECONDS, MetadataServer, MetadataService, Target
from lab.nodes.papers import Papers
from lab.reclaimer.terminator import Terminator
from lab.relay.admission import HISTORY, write_private
from lab.relay.bus import NodeBus
from lab.relay.keys import read_key, write_new_key
from lab.relay.server import RelaySettings, RunningRelay
from wire.node import STREAM, STREAM_MAX_AGE, STREAM_SUBJECTS, inbox_prefix
from wire.signing import SigningKey

KEY_ID, KEY_FILE, BUS_FOLDER = "relay-1", "relay-key.pem", "bus"
RECLAIMER = "reclaimer"


def relay_key(folder: Path) -> SigningKey:
    """The key that the relay of this folder signs with, made when it is first asked for."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = folder / KEY_FILE
    return read_key(path, KEY_ID) if path.exists() else write_new_key(path, KEY_ID)


class Provider:
    """A running bus, relay and metadata service. Nothing of the control plane is needed for it."""

    def __init__(
        self,
        folder: Path,
        *,
        cache_seconds: float = REPEATED_SECONDS,
        targets: Mapping[str, Target] | None = None,
    ) -> None:
        """`targets` are dynamic vendordata targets besides the relay, by name."""
        self.bus = NodeBus(folder / BUS_FOLDER)
        self.token = secrets.token_urlsafe()
        relay_key(folder)
        self.relay = RunningRelay(
            RelaySettings(
                bus=(self.bus.url,),
                bus_credentials=self.bus.admission.relay_file(),
                key_file=folder / KEY_FILE,
                key_id=KEY_ID,
                token_file=write_private(folder / "relay-token", self.token),
                journal=folder / "journal",
            )
        )
        signed = self.relay.key
        self.papers = Papers(self.bus.admission, self.bus.url, {signed.key_id: signed.public_text})
        service = MetadataService({RECLAIMER: self._notices, **(targets or {})}, cache_seconds)
        self.metadata = MetadataServer(service)

    @asynccontextmanager
    async def serving(self, end: Callable[[str], Awaitable[None]] | None = None) -> AsyncIterator[Provider]:
        """Run everything until left. `end` is told each instance whose deadline has come."""
        await asyncio.to_thread(self.bus.start)
        try:
            await self._declare_stream()
            async with self.relay.serving(), self.metadata.serving(), self._terminating(end):
                yield self
        finally:
            await asyncio.to_thread(self.bus.stop)

    @asynccontextmanager
    async def _terminating(self, end: Callable[[str], Awaitable[None]] | None) -> AsyncIterator[None]:
        if end is None:
            yield
            return
        terminator = Terminator(self.relay.relay.standing, end, lambda: datetime.now(UTC))
        task = asyncio.create_task(terminator.run())
        try:
            yield
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def _notices(self, instance_id: str) -> Mapping[str, Any]:
        return {"notices": self.relay.relay.letters(instance_id)}

    async def _declare_stream(self) -> None:
        """What the history declares where it comes first: nodes are heard before the control plane runs."""
        async with asyncio.timeout(10):
            client = await nats.connect(
                self.bus.url,
                user_credentials=str(self.bus.admission.history_file()),
                inbox_prefix=inbox_prefix(HISTORY).encode(),
            )
            config = StreamConfig(
                name=STREAM,
                subjects=list(STREAM_SUBJECTS),
                max_age=STREAM_MAX_AGE.total_seconds(),
                storage=StorageType.FILE,
            )
            stream = client.jetstream()
            try:
                await stream.stream_info(STREAM)
            except NotFoundError:
                await stream.add_stream(config)
            await client.close()
