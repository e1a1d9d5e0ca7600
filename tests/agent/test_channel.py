"""Requests over kept connections: what is an answer, who is believed, and what is left behind."""

from __future__ import annotations

import asyncio
import shutil
import socket
import ssl
import threading
from pathlib import Path
from typing import Any

import pytest

from agent.channel import MOST_HANGING, MOST_KEPT, Answer, Channel
from tests.agent.certificates import Authority
from tests.agent.scripted import answer, chunked, scripted

MOST = 1000
LIMIT = 0.3


async def asked(channel: Channel, target: str = "/a") -> Answer:
    async with asyncio.timeout(20):
        return await channel.ask("GET", target, {})


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


def tls_of(authority: Authority) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority.server_file)
    return context


async def test_requests_that_follow_share_a_connection() -> None:
    async with scripted(answer(b"one"), chunked(b"tw", b"o"), answer(b"", "404 No", "X-Own: 1")) as (
        server,
        url,
    ):
        channel = Channel(f"{url}/below/", most_bytes=MOST)
        assert [(await asked(channel)).body for _ in range(2)] == [b"one", b"two"]
        last = await channel.ask("POST", "/c", {"X-Mine": "2"}, b"sent")
        assert (last.status, last.headers["x-own"]) == (404, "1")
        assert server.connections == 1
        lines = server.heard[2].split(b"\r\n")
        assert (lines[0], lines[-1]) == (b"POST /below/c HTTP/1.1", b"sent")
        assert b"X-Mine: 2" in lines
        channel.close()
        await server.until_open()


@pytest.mark.parametrize(
    "first",
    [
        answer(b"x", "200 OK", "Connection: close"),
        b"HTTP/1.1 200 OK\r\n\r\nx",
        b"HTTP/1.0 200 OK\r\n\r\nx",
        answer(b"x"),
    ],
)
async def test_a_connection_that_the_server_leaves_is_not_used_again(first: bytes) -> None:
    async with scripted(first, leaves=True) as (server, url):
        channel = Channel(url, most_bytes=MOST)
        assert (await asked(channel)).body == b"x"
        await server.until_open()
        # The end of a connection is seen by whoever reads from it, in turn.
        await asyncio.sleep(0.05)
        server.says.append(answer(b"y"))
        assert (await asked(channel)).body == b"y"
        assert server.connections == 2


async def test_few_connections_are_kept_of_many() -> None:
    async with scripted(*[answer(b"x")] * 12) as (server, url):
        channel = Channel(url, most_bytes=MOST)
        await asyncio.gather(*(asked(channel) for _ in range(12)))
        await server.until_open(MOST_KEPT)
        channel.close()
        await server.until_open()


@pytest.mark.parametrize(
    "says",
    [
        b"\x00\xff" * 400,
        b"HTTP/1.1 xyz OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 20000,
        b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\nContent-Length: 8\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n" + b"x" * 100,
        answer(bytes(MOST + 1)),
        chunked(bytes(MOST), b"x"),
    ],
)
async def test_what_is_no_answer_or_too_long_a_one_is_an_error_of_the_connection(says: bytes) -> None:
    async with scripted(says) as (server, url):
        with pytest.raises(OSError):  # noqa: PT011 - which one does not matter, that it is one does
            await asked(Channel(url, most_bytes=MOST))
        await server.until_open()


async def test_who_hangs_up_without_an_answer_is_an_error_of_the_connection() -> None:
    async with scripted() as (_, url):
        with pytest.raises(OSError, match="without an answer"):
            await asked(Channel(url, most_bytes=MOST))


@pytest.mark.parametrize(
    "says", [b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\ncut", chunked(b"cut", ends=False), b"HTTP/1.1 2"]
)
async def test_an_answer_that_is_cut_is_an_error_of_the_connection(says: bytes) -> None:
    async with scripted(says, leaves=True) as (_, url):
        with pytest.raises(OSError):  # noqa: PT011
            await asked(Channel(url, most_bytes=MOST))


async def test_who_gives_up_leaves_no_connection() -> None:
    async with scripted(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf") as (server, url):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(LIMIT):
                await Channel(url, most_bytes=MOST).ask("GET", "/a", {})
        await server.until_open()


async def test_what_is_no_request_is_not_sent_and_not_shown() -> None:
    async with scripted(answer(b"x")) as (server, url):
        channel = Channel(url, most_bytes=MOST)
        for target, header in (
            ("/a b", "x"),
            ("/\u00e9", "x"),
            ("/a", "secret\r\nX: y"),
            ("/a", "secret\u00e9\x00"),
        ):
            with pytest.raises(OSError, match="does not allow") as refusal:
                await channel.ask("GET", target, {"Authorization": header})
            assert "secret" not in str(refusal.value)
        assert server.heard == []


async def test_the_server_must_be_who_the_authority_says(authority: Authority, tmp_path: Path) -> None:
    other, late = Authority(tmp_path / "other"), tmp_path / "late.crt"
    async with scripted(*[answer(b"x")] * 2, tls=tls_of(authority)) as (server, url):
        assert (await asked(Channel(url, authority.ca_file, most_bytes=MOST))).body == b"x"
        for ca_file in (other.ca_file, None):
            with pytest.raises(ssl.SSLCertVerificationError):
                await asked(Channel(url, ca_file, most_bytes=MOST))
        channel = Channel(url, late, most_bytes=MOST)
        with pytest.raises(FileNotFoundError):
            await asked(channel)
        shutil.copy(other.ca_file, late)
        with pytest.raises(ssl.SSLCertVerificationError):
            await asked(channel)
        shutil.copy(authority.ca_file, tmp_path / "new")
        (tmp_path / "new").replace(late)
        assert (await asked(channel)).body == b"x"
        assert len(server.heard) == 2


async def test_a_certificate_for_another_name_is_refused(authority: Authority) -> None:
    async with scripted(answer(b"x"), tls=tls_of(authority), host="127.0.0.2") as (server, url):
        with pytest.raises(ssl.SSLCertVerificationError, match="not valid for"):
            await asked(Channel(url, authority.ca_file, most_bytes=MOST))
        assert server.heard == []


async def test_of_several_addresses_one_that_answers_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    async with scripted(answer(b"x")) as (_, url):
        port = int(url.rsplit(":", 1)[1])
        real = socket.getaddrinfo

        def look(host: str, *more: Any, **options: Any) -> Any:
            if host != "api.example" or options.get("flags"):
                return real(host, *more, **options)
            return [(None, None, 0, "", (address, port)) for address in ("127.0.0.3", "127.0.0.1")]

        monkeypatch.setattr(socket, "getaddrinfo", look)
        assert (await asked(Channel(f"http://api.example:{port}", most_bytes=MOST))).body == b"x"


async def test_a_resolver_that_hangs_takes_no_thread_that_others_need(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    let_go = threading.Event()
    real = socket.getaddrinfo

    def look(host: str, *more: Any, **options: Any) -> Any:
        if options.get("flags"):
            return real(host, *more, **options)
        let_go.wait(60)
        raise socket.gaierror("no name")

    monkeypatch.setattr(socket, "getaddrinfo", look)
    channel = Channel("http://api.example", most_bytes=MOST)
    waiting = [asyncio.create_task(asked(channel)) for _ in range(MOST_HANGING)]
    await asyncio.sleep(0)
    with pytest.raises(OSError, match="hang"):
        await asked(channel)
    assert await asyncio.to_thread(int) == 0
    let_go.set()
    assert {str(one) for one in await asyncio.gather(*waiting, return_exceptions=True)} == {"no name"}


async def test_a_stream_is_read_while_it_comes_and_ends_when_it_is_silent() -> None:
    async with scripted(chunked(b"one", b"two", ends=False)) as (server, url):
        channel = Channel(url, most_bytes=MOST)
        async with channel.open("/a", {}, (20.0, LIMIT)) as stream:
            assert stream.status == 200
            assert await anext(stream.parts) == b"one"
            assert await anext(stream.parts) == b"two"
            with pytest.raises(TimeoutError):
                await anext(stream.parts)
        await server.until_open()


async def test_what_its_reader_finds_wrong_stays_the_readers_error() -> None:
    async with scripted(chunked(b"\xff")) as (server, url):
        with pytest.raises(UnicodeDecodeError):
            async with Channel(url, most_bytes=MOST).open("/a", {}, (20.0, 20.0)) as stream:
                (await anext(stream.parts)).decode()
        await server.until_open()


@pytest.mark.parametrize("url", ["x", "ftp://a", "http://", "http://a:99999"])
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match=r"address|[Pp]ort"):
        Channel(url, most_bytes=MOST)
