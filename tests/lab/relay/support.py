"""A relay of a test: its key, its token, its bus, and instances that listen."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import nats
from nats.aio.client import Client as NatsClient
from nats.aio.subscription import Subscription

from lab.relay.admission import write_private
from lab.relay.bus import NodeBus
from lab.relay.keys import write_new_key
from lab.relay.server import RelaySettings, RunningRelay
from lab.stack.nats import taken_in
from wire.node import inbox_prefix, notice_subject
from wire.notices import Notice, read_notice
from wire.signing import KeyRing

HALL = "eu-north-1a"
TOKEN = "the-providers-token"
KEY_ID = "relay-1"
PATIENCE_SECONDS = 15.0


def settings_in(folder: Path, bus: NodeBus) -> RelaySettings:
    """What a relay is told, in a folder of its own; a second call in the same folder keeps the key."""
    key = folder / "relay-key.pem"
    if not key.exists():
        write_new_key(key, KEY_ID)
    return RelaySettings(
        bus=(bus.url,),
        bus_credentials=bus.admission.relay_file(),
        key_file=key,
        key_id=KEY_ID,
        token_file=write_private(folder / "token", TOKEN),
        journal=folder / "journal",
    )


class Listener:
    """One instance's ear on the bus."""

    def __init__(self, instance_id: str, client: NatsClient, heard: Subscription, ring: KeyRing) -> None:
        self.instance_id = instance_id
        self._client = client
        self._heard = heard
        self._ring = ring

    async def next(self) -> Notice:
        message = await self._heard.next_msg(timeout=PATIENCE_SECONDS)
        notice = read_notice(message.data, self._ring, self.instance_id)
        assert isinstance(notice, Notice), notice
        return notice

    async def close(self) -> None:
        await self._client.close()


@asynccontextmanager
async def listening(bus: NodeBus, running: RunningRelay, folder: Path) -> AsyncIterator[Listener]:
    """A new instance, admitted by a token of its own."""
    instance_id = str(uuid.uuid4())
    file = write_private(folder / f"{instance_id}.creds", bus.admission.agent_credentials(HALL, instance_id))
    client = await nats.connect(
        bus.url,
        user_credentials=str(file),
        inbox_prefix=inbox_prefix(instance_id).encode(),
        max_reconnect_attempts=-1,
        reconnect_time_wait=0.1,
    )
    heard = await client.subscribe(notice_subject(HALL, instance_id))
    await taken_in(client)
    ring = KeyRing({running.key.key_id: running.key.public_text})
    try:
        yield Listener(instance_id, client, heard, ring)
    finally:
        await client.close()
