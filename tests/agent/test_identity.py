"""How a node becomes known and stays so, against the real API, and what it does when nothing works."""

from __future__ import annotations

import asyncio
import json
import stat
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from agent import identity as agent_identity
from agent.api import Api, ApiError, is_api_url
from agent.clock import ProviderClock, SystemClock
from agent.identity import CREDENTIALS, IDENTITY, KEY, Identity
from store import nodes as store_nodes
from tests.api.door import T1, Door, door_on
from tests.api.node_ways import launched, ring_of, token_of
from tests.api.nodes_scene import SERVER
from tests.api.serving import served
from tests.estates import Clock, Estate
from wire.bundle import Bundle, read_bundle
from wire.bus_credentials import expiry_of, key_of
from wire.node_requests import Asked

PATIENCE = 20.0


class Off(SystemClock):
    """A node whose wall clock is wrong."""

    def __init__(self, off: timedelta) -> None:
        self._off = off

    def wall(self) -> datetime:
        return super().wall() + self._off


class Node:
    """An agent's identity on a folder, and the bundles that it was given."""

    def __init__(
        self, folder: Path, instance_id: str = SERVER, *, clock: SystemClock | None = None, **said: Any
    ) -> None:
        self.folder = folder
        self.api = Api(clock or SystemClock(), ProviderClock(clock or SystemClock()))
        self.offered: list[bytes] = []
        self.identity = Identity(folder, instance_id, self.api, offer=self._take, **said)
        self.identity.load()

    async def _take(self, raw: bytes) -> None:
        self.offered.append(raw)

    def kept(self) -> dict[str, Any]:
        return dict(json.loads((self.folder / IDENTITY).read_text()))


@asynccontextmanager
async def running(node: Node) -> AsyncIterator[None]:
    task = asyncio.create_task(node.identity.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def until(holds: Callable[[], bool]) -> None:
    for _ in range(int(PATIENCE * 50)):
        if holds():
            return
        await asyncio.sleep(0.02)
    raise AssertionError("it did not come about")


async def registered_without_an_answer(node: Node) -> None:
    """The API takes the registration, and the answer is lost on the way."""
    ask = node.api.ask

    async def lossy(*given: Any, **named: Any) -> Any:
        await ask(*given, **named)
        raise ApiError("the connection broke off")

    node.api.ask = lossy  # type: ignore[method-assign]
    with pytest.raises(OSError, match="broke off"):
        await node.identity.register()
    node.api.ask = ask  # type: ignore[method-assign]


@pytest.fixture
async def live(estate: Estate, clock: Clock) -> AsyncIterator[tuple[Door, str]]:
    """The real application on loopback, with one launched instance, at the real time."""
    clock.at = datetime.now(UTC)
    async with door_on(estate) as door:
        await launched(door)
        async with served(door.app) as address:
            yield door, address


async def test_an_instance_becomes_known_and_stays_so_over_a_restart(
    live: tuple[Door, str], tmp_path: Path
) -> None:
    door, address = live
    node = Node(tmp_path)
    async with running(node):
        node.identity.laid({"token": await token_of(door), "apiUrl": address})
        await until(lambda: bool(node.offered))
    assert node.identity.is_known
    first = read_bundle(node.offered[0], ring_of(door), SERVER)
    assert isinstance(first, Bundle)
    for name in (KEY, IDENTITY, CREDENTIALS):
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600, name
    assert "token" not in node.kept()
    lines = (tmp_path / CREDENTIALS).read_text().splitlines()
    assert key_of(lines[5]).public.startswith("U")
    assert (expiry_of(lines[1]) or 0) > datetime.now(UTC).timestamp() + 11 * 3600

    again = Node(tmp_path)
    assert again.identity.is_known
    assert await again.identity.fetch(first.version) is None
    assert (await door.put("/contracts/orders-daily", T1 | {"drainBudgetSeconds": 42})).status_code == 200
    raw = await again.identity.fetch(first.version)
    assert raw is not None
    newer = read_bundle(raw, ring_of(door), SERVER, first.version)
    assert isinstance(newer, Bundle)
    assert newer.drain.budget_seconds == 42
    assert await again.identity.fetch(newer.version) is None
    (listed,) = (await door.get("/nodes")).json()["items"]
    assert listed["bundleHeld"] == listed["bundleVersion"] == newer.version


async def test_entry_to_the_bus_is_renewed_at_half_of_its_life(
    live: tuple[Door, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    door, address = live
    monkeypatch.setattr(agent_identity, "LOOK_SECONDS", 0.05)
    node = Node(tmp_path)
    async with running(node):
        node.identity.laid({"token": await token_of(door), "apiUrl": address})
        await until(lambda: (tmp_path / CREDENTIALS).exists() and bool(node.offered))
        before = (tmp_path / CREDENTIALS).read_text()
        await asyncio.sleep(0.2)
        assert (tmp_path / CREDENTIALS).read_text() == before
    (tmp_path / CREDENTIALS).unlink()
    again = Node(tmp_path)
    async with running(again):
        await until((tmp_path / CREDENTIALS).exists)
    assert (tmp_path / CREDENTIALS).read_text() != before


async def test_a_node_whose_clock_is_days_off_is_believed(live: tuple[Door, str], tmp_path: Path) -> None:
    door, address = live
    for number, off in enumerate((timedelta(days=3), timedelta(days=-3))):
        folder = tmp_path / str(number)
        folder.mkdir()
        if number == 0:
            node = Node(folder)
            node.identity.laid({"token": await token_of(door), "apiUrl": address})
            await node.identity.register()
            held = {path.name: path.read_bytes() for path in folder.iterdir()}
        else:
            for name, content in held.items():
                (folder / name).write_bytes(content)
        wrong = Node(folder, clock=Off(off))
        assert await wrong.identity.fetch(0) is not None


async def test_an_answer_that_is_lost_is_asked_for_again_even_after_a_restart(
    live: tuple[Door, str], tmp_path: Path
) -> None:
    door, address = live
    node = Node(tmp_path)
    node.identity.laid({"token": await token_of(door), "apiUrl": address})
    await registered_without_an_answer(node)
    assert not node.identity.is_known
    again = Node(tmp_path)
    await again.identity.register()
    assert again.identity.is_known
    assert await door.estate.value("SELECT count(*) FROM node_identities") == 1


async def test_an_answer_that_is_lost_for_longer_than_its_token_is_good_locks_nobody_out(
    live: tuple[Door, str], tmp_path: Path
) -> None:
    door, address = live
    node = Node(tmp_path)
    node.identity.laid({"token": await token_of(door), "apiUrl": address})
    await registered_without_an_answer(node)
    hour_ago = "issued_at = issued_at - interval '1 hour', expires_at = expires_at - interval '1 hour'"
    await door.estate.rows(f"UPDATE node_tokens SET {hour_ago}")
    again = Node(tmp_path)
    await again.identity.register()
    assert again.identity.is_known
    assert "token" not in again.kept()
    assert (tmp_path / CREDENTIALS).exists()
    assert await again.identity.fetch(0) is not None
    assert Node(tmp_path).identity.is_known


@pytest.mark.parametrize("restarts", [True, False])
async def test_a_token_that_was_laid_down_meanwhile_does_not_take_the_place_of_the_one_that_was_sent(
    live: tuple[Door, str], tmp_path: Path, restarts: bool
) -> None:
    """Every poll finds another one, until the instance is known; then only the one that was used counts."""
    door, address = live
    sent, later = await token_of(door), await token_of(door)
    node = Node(tmp_path)
    node.identity.laid({"token": sent, "apiUrl": address})
    await registered_without_an_answer(node)
    again = Node(tmp_path) if restarts else node
    again.identity.laid({"token": later, "apiUrl": address})
    await again.identity.register()
    assert again.identity.is_known


async def test_a_token_that_is_refused_gives_way_to_the_next(live: tuple[Door, str], tmp_path: Path) -> None:
    door, address = live
    node = Node(tmp_path)
    node.identity.laid({"token": "worthless", "apiUrl": address})
    with pytest.raises(ApiError):
        await node.identity.register()
    node.identity.laid({"token": await token_of(door), "apiUrl": address})
    await node.identity.register()
    assert node.identity.is_known


async def test_a_token_with_another_address_counts_at_once(live: tuple[Door, str], tmp_path: Path) -> None:
    door, address = live
    node = Node(tmp_path)
    node.identity.laid({"token": "t", "apiUrl": "http://127.0.0.1:9"})
    with pytest.raises(OSError, match="refused"):
        await node.identity.register()
    node.identity.laid({"token": await token_of(door), "apiUrl": address})
    await node.identity.register()
    assert node.identity.is_known


async def test_a_disk_of_another_instance_gives_its_identity_to_nobody(
    live: tuple[Door, str], tmp_path: Path
) -> None:
    door, address = live
    node = Node(tmp_path)
    node.identity.laid({"token": await token_of(door), "apiUrl": address})
    await node.identity.register()
    key = (tmp_path / KEY).read_bytes()
    copied = Node(tmp_path, "another-server")
    assert not copied.identity.is_known
    copied.identity.laid({"token": "wrong", "apiUrl": address})
    with pytest.raises(ApiError):
        await copied.identity.register()
    assert (tmp_path / KEY).read_bytes() != key


async def test_a_revoked_node_is_told_and_keeps_running(live: tuple[Door, str], tmp_path: Path) -> None:
    door, address = live
    node = Node(tmp_path)
    node.identity.laid({"token": await token_of(door), "apiUrl": address})
    await node.identity.register()
    async with door.estate.engine.begin() as connection:
        await store_nodes.revoke(connection, "platform", SERVER, by="ada", at=door.estate.clock())
    for call in (node.identity.fetch(1), node.identity.renew()):
        with pytest.raises(ApiError, match="401"):
            await call
    assert node.identity.is_known


Respond = Callable[[asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def answering(respond: Respond) -> AsyncIterator[str]:
    """A server that answers every request in one way, however wrong."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.readuntil(b"\r\n\r\n")
            await respond(writer)
            await writer.drain()
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


def raw(text: bytes) -> Respond:
    async def respond(writer: asyncio.StreamWriter) -> None:
        writer.write(text)

    return respond


def http(status: str, body: bytes = b"", *headers: str) -> Respond:
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", "Connection: close", *headers]
    return raw("\r\n".join(lines).encode() + b"\r\n\r\n" + body)


async def never(_: asyncio.StreamWriter) -> None:
    await asyncio.sleep(3600)


WRONG: dict[str, Respond] = {
    "nothing": raw(b""),
    "no http": raw(b"hello\r\n\r\n"),
    "not json": http("200 OK", b"<html>"),
    "other json": http("200 OK", b"[]"),
    "an empty object": http("200 OK", b"{}"),
    "deep nesting": http("200 OK", b"[" * 100_000),
    "another instance": http("200 OK", json.dumps({"instanceId": "x", "bundle": "b"}).encode()),
    "too much": http("200 OK", b"x" * 300_000),
    "half an answer": raw(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{"),
    "a redirect": http("307 Elsewhere", b"", "Location: http://127.0.0.1:1/"),
    "401": http("401 No", b"", "Date: yesterday"),
    "500": http("500 Broken"),
    "503 with a wrong date": http("503 Later", b"", "Date: Thu, 99 Foo 9999 99:99:99 GMT"),
}


@pytest.mark.parametrize("name", WRONG)
async def test_whatever_the_api_answers_is_an_error_that_a_caller_expects(name: str, tmp_path: Path) -> None:
    async with answering(WRONG[name]) as address:
        node = Node(tmp_path)
        node.identity.laid({"token": "t" * 43, "apiUrl": address})
        with pytest.raises(OSError):  # noqa: PT011 - whatever was wrong
            await node.identity.register()
        assert not node.identity.is_known
        assert node.offered == []
        assert not (tmp_path / CREDENTIALS).exists()


async def test_an_api_that_hangs_is_left_after_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agent.api.LIMIT_SECONDS", 0.3)
    async with answering(never) as address:
        node = Node(tmp_path)
        with pytest.raises(TimeoutError):
            await node.api.ask(address, Asked("GET", "/"), None)


async def test_without_a_token_nothing_is_asked(tmp_path: Path) -> None:
    node = Node(tmp_path)
    for call in (node.identity.fetch(0), node.identity.renew(), node.identity.register()):
        with pytest.raises(OSError, match=r"known to|one-time token"):
            await call


async def test_failures_are_tried_again_and_end_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent_identity, "RETRY_SECONDS", 0.01)
    asked = 0

    async def broken(writer: asyncio.StreamWriter) -> None:
        nonlocal asked
        asked += 1
        writer.write(b"HTTP/1.1 503 Later\r\nContent-Length: 0\r\n\r\n")

    async with answering(broken) as address:
        node = Node(tmp_path)
        async with running(node):
            node.identity.laid({"token": "t" * 43, "apiUrl": address})
            await until(lambda: asked >= 3)


@pytest.mark.parametrize(
    "laid",
    [
        {},
        {"token": 3},
        {"token": None, "apiUrl": "https://x"},
        {"token": "t"},
        {"token": "t", "apiUrl": 1},
        {"token": "t", "apiUrl": "ftp://x"},
        {"token": "t", "apiUrl": "https://user:password@x"},
        {"token": "t", "apiUrl": "https://"},
        {"token": "t", "apiUrl": "https://x:99999999"},
        {"token": "t", "apiUrl": "https://x/\x00"},
        {"token": "t", "apiUrl": "https://x" * 200},
        {"token": "t", "apiUrl": "file:///etc/passwd"},
    ],
)
async def test_what_is_laid_down_wrongly_is_left_aside(laid: dict[str, Any], tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.identity.laid(laid)
    with pytest.raises(ApiError, match="no one-time token"):
        await node.identity.register()


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b"\xff\xfe", b"[" * 100_000, b'{"instanceId": 1}', b"\x00" * 100]
)
def test_files_that_are_damaged_are_left_aside(content: bytes, tmp_path: Path) -> None:
    (tmp_path / IDENTITY).write_bytes(content)
    (tmp_path / KEY).write_bytes(content)
    (tmp_path / CREDENTIALS).write_bytes(content)
    assert not Node(tmp_path).identity.is_known
    known = {"instanceId": SERVER, "apiUrl": "http://127.0.0.1:1", "registered": True}
    (tmp_path / IDENTITY).write_text(json.dumps(known))
    assert not Node(tmp_path).identity.is_known


async def test_a_disk_that_cannot_be_written_is_an_error_before_anything_is_sent(tmp_path: Path) -> None:
    asked = 0

    async def count(_: asyncio.StreamWriter) -> None:
        nonlocal asked
        asked += 1

    async with answering(count) as address:
        node = Node(tmp_path / "missing")
        node.identity.laid({"token": "t" * 43, "apiUrl": address})
        with pytest.raises(OSError):  # noqa: PT011 - as the system says it
            await node.identity.register()
    assert asked == 0


async def test_an_address_that_is_set_goes_before_what_is_laid_down(tmp_path: Path) -> None:
    async with answering(http("418 Teapot")) as address:
        node = Node(tmp_path, api_url=address)
        node.identity.laid({"token": "t" * 43, "apiUrl": "http://127.0.0.1:1"})
        with pytest.raises(ApiError, match="418"):
            await node.identity.register()


def test_addresses_of_an_api() -> None:
    for good in ("https://sco.example.net", "http://127.0.0.1:8080", "https://sco.example.net/base"):
        assert is_api_url(good)
    for bad in ("", "sco", "https:///x", "https://a b", "https://a?x=1", "https://a#f", None, b"https://a"):
        assert not is_api_url(bad)
