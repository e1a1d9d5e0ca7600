"""Single requests with the standard library: answers, limits, and connections that are cut."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from agent.bounded import bounded
from agent.http import MOST_HANGING, Http, Reply, Request

LIMIT = 0.3
MOST = 1000


class Server:
    """Answers every request with the same bytes and, when it `stays`, leaves the connection open."""

    def __init__(self, says: bytes, stays: bool) -> None:
        self._says, self._stays = says, stays
        self.heard: list[bytes] = []
        self.left = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.heard.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(self._says)
        if self._stays:
            await reader.read()
            self.left += 1
        writer.close()


@asynccontextmanager
async def answering(says: bytes, *, stays: bool = False) -> AsyncIterator[tuple[Server, Request]]:
    server = Server(says, stays)
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    async with listening:
        yield server, Request("GET", f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}", "/a?b=c")


async def asked(request: Request, seconds: float = 20.0) -> Reply:
    return await Http(time.monotonic, seconds, MOST).ask(request)


def threads() -> int:
    return sum(thread.name == "http" for thread in threading.enumerate())


async def until_no_thread() -> None:
    for _ in range(1000):
        if not threads():
            return
        await asyncio.sleep(0.01)
    raise AssertionError(f"{threads()} threads go on")


async def test_an_answer_comes_with_its_date_and_the_moments_around_it() -> None:
    head = b"HTTP/1.1 404 No\r\nDate: Tue, 03 Nov 2026 09:00:00 GMT\r\n"
    async with answering(head + b"Content-Length: 2\r\n\r\nno") as (server, request):
        reply = await asked(request._replace(headers={"X-Own": "1"}))
    assert (reply.status, reply.body) == (404, b"no")
    assert reply.date is not None
    assert reply.date.isoformat() == "2026-11-03T09:00:00+00:00"
    assert reply.asked_at <= reply.answered_at <= time.monotonic()
    lines = server.heard[0].split(b"\r\n")
    assert lines[0] == b"GET /a?b=c HTTP/1.1"
    assert b"X-Own: 1" in lines


@pytest.mark.parametrize(
    ("says", "body"),
    [
        (b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n", b"abcde"),
        (b"\r\nuntil it closes", b"until it closes"),
        (b"Date: yesterday\r\nContent-Length: 0\r\n\r\n", b""),
        (b"Content-Length: %d\r\n\r\n" % (MOST + 1) + bytes(MOST + 1), None),
        (b"Transfer-Encoding: chunked\r\n\r\nffff\r\n" + bytes(0xFFFF), None),
        (b"\r\n" + bytes(MOST + 1), None),
    ],
)
async def test_a_body_is_whole_or_said_to_be_too_large(says: bytes, body: bytes | None) -> None:
    async with answering(b"HTTP/1.1 200 OK\r\n" + says) as (_, request):
        assert (await asked(request)).body == body


@pytest.mark.parametrize(
    "says",
    [
        b"",
        b"\x00\xff" * 400,
        b"HTTP/1.1 xyz OK\r\n\r\n",
        b"HTTP/9.1 200 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 200,
        b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\ncut",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\ncut",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n" + b"x" * 100,
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-99999\r\nx",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nmany\r\nx",
    ],
)
async def test_what_is_no_answer_is_an_error_of_the_connection(says: bytes) -> None:
    async with answering(says) as (_, request):
        with pytest.raises(OSError):  # noqa: PT011 - which one does not matter, that it is one does
            await asked(request)


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:1", "http://[::1", "http://127.0.0.1:99999", "http:///", "x"]
)
async def test_where_nobody_listens_is_an_error_of_the_connection(url: str) -> None:
    with pytest.raises(OSError):  # noqa: PT011
        await asked(Request("GET", url, "/"))


async def test_what_would_make_other_lines_is_never_sent() -> None:
    async with answering(b"HTTP/1.1 200 OK\r\n\r\n") as (server, request):
        for target in ("/a b", "/a\r\nX: y", "/\u00e9"):
            with pytest.raises(OSError):  # noqa: PT011
                await asked(request._replace(target=target))
    assert server.heard == []


@pytest.mark.parametrize(
    "says", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf", b"HTTP/1.1 100 Continue\r\n\r\n"]
)
async def test_who_gives_up_leaves_neither_a_thread_nor_a_connection(says: bytes) -> None:
    async with answering(says, stays=True) as (server, request):
        with pytest.raises(TimeoutError):
            await bounded(asked(request), LIMIT)
        await until_no_thread()
        for _ in range(1000):
            if server.left:
                break
            await asyncio.sleep(0.01)
        assert server.left == 1


async def test_a_handshake_that_hangs_is_cut() -> None:
    held = asyncio.Event()

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        held.set()
        writer.close()

    async with await asyncio.start_server(silent, "127.0.0.1", 0) as listening:
        url = f"https://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
        with pytest.raises(TimeoutError):
            await bounded(asked(Request("GET", url, "/")), LIMIT)
        await until_no_thread()
        await asyncio.wait_for(held.wait(), 20)


async def test_threads_that_nothing_can_end_are_few(monkeypatch: pytest.MonkeyPatch) -> None:
    let_go = threading.Event()

    def hang(*_: object) -> None:
        let_go.wait(60)
        raise OSError("no name")

    monkeypatch.setattr("socket.create_connection", hang)
    asks = Http(time.monotonic, 20.0, MOST)
    request = Request("GET", "http://nowhere", "/")
    waiting = [asyncio.create_task(asks.ask(request)) for _ in range(MOST_HANGING)]
    await asyncio.sleep(0)
    with pytest.raises(OSError, match="hang"):
        await asks.ask(request)
    let_go.set()
    assert {str(one) for one in await asyncio.gather(*waiting, return_exceptions=True)} == {"no name"}
    await until_no_thread()
    with pytest.raises(OSError, match="no name"):
        await asks.ask(request)
