"""What a client of NATS may believe after a round trip."""

from __future__ import annotations

import asyncio
from asyncio import StreamReader, StreamWriter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import nats
from nats.aio.msg import Msg

from lab.stack.nats import taken_in

INFO = b'INFO {"server_id":"slow","version":"2.11.0","max_payload":1048576,"headers":true}\r\n'
SLOW_SECONDS = 0.1


class SlowServer:
    """Deals with one line after the other, and takes its time for all but pings."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.url = ""

    async def serve(self, reader: StreamReader, writer: StreamWriter) -> None:
        writer.write(INFO)
        while line := await reader.readline():
            if line.startswith(b"PING"):
                writer.write(b"PONG\r\n")
            elif line.startswith((b"SUB", b"PUB")):
                await asyncio.sleep(SLOW_SECONDS)
                self.done.append(line.decode().split()[0])
        writer.close()


@asynccontextmanager
async def slow_server() -> AsyncIterator[SlowServer]:
    server = SlowServer()
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    async with listening:
        server.url = f"nats://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
        yield server


async def test_what_was_said_is_taken_in_when_we_are_told_so() -> None:
    async def hear(message: Msg) -> None:
        """Nothing comes."""

    async with slow_server() as server:
        client = await nats.connect(server.url, allow_reconnect=False)
        try:
            await client.subscribe("a", cb=hear)
            await taken_in(client)
            assert server.done == ["SUB"]
            await client.publish("b", b"x")
            await taken_in(client)
            assert server.done == ["SUB", "PUB"]
        finally:
            await client.close()
