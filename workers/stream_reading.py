"""The life of a durable pull consumer: read in rounds, say trouble once, and begin again."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import nats
from nats.aio.client import Client as NatsClient
from nats.aio.msg import Msg
from nats.errors import Error as NatsError
from nats.js import JetStreamContext
from nats.js.api import ConsumerConfig, StreamConfig
from nats.js.errors import NotFoundError

BATCH = 200
WAIT_SECONDS = 1.0
TROUBLE_SECONDS = 2.0
CONNECT_SECONDS = 3

Take = Callable[[NatsClient, Sequence[Msg]], Awaitable[None]]


class Entry(NamedTuple):
    """Where to connect, and as whom: `credentials` is a NATS credentials file."""

    url: str
    name: str
    credentials: Path | None = None
    inbox_prefix: str = "_INBOX"


class Source(NamedTuple):
    """A stream, which is made where it is missing, and our durable consumer of it."""

    stream: StreamConfig
    durable: str
    consumer: ConsumerConfig


class Tell(NamedTuple):
    """Who is told: `trouble` once for an outage, however long, and `failed` at each of its rounds."""

    failed: Callable[[], None]
    trouble: Callable[[str], None]
    recovered: Callable[[str], None]


class StreamReader:
    """Gives what comes to `take`, which confirms each message or raises to have the rest delivered again.

    Several processes may read with the same durable name: a message goes to one of them.
    """

    def __init__(self, entry: Entry, source: Source, take: Take, tell: Tell) -> None:
        self._entry, self._source, self._take, self._tell = entry, source, take, tell
        self._problem = ""

    async def run(self, stop: asyncio.Event) -> None:
        """Read until `stop` is set. Without the bus, or while `take` fails, it waits and tries again."""
        while not stop.is_set():
            try:
                await self._session(stop)
            except Exception as error:
                self._failed(error)
                with suppress(TimeoutError):
                    await asyncio.wait_for(stop.wait(), TROUBLE_SECONDS)

    def _failed(self, error: Exception) -> None:
        self._tell.failed()
        problem = f"{type(error).__name__}: {error}"
        if problem != self._problem:
            self._tell.trouble(problem)
        self._problem = problem

    async def _session(self, stop: asyncio.Event) -> None:
        entry = self._entry
        client = await nats.connect(
            entry.url,
            name=entry.name,
            user_credentials=None if entry.credentials is None else str(entry.credentials),
            inbox_prefix=entry.inbox_prefix.encode(),
            connect_timeout=CONNECT_SECONDS,
            max_reconnect_attempts=1,
            error_cb=_leave_it_to_the_session,
        )
        try:
            pull = await self._subscribe(client)
            if self._problem:
                self._tell.recovered(self._problem)
                self._problem = ""
            while not stop.is_set():
                await self._round(client, pull)
        finally:
            await client.close()

    async def _subscribe(self, client: NatsClient) -> JetStreamContext.PullSubscription:
        """Our durable consumer, with the stream that it reads, also after the store of either was lost."""
        stream, wanted = client.jetstream(), self._source.stream
        assert wanted.name is not None, "a stream that is read has a name"
        assert wanted.subjects, "a stream that is read has subjects"
        try:
            await stream.stream_info(wanted.name)
        except NotFoundError:
            await stream.add_stream(wanted)
        return await stream.pull_subscribe(
            wanted.subjects[0],
            durable=self._source.durable,
            stream=wanted.name,
            config=self._source.consumer,
        )

    async def _round(self, client: NatsClient, pull: JetStreamContext.PullSubscription) -> None:
        try:
            messages = await pull.fetch(BATCH, timeout=WAIT_SECONDS)
        except TimeoutError:
            await pull.consumer_info()
            return
        try:
            await self._take(client, messages)
        except Exception:
            await _give_back(messages)
            raise


async def _give_back(messages: Sequence[Msg]) -> None:
    """Have messages that were not confirmed delivered again soon; without a connection it takes longer."""
    with suppress(NatsError, OSError):
        for message in messages:
            if not message.is_acked:
                await message.nak(delay=TROUBLE_SECONDS)


async def _leave_it_to_the_session(error: Exception) -> None:
    """The client's own log of trouble: the session fails of the same and says it once."""
