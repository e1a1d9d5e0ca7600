"""A serving endpoint over real HTTP, in any mood: it answers, fails, hangs, breaks off, or is not there."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from enum import StrEnum

LOOPBACK = "127.0.0.1"
GOOD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 15\r\n\r\n"
BODY = b'{"status":"ok"}'
BAD = b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\n\r\n"


class Mood(StrEnum):
    """`half` sends headers and a part of the body, then closes; `silent` takes requests and says nothing."""

    WELL = "well"
    FAILING = "failing"
    SILENT = "silent"
    HALF = "half"
    GARBAGE = "garbage"
    SLOW_DRIP = "slow_drip"


SAID = {
    Mood.WELL: GOOD + BODY,
    Mood.FAILING: BAD,
    Mood.HALF: GOOD + BODY[:7],
    Mood.GARBAGE: b"\x00\xff",
}


class MoodyEndpoint:
    """One endpoint; use `open` and `close`, as often as wanted, at the same port."""

    def __init__(self) -> None:
        self.mood = Mood.WELL
        self.asked = 0
        self.port = 0
        self._server: asyncio.Server | None = None
        self._answering: set[asyncio.Task[None]] = set()

    @property
    def reference(self) -> str:
        return f"openai+http://{LOOPBACK}:{self.port}"

    async def open(self) -> None:
        self._server = await asyncio.start_server(self._answer, LOOPBACK, self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        """The process is gone: connections end, and none is taken."""
        if self._server is not None:
            self._server.close()
        for task in self._answering:
            task.cancel()
        await asyncio.gather(*self._answering, return_exceptions=True)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._answering.add(task)
        try:
            with suppress(OSError, asyncio.IncompleteReadError):
                await reader.readuntil(b"\r\n\r\n")
                self.asked += 1
                await self._say(writer)
        finally:
            self._answering.discard(task)
            writer.close()

    async def _say(self, writer: asyncio.StreamWriter) -> None:
        if self.mood is Mood.SILENT:
            await asyncio.sleep(3600)
        if self.mood is Mood.SLOW_DRIP:
            writer.write(GOOD)
            for byte in BODY:
                writer.write(bytes([byte]))
                await writer.drain()
                await asyncio.sleep(1)
        said = {
            Mood.WELL: GOOD + BODY,
            Mood.FAILING: BAD,
            Mood.HALF: GOOD + BODY[:7],
            Mood.GARBAGE: b"\x00\xff",
        }
        writer.write(said.get(self.mood, b""))
        await writer.drain()
