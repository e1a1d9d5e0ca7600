"""Single HTTP requests with the standard library, each bounded in size and given up when its caller does.

An agent asks twice in some seconds at most. A client with a pool would cost a tenth of its memory.
"""

from __future__ import annotations

import functools
import socket
import ssl
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import datetime
from email.utils import parsedate_to_datetime
from http.client import HTTPConnection, HTTPResponse, HTTPSConnection
from typing import NamedTuple
from urllib.parse import urlsplit

from agent.threads import Threads

PART = 16 * 1024
# Threads that hang where nothing can cut them off.
MOST_HANGING = 8


class Reply(NamedTuple):
    """One answer: its status, its date, and the caller's steady seconds before it was asked for and at its
    head. `body` is None when it is larger than was allowed."""

    status: int
    date: datetime | None
    asked_at: float
    answered_at: float
    body: bytes | None


class Request(NamedTuple):
    """What is asked. `url` says of which host and whether over TLS; `target` stands in the request line."""

    method: str
    url: str
    target: str
    body: bytes = b""
    headers: Mapping[str, str] = {}


class Http:
    """Asks in threads of its own, through no proxy, and follows no redirect.

    `steady` is the clock of the replies, `seconds` how long each step of an exchange may take.
    """

    def __init__(self, steady: Callable[[], float], seconds: float, max_bytes: int) -> None:
        self._steady, self._seconds, self._max_bytes = steady, seconds, max_bytes
        self._threads = Threads("http", MOST_HANGING)

    async def ask(self, request: Request) -> Reply:
        """One request over one connection. Raises OSError for whatever is no usable answer.

        When the caller is cancelled the connection is cut, and the thread ends with it.
        """
        exchange = _Exchange(request, self._steady, self._seconds, self._max_bytes)
        try:
            return await self._threads.run(exchange.run)
        finally:
            exchange.cut()


class _Exchange:
    """One request in its thread; `cut` may come from another at any moment."""

    def __init__(self, request: Request, steady: Callable[[], float], seconds: float, max_bytes: int) -> None:
        self._request, self._steady, self._seconds, self._max_bytes = request, steady, seconds, max_bytes
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._is_cut = False

    def run(self) -> Reply:
        asked, asked_at = self._request, self._steady()
        connection = self._connection()
        try:
            self._connect(connection)
            connection.request(asked.method, asked.target, asked.body or None, dict(asked.headers))
            with connection.getresponse() as response:
                answered_at = self._steady()
                date = _date(response.getheader("date", ""))
                return Reply(response.status, date, asked_at, answered_at, self._read(response))
        finally:
            connection.close()

    def cut(self) -> None:
        with self._lock:
            self._is_cut = True
            if self._socket is not None:
                with suppress(OSError):
                    # Past TLS, which another thread may be reading through.
                    socket.socket.shutdown(self._socket, socket.SHUT_RDWR)

    def _connection(self) -> HTTPConnection:
        url = urlsplit(self._request.url)
        if url.scheme == "https":
            return HTTPSConnection(url.hostname or "", url.port, timeout=self._seconds, context=trusted())
        return HTTPConnection(url.hostname or "", url.port, timeout=self._seconds)

    def _connect(self, connection: HTTPConnection) -> None:
        """Here and not by the connection itself, so that a handshake that hangs can be cut as well."""
        connection.sock = socket.create_connection((connection.host, connection.port), self._seconds)
        if isinstance(connection, HTTPSConnection):
            connection.sock = trusted().wrap_socket(
                connection.sock, server_hostname=connection.host, do_handshake_on_connect=False
            )
        with self._lock:
            self._socket = connection.sock
            if self._is_cut:
                raise OSError("given up")
        if isinstance(connection.sock, ssl.SSLSocket):
            connection.sock.do_handshake()

    def _read(self, response: HTTPResponse) -> bytes | None:
        body, part = bytearray(), bytearray(PART)
        while count := response.readinto(part):
            body += part[:count]
            if len(body) > self._max_bytes:
                return None
        if response.length:
            raise OSError("the answer was cut short")
        return bytes(body)


@functools.cache
def trusted() -> ssl.SSLContext:
    """The machine's own certificates, read once for all: a private cloud has an authority of its own."""
    return ssl.create_default_context()


def _date(text: str) -> datetime | None:
    try:
        date = parsedate_to_datetime(text)
    except (TypeError, ValueError, IndexError, OverflowError):
        return None
    return date if date.tzinfo is not None else None
