"""An example of a consumer: every event takes effect exactly once, and in order for each pool.

`python -m lab.consumer nats://127.0.0.1:4222 board.sqlite` keeps a board of pools and the models on them.
What makes the effect happen once is one transaction of the consumer's own store: it holds the effect and the
id of the event, and JetStream is told only afterwards. What keeps the order is that JetStream hands out the
next event when the one before it is confirmed.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sqlite3
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import nats
import structlog
from nats.aio.client import Client as NatsClient
from nats.aio.msg import Msg
from nats.js import JetStreamContext
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy

from wire.events import (
    MODEL_EVICTED,
    MODEL_WARMED,
    POOL_REGISTERED,
    POOL_STATE_CHANGED,
    STREAM,
    STREAM_SUBJECTS,
)

USAGE = "usage: python -m lab.consumer NATS_URL FILE"
WAIT_SECONDS = 1.0
TROUBLE_SECONDS = 1.0
# Longer than an effect takes: what is not confirmed by then is delivered again.
ACK_WAIT_SECONDS = 30.0
# Longer than the stream and the outbox together keep an event: no repeat comes later than that.
REMEMBER = timedelta(days=40)

Event = Mapping[str, Any]
Effect = Callable[[sqlite3.Connection, Event], None]
log = structlog.get_logger("consumer")

TABLES = """
    CREATE TABLE IF NOT EXISTS told (
      number INTEGER PRIMARY KEY, event_id TEXT NOT NULL UNIQUE, partitionkey TEXT NOT NULL,
      sequence TEXT NOT NULL, type TEXT NOT NULL, at TEXT NOT NULL);
    CREATE TABLE IF NOT EXISTS pools (
      tenant_id TEXT, pool_id TEXT, state TEXT NOT NULL, PRIMARY KEY (tenant_id, pool_id));
    CREATE TABLE IF NOT EXISTS models (
      tenant_id TEXT, pool_id TEXT, model TEXT, vram_gb INTEGER NOT NULL,
      PRIMARY KEY (tenant_id, pool_id, model));
"""
STATE = "INSERT INTO pools VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET state = excluded.state"
WARM = "INSERT INTO models VALUES (?, ?, ?, ?) ON CONFLICT DO UPDATE SET vram_gb = excluded.vram_gb"
EVICT = "DELETE FROM models WHERE (tenant_id, pool_id, model) = (?, ?, ?)"


def keep_board(store: sqlite3.Connection, event: Event) -> None:
    """The effect: pools with their states, and the models that are loaded on them."""
    data = event["data"]
    kind = event["type"]
    if kind == POOL_REGISTERED:
        store.execute(STATE, (data["tenantId"], data["poolId"], data["state"]))
    elif kind == POOL_STATE_CHANGED:
        store.execute(STATE, (data["tenantId"], data["poolId"], data["toState"]))
    elif kind == MODEL_WARMED:
        store.execute(WARM, (data["tenantId"], data["poolId"], data["model"], data["vramGb"]))
    elif kind == MODEL_EVICTED:
        store.execute(EVICT, (data["tenantId"], data["poolId"], data["model"]))


async def _told_by_run(error: Exception) -> None:
    """What ends a session is told there in one line, without the client's own traceback."""
    del error


class Consumer:
    """Reads the stream under one durable name. Whoever starts it again goes on where it was."""

    def __init__(
        self,
        nats_url: str,
        file: Path,
        *,
        name: str = "board",
        effect: Effect = keep_board,
        now: Callable[[], datetime],
    ) -> None:
        self._nats_url = nats_url
        self._file = file
        self._name = name
        self._effect = effect
        self._now = now

    async def run(self, stop: asyncio.Event) -> None:
        """Consume until `stop` is set. Without NATS, or after the loss of its stream, it begins again."""
        store = sqlite3.connect(self._file)
        try:
            store.executescript(f"PRAGMA journal_mode = WAL; {TABLES}")
            with store:
                store.execute("DELETE FROM told WHERE at < ?", ((self._now() - REMEMBER).isoformat(),))
            while not stop.is_set():
                try:
                    await self._session(store, stop)
                except Exception as error:
                    log.warning("consumer_waits", problem=f"{type(error).__name__}: {error}")
                    with suppress(TimeoutError):
                        await asyncio.wait_for(stop.wait(), TROUBLE_SECONDS)
        finally:
            store.close()

    async def _session(self, store: sqlite3.Connection, stop: asyncio.Event) -> None:
        client = await nats.connect(
            self._nats_url,
            name=self._name,
            connect_timeout=3,
            max_reconnect_attempts=1,
            error_cb=_told_by_run,
        )
        try:
            pull = await self._subscribe(client)
            while not stop.is_set():
                try:
                    (message,) = await pull.fetch(1, timeout=WAIT_SECONDS)
                except TimeoutError:
                    await pull.consumer_info()
                    continue
                await self._take(store, message)
        finally:
            await client.close()

    async def _subscribe(self, client: NatsClient) -> JetStreamContext.PullSubscription:
        """Our durable consumer: of all events, from the first, one after the other."""
        config = ConsumerConfig(
            ack_policy=AckPolicy.EXPLICIT,
            ack_wait=ACK_WAIT_SECONDS,
            deliver_policy=DeliverPolicy.ALL,
            max_ack_pending=1,
        )
        return await client.jetstream().pull_subscribe(
            STREAM_SUBJECTS[0], durable=self._name, stream=STREAM, config=config
        )

    async def _take(self, store: sqlite3.Connection, message: Msg) -> None:
        """Commit effect and id together, then confirm. What fails is given back, and comes first again."""
        try:
            if self.commit(store, json.loads(message.data)):
                log.info("event_taken", subject=message.subject)
        except Exception:
            await message.nak(delay=TROUBLE_SECONDS)
            raise
        await message.ack()

    def commit(self, store: sqlite3.Connection, event: Event) -> bool:
        """Let an event take effect unless it did before; whether it did now."""
        row = (event["id"], event["partitionkey"], event["sequence"], event["type"], self._now().isoformat())
        with store:
            added = store.execute(
                "INSERT INTO told (event_id, partitionkey, sequence, type, at) VALUES (?, ?, ?, ?, ?)"
                " ON CONFLICT DO NOTHING",
                row,
            )
            if added.rowcount == 0:
                return False
            self._effect(store, event)
        return True


async def _main(nats_url: str, file: Path) -> None:
    stop = asyncio.Event()
    for name in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(name, stop.set)
    await Consumer(nats_url, file, now=lambda: datetime.now(UTC)).run(stop)


def main(arguments: list[str]) -> int:
    if len(arguments) != 2:  # noqa: PLR2004 an address and a file
        print(USAGE, file=sys.stderr)
        return 2
    asyncio.run(_main(arguments[0], Path(arguments[1])))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
