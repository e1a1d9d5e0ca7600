"""A server that says what it was told to say, byte by byte, whatever it is asked."""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress

LENGTH = re.compile(rb"(?i)content-length: (\d+)")


class Scripted:
    """Answers one request after the other with the next of `says`, and hangs up when it has nothing to say.

    With `leaves` it hangs up once it has said the last.
    """

    def __init__(self, says: Sequence[bytes], *, leaves: bool) -> None:
        self.says = list(says)
        self._leaves = leaves
        self.heard: list[bytes] = []
        self.connections = 0
        self.open = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.open += 1
        with suppress(OSError, asyncio.IncompleteReadError):
            while True:
                await self._hear(reader)
                if not self.says:
                    break
                writer.write(self.says.pop(0))
                await writer.drain()
                if self._leaves and not self.says:
                    break
        self.open -= 1
        writer.close()

    async def until_open(self, most: int = 0) -> None:
        """Until no more than so many connections are open."""
        for _ in range(4000):
            if self.open <= most:
                return
            await asyncio.sleep(0.005)
        raise AssertionError(f"{self.open} connections stay open")

    async def _hear(self, reader: asyncio.StreamReader) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = LENGTH.search(head)
        self.heard.append(head + (await reader.readexactly(int(length[1])) if length else b""))


@asynccontextmanager
async def scripted(
    *says: bytes, tls: ssl.SSLContext | None = None, host: str = "127.0.0.1", leaves: bool = False
) -> AsyncIterator[tuple[Scripted, str]]:
    """The server, and its address."""
    server = Scripted(says, leaves=leaves)
    async with await asyncio.start_server(server.serve, host, 0, ssl=tls) as listening:
        port = listening.sockets[0].getsockname()[1]
        yield server, f"{'https' if tls else 'http'}://{host}:{port}"


def answer(body: bytes, status: str = "200 OK", *more: str) -> bytes:
    lines = (f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *more)
    return "".join(f"{line}\r\n" for line in lines).encode() + b"\r\n" + body


def chunked(*parts: bytes, ends: bool = True) -> bytes:
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    return head + b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts) + (b"0\r\n\r\n" * ends)
