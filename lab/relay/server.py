"""Running the relay: the bus connection, the HTTP door and the loop that repeats, in one event loop."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

import nats
import uvicorn
from nats.aio.client import Client as NatsClient
from pydantic import BaseModel, ConfigDict, Field

from lab.relay.admission import RELAY
from lab.relay.journal import Journal
from lab.relay.keys import read_key
from lab.relay.relay import NoticeRelay
from lab.relay.web import RelayDoor
from lab.stack.ports import LOOPBACK, listen_on
from wire.node import inbox_prefix

START_SECONDS = 20.0
STOP_SECONDS = 1
RECONNECT_SECONDS = 1


class RelaySettings(BaseModel):
    """What the relay is told. Files hold the secrets: the signing key, the token and the bus credentials."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    bus: tuple[str, ...] = Field(min_length=1)
    bus_credentials: Path | None = None
    key_file: Path
    key_id: str = Field(min_length=1, max_length=255)
    token_file: Path
    journal: Path
    port: int = Field(default=0, ge=0, le=65_535)


class RunningRelay:
    """A relay bound to a loopback port, which is known before it serves."""

    def __init__(self, settings: RelaySettings) -> None:
        self._settings = settings
        self._token = settings.token_file.read_text().strip()
        if not self._token:
            raise ValueError(f"{settings.token_file} is empty: it must hold the token that decisions bring")
        self._client = NatsClient()
        self._journal = Journal(settings.journal)
        self.key = read_key(settings.key_file, settings.key_id)
        self.relay = NoticeRelay(
            self.key,
            self._client.publish,
            clock=lambda: datetime.now(UTC),
            new_id=uuid.uuid4,
            journal=self._journal,
        )
        self._socket = listen_on(settings.port)
        self.base_url = f"http://{LOOPBACK}:{self._socket.getsockname()[1]}"
        config = uvicorn.Config(
            RelayDoor(self.relay, self._token).app(),
            log_level="warning",
            access_log=False,
            server_header=False,
            lifespan="off",
            timeout_graceful_shutdown=STOP_SECONDS,
        )
        self.server = uvicorn.Server(config)

    async def serve(self) -> None:
        """Serve until told to stop. Without a bus it serves too: the metadata shows what stands."""
        connecting = asyncio.create_task(self._connect())
        repeating = asyncio.create_task(self.relay.run())
        try:
            await self.server.serve(sockets=[self._socket])
        finally:
            for task in (connecting, repeating):
                task.cancel()
            await asyncio.gather(connecting, repeating, return_exceptions=True)
            await _bounded_close(self._client)
            self._journal.close()

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[RunningRelay]:
        """The relay served in this event loop and connected to its bus, until left."""
        task = asyncio.create_task(self.serve())
        try:
            async with asyncio.timeout(START_SECONDS):
                while not (self.server.started and self._client.is_connected):
                    if task.done():
                        raise RuntimeError(f"the relay at {self.base_url} did not start")
                    await asyncio.sleep(0.005)
            yield self
        finally:
            self.server.should_exit = True
            await task

    async def _connect(self) -> None:
        """Connect, at first and for ever after; what stands is said once more each time."""
        while True:
            try:
                await self._client.connect(
                    list(self._settings.bus),
                    name="notice-relay",
                    inbox_prefix=inbox_prefix(RELAY).encode(),
                    user_credentials=str(self._settings.bus_credentials)
                    if self._settings.bus_credentials
                    else None,
                    max_reconnect_attempts=-1,
                    reconnect_time_wait=RECONNECT_SECONDS,
                    connect_timeout=2,
                    reconnected_cb=self.relay.push_again,
                    error_cb=_leave_to_the_retry,
                )
            except (OSError, nats.errors.Error, TimeoutError):
                await asyncio.sleep(RECONNECT_SECONDS)
            else:
                await self.relay.push_again()
                return


async def _leave_to_the_retry(_: Exception) -> None:
    """The client tries again by itself; the count of failed pushes tells of it."""


async def _bounded_close(client: NatsClient) -> None:
    with contextlib.suppress(Exception):
        async with asyncio.timeout(STOP_SECONDS):
            await client.close()
