"""The node bus: one connection that is sought for ever and costs next to nothing while it cannot be had.

The client library reconnects by itself; what ends its patience (credentials that ran out, a server that
refuses) is met here by a new client with the credentials that are on disk by then.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import nats.errors
import nats.js.errors
from nats.aio.client import Client
from nats.aio.msg import Msg

from agent.http import trusted

RECONNECT_SECONDS = 2
# Between two clients, when the library gave one up.
NEW_CLIENT_SECONDS = 5.0
CONNECT_SECONDS = 3
PING_SECONDS = 20
UNANSWERED_PINGS = 2
# How long JetStream may take to acknowledge one event.
ACK_SECONDS = 5.0
# What may wait in memory: to be sent, and per subscription to be read.
MAX_OUT_BYTES = 1024 * 1024
MAX_IN_MESSAGES = 256
MAX_IN_BYTES = 1024 * 1024

Handler = Callable[[bytes], Awaitable[None]]

log = logging.getLogger(__name__)


class BusUnavailableError(OSError):
    """Nobody took the message, or nobody said so; it may have been taken all the same."""


class BusRefusedError(OSError):
    """The stream took note of the message and does not want it."""


class _Subscription(NamedTuple):
    subject: str
    handler: Handler


async def connect_bus(
    servers: Sequence[str],
    creds_path: Path | None,
    inbox_prefix: str,
    *,
    retry_seconds: float = NEW_CLIENT_SECONDS,
) -> NodeBus:
    """Begin to seek the bus and return at once. `close` ends it.

    The credentials are read anew at every connection. ValueError when no server is given.
    """
    if not servers:
        raise ValueError(
            "no server of the node bus is given: at least one nats:// or tls:// address is needed"
        )
    options: dict[str, Any] = {
        "servers": list(servers),
        "inbox_prefix": inbox_prefix,
        "user_credentials": None if creds_path is None else str(creds_path),
        "name": "sco-agent",
        "max_reconnect_attempts": -1,
        "reconnect_time_wait": RECONNECT_SECONDS,
        "connect_timeout": CONNECT_SECONDS,
        "ping_interval": PING_SECONDS,
        "max_outstanding_pings": UNANSWERED_PINGS,
        "pending_size": MAX_OUT_BYTES,
    }
    if any(server.startswith("tls://") for server in servers):
        # The library would read all of the machine's certificates for itself, at every connection.
        options["tls"] = trusted()
    bus = NodeBus(options, retry_seconds)
    bus.begin()
    return bus


class NodeBus:
    """Publishes to JetStream and hears core subjects, over whatever connection there is at the moment."""

    def __init__(self, options: dict[str, Any], retry_seconds: float) -> None:
        self._options, self._retry_seconds = options, retry_seconds
        self._client: Client | None = None
        self._subscriptions: list[_Subscription] = []
        self._listeners: list[Callable[[], None]] = []
        self._task: asyncio.Task[None] | None = None
        self._last_complaint = ""

    def begin(self) -> None:
        self._task = asyncio.create_task(self._stay_connected(), name="node bus")

    @property
    def connected(self) -> bool:
        return self._client is not None and self._client.is_connected

    def on_connected(self, listener: Callable[[], None]) -> None:
        """Call `listener` after every connection, the first one and each after a break."""
        self._listeners.append(listener)

    async def subscribe(self, subject: str, handler: Handler) -> None:
        """Give every message's body to `handler`, in order, now and after every new connection.

        A handler that raises is logged and called for the next message all the same.
        """
        subscription = _Subscription(subject, handler)
        self._subscriptions.append(subscription)
        client = self._client
        if client is not None and not client.is_closed:
            with contextlib.suppress(nats.errors.Error):
                await _listen(client, subscription)

    async def publish(self, subject: str, body: bytes, message_id: str) -> None:
        """Return when JetStream has taken the message. Raises BusUnavailableError or BusRefusedError."""
        client = self._client
        if client is None or not client.is_connected:
            raise BusUnavailableError("the node bus is not connected")
        try:
            stream = client.jetstream()
            await stream.publish(subject, body, timeout=ACK_SECONDS, headers={"Nats-Msg-Id": message_id})
        except nats.js.errors.NoStreamResponseError as error:
            raise BusUnavailableError(f"no stream takes {subject}") from error
        except (nats.js.errors.APIError, nats.errors.MaxPayloadError) as error:
            raise BusRefusedError(f"{subject}: {error}") from error
        except (nats.errors.Error, TimeoutError, OSError, ValueError, KeyError) as error:
            raise BusUnavailableError(f"{subject}: {type(error).__name__}") from error

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        await _end(self._client)

    async def _stay_connected(self) -> None:
        while True:
            closed = asyncio.Event()
            client = Client()
            try:
                await client.connect(
                    **self._options,
                    error_cb=self._complain,
                    reconnected_cb=self._tell_connected,
                    closed_cb=_setter(closed),
                )
                self._client = client
                for subscription in self._subscriptions:
                    await _listen(client, subscription)
                await self._tell_connected()
                await closed.wait()
            except asyncio.CancelledError:
                await _end(client)
                raise
            except Exception as error:
                await self._complain(error)
            await _end(client)
            await asyncio.sleep(self._retry_seconds)

    async def _tell_connected(self) -> None:
        self._last_complaint = ""
        for listener in self._listeners:
            listener()

    async def _complain(self, error: Exception) -> None:
        # Once per outage and kind, not once per attempt.
        complaint = f"{type(error).__name__} {str(error)[:200]}"
        if complaint != self._last_complaint:
            log.warning("the node bus: %s", complaint)
        self._last_complaint = complaint


async def _listen(client: Client, subscription: _Subscription) -> None:
    async def hear(message: Msg) -> None:
        try:
            await subscription.handler(message.data)
        except Exception:
            log.exception("a message on %s could not be handled", subscription.subject)

    await client.subscribe(
        subscription.subject,
        cb=hear,
        pending_msgs_limit=MAX_IN_MESSAGES,
        pending_bytes_limit=MAX_IN_BYTES,
    )


def _setter(event: asyncio.Event) -> Callable[[], Awaitable[None]]:
    async def set_it() -> None:
        event.set()

    return set_it


async def _end(client: Client | None) -> None:
    if client is not None and not client.is_closed:
        with contextlib.suppress(Exception):
            await asyncio.wait_for(client.close(), CONNECT_SECONDS)
