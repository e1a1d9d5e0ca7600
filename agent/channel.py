"""Requests to one server over connections that are kept, in the event loop. The grammar of HTTP is h11's.

For the systems that a drain talks to: it asks often and at once, and has no time for a handshake each time.
A client with proxies and redirects would cost the agent a sixth of its memory.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import h11

from agent.http import trusted
from agent.threads import Threads

READ_BYTES = 32 * 1024
MOST_KEPT = 4
# A connection that was silent for longer may be dead without anybody having said so.
KEPT_SECONDS = 5.0
# What one address of several is given: it may be that of a machine that is gone.
ADDRESS_SECONDS = 0.25
MOST_HANGING = 4
PORTS = {"http": 80, "https": 443}


class Answer(NamedTuple):
    """A whole answer. Names of headers are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytearray


class Streamed(NamedTuple):
    """An answer that goes on: what arrives, in parts as they come."""

    status: int
    parts: AsyncIterator[bytes]


class Channel:
    """Asks one server. No call ends by itself when the server is silent: its caller gives it a limit.

    Every call raises OSError for whatever is no usable answer; cancelling one drops its connection.
    """

    def __init__(self, url: str, ca_file: Path | None = None, *, most_bytes: int) -> None:
        """`ca_file` says whom to believe (None: the machine's own list). ValueError when `url` is none."""
        parts = urlsplit(url)
        if not parts.hostname or parts.scheme not in PORTS:
            raise ValueError(f"{url!r} is no http:// or https:// address")
        self._host, self._port = parts.hostname, parts.port or PORTS[parts.scheme]
        self._netloc, self._base = parts.netloc, parts.path.rstrip("/")
        self._believed = Believed(ca_file) if parts.scheme == "https" else None
        self._most_bytes = most_bytes
        self._threads = Threads("names", MOST_HANGING)
        self._kept: list[_Connection] = []

    async def ask(self, method: str, target: str, headers: Mapping[str, str], body: bytes = b"") -> Answer:
        """One request and its whole answer."""
        connection = await self._connection()
        try:
            with _told_as_os_errors():
                head = await connection.send(self._request(method, target, headers, body), body)
            content = bytearray()
            async for part in connection.parts():
                content += part
                if len(content) > self._most_bytes:
                    raise OSError(f"the answer is longer than {self._most_bytes} bytes")
        except BaseException:
            connection.drop()
            raise
        self._keep(connection)
        return Answer(head.status_code, _texts(head.headers), content)

    @asynccontextmanager
    async def open(
        self, target: str, headers: Mapping[str, str], limits: tuple[float, float]
    ) -> AsyncIterator[Streamed]:
        """GET an answer that is read while it comes. Its connection is kept when it was read to its end.

        `limits` are the seconds until its head is there, and that it may be silent afterwards.
        """
        head_seconds, silent_seconds = limits
        connection: _Connection | None = None
        try:
            with _told_as_os_errors():
                async with asyncio.timeout(head_seconds):
                    connection = await self._connection()
                    head = await connection.send(self._request("GET", target, headers, b""), b"")
            yield Streamed(head.status_code, connection.parts(silent_seconds))
        finally:
            if connection is not None:
                self._keep(connection)

    def close(self) -> None:
        """Let go of the kept connections; a later request makes new ones."""
        while self._kept:
            self._kept.pop().drop()

    def _request(self, method: str, target: str, headers: Mapping[str, str], body: bytes) -> h11.Request:
        sent = {"Host": self._netloc, "User-Agent": "sco-agent"} | dict(headers)
        if body:
            sent["Content-Length"] = str(len(body))
        return h11.Request(method=method, target=self._base + target, headers=list(sent.items()))

    def _keep(self, connection: _Connection) -> None:
        if len(self._kept) < MOST_KEPT and connection.rest():
            self._kept.append(connection)
        else:
            connection.drop()

    async def _connection(self) -> _Connection:
        while self._kept:
            connection = self._kept.pop()
            if connection.is_good():
                return connection
            connection.drop()
        return await self._connect()

    async def _connect(self) -> _Connection:
        context = None if self._believed is None else self._believed.context()
        *others, last = await self._addresses()
        for address in others:
            with suppress(OSError):
                async with asyncio.timeout(ADDRESS_SECONDS):
                    return await self._dial(address, context)
        return await self._dial(last, context)

    async def _dial(self, address: str, context: ssl.SSLContext | None) -> _Connection:
        name = None if context is None else self._host
        return _Connection(
            *await asyncio.open_connection(
                address, self._port, ssl=context, server_hostname=name, limit=READ_BYTES
            )
        )

    async def _addresses(self) -> list[str]:
        look = partial(socket.getaddrinfo, self._host, self._port, type=socket.SOCK_STREAM)
        try:
            found = look(flags=socket.AI_NUMERICHOST)
        except (socket.gaierror, UnicodeError):
            found = await self._threads.run(look)
        return list(dict.fromkeys(str(one[4][0]) for one in found))


class Believed:
    """Whom to believe: a file, read again when another was laid in its place, or the machine's own list."""

    def __init__(self, file: Path | None) -> None:
        self._file = file
        self._mark: tuple[int, int] | None = None
        self._context: ssl.SSLContext | None = None
        # Now, since a drain has no time for it; a file may come later than the agent.
        with suppress(OSError):
            self.context()

    def context(self) -> ssl.SSLContext:
        """Raises OSError when the file was never readable."""
        if self._file is None:
            return trusted()
        try:
            found = self._file.stat()
            mark = (found.st_ino, found.st_mtime_ns)
            if self._context is None or mark != self._mark:
                self._context, self._mark = ssl.create_default_context(cafile=self._file), mark
        except OSError:
            if self._context is None:
                raise
        return self._context


class _Connection:
    """One connection, and where it is in the grammar."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._grammar = h11.Connection(h11.CLIENT)
        self._rests_since = 0.0

    async def send(self, request: h11.Request, body: bytes) -> h11.Response:
        """Send a request whole; returns the head of its answer."""
        events = [request, h11.Data(data=body), h11.EndOfMessage()] if body else [request, h11.EndOfMessage()]
        self._writer.write(b"".join(self._grammar.send(event) or b"" for event in events))
        await self._writer.drain()
        while not isinstance(event := await self._next(), h11.Response):
            if not isinstance(event, h11.InformationalResponse):
                raise OSError("the server ended the connection without an answer")
        return event

    async def parts(self, silent_seconds: float | None = None) -> AsyncIterator[bytes]:
        """The body of the answer, as it comes. TimeoutError when nothing does for so long."""
        while True:
            with _told_as_os_errors():
                async with asyncio.timeout(silent_seconds):
                    event = await self._next()
            if not isinstance(event, h11.Data):
                return
            yield bytes(event.data)

    def rest(self) -> bool:
        """Whether another request may follow."""
        if self._grammar.our_state is not h11.DONE or self._grammar.their_state is not h11.DONE:
            return False
        self._rests_since = asyncio.get_running_loop().time()
        self._grammar.start_next_cycle()
        return True

    def is_good(self) -> bool:
        rested = asyncio.get_running_loop().time() - self._rests_since
        return rested < KEPT_SECONDS and not self._reader.at_eof() and not self._writer.is_closing()

    def drop(self) -> None:
        self._writer.transport.abort()

    async def _next(self) -> object:
        while (event := self._grammar.next_event()) is h11.NEED_DATA:
            read = await self._reader.read(READ_BYTES)
            if not read and self._grammar.their_state is h11.SEND_RESPONSE:
                raise OSError("the server ended the connection without an answer")
            self._grammar.receive_data(read)
        return event


@contextmanager
def _told_as_os_errors() -> Iterator[None]:
    try:
        yield
    except h11.RemoteProtocolError as error:
        raise OSError(f"no answer in HTTP: {error}") from error
    except (h11.LocalProtocolError, UnicodeError):
        # Its text may hold what was to be sent, such as a token.
        raise OSError("a request that HTTP does not allow") from None


def _texts(headers: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    return {name.decode("latin-1"): value.decode("latin-1") for name, value in headers}
