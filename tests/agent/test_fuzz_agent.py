"""Spoiled inputs at the doors of an agent that has state: its socket, its sources, its files."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from pathlib import Path
from uuid import UUID

import pytest

from agent import drain_record
from agent.assemble import Agent
from agent.bundle import CURRENT, TRUST
from agent.clock import ProviderClock, SystemClock
from agent.deadline import DrainDeadline, deadline_text
from agent.drain_record import DrainRecord
from agent.http import Http, Reply, Request
from agent.identity import IDENTITY
from agent.listener import Source
from agent.metadata import Metadata
from agent.settings import AgentSettings
from agent.spool_keeper import SpoolStats
from agent.spool_policy import Spooled
from agent.uplink import Uplink
from domain.drain import Kind, Said, decide
from tests.agent.fuzzing import INSTANCE, LINES, NOTICES, NOW, Input, feed, feed_slowly, inputs, sealed
from tests.agent.rig import BUNDLE_KEY, HALL, NOTICE_KEY, bundle, letter, notice
from tests.agent.sockets import ROOMY, door
from wire.bundle import write_bundle
from wire.lifecycle import Receipt
from wire.signing import LetterKind

RECEIPTS = (Receipt(event_ids=(UUID(int=1), UUID(int=2))).model_dump_json(by_alias=True).encode(),)
METADATA = (
    json.dumps(
        {
            "uuid": INSTANCE,
            "reclaimer": {"notices": [one.decode() for one in NOTICES]},
            "sco": {"token": "t" * 43, "apiUrl": "https://api.example:8443/v1"},
        }
    ).encode(),
)


async def test_lines_through_the_socket(tmp_path: Path) -> None:
    async with door(tmp_path, ROOMY) as opened:

        async def take(one: Input) -> None:
            line = await opened.line()
            await line.send(one.raw.replace(b"\n", b" ")[:4000] + b"\n")
            assert (await line.next())["ok"] in (True, False)
            line.writer.close()

        await feed_slowly(inputs("socket", LINES), take)
        assert await (await opened.line()).ask(op="notice") == {"ok": True, "notice": "none"}


class _Quiet:
    """A bus that only hands over what arrives, and a spool that lets everything go."""

    connected = False

    def __init__(self) -> None:
        self.hear: Callable[[bytes], Awaitable[None]] | None = None
        self.confirmations = 0

    def on_connected(self, listener: Callable[[], None]) -> None:
        """It never is."""

    async def subscribe(self, subject: str, handler: Callable[[bytes], Awaitable[None]]) -> None:
        self.hear = handler

    async def publish(self, subject: str, body: bytes, message_id: str) -> None:
        raise AssertionError("nothing is to be sent")

    async def pending(self, limit: int, after: int = 0) -> list[Spooled]:
        return []

    async def confirmed(self, event_ids: Sequence[UUID]) -> None:
        self.confirmations += 1

    def listen(self, listener: Callable[[], None]) -> None:
        """Nothing is new."""

    def stats(self) -> SpoolStats:
        return SpoolStats()


async def test_receipts() -> None:

    quiet = _Quiet()
    running = asyncio.create_task(Uplink(quiet, quiet, hall=HALL, instance_id=INSTANCE).run())
    await asyncio.sleep(0.05)
    hear = quiet.hear
    assert hear is not None
    await feed_slowly(inputs("receipt", RECEIPTS), lambda one: hear(one.raw))
    running.cancel()
    assert quiet.confirmations > 0


async def test_answers_of_the_metadata(monkeypatch: pytest.MonkeyPatch) -> None:
    said = {"body": b""}

    async def ask(self: Http, request: Request) -> Reply:
        return Reply(200, None, 0.0, 0.0, said["body"])

    monkeypatch.setattr(Http, "ask", ask)
    clock = SystemClock()
    metadata = Metadata("http://metadata", clock, ProviderClock(clock), lambda: None)

    async def take(one: Input) -> None:
        said["body"] = one.raw
        for read in (metadata.laid, metadata.instance_id):
            try:
                await read()
            except OSError:
                continue

    await feed_slowly(inputs("metadata", METADATA), take)


async def test_answers_over_the_wire() -> None:

    valid = (
        b"HTTP/1.1 200 OK\r\nDate: Tue, 03 Nov 2026 09:00:00 GMT\r\nContent-Length: 3\r\n\r\nabc",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n4\r\n0123\r\n0\r\n\r\n",
    )
    says = {"raw": b""}

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(says["raw"])
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        request = Request("GET", f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", "/")
        http = Http(SystemClock().boot, 5.0, 1000)

        async def take(one: Input) -> None:
            says["raw"] = one.raw
            try:
                await http.ask(request)
            except OSError:
                return

        await feed_slowly(inputs("answer", valid), take)


def an_agent(folder: Path) -> Agent:
    for name in ("state", "run"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / "launch.json").write_bytes(write_bundle(bundle(INSTANCE), BUNDLE_KEY))
    settings = AgentSettings(
        instance_id=INSTANCE,
        state_dir=folder / "state",
        run_dir=folder / "run",
        boot_bundle=folder / "launch.json",
    )
    return Agent(settings, INSTANCE)


@pytest.fixture(autouse=True)
def failures(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    """What the agent caught and did not foresee: it goes on, and it is a fault all the same."""
    # What other tests left on loops that are gone is told when it is collected: not while this one looks.
    gc.collect()
    caplog.set_level(logging.ERROR)
    return lambda: [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]


async def test_messages_to_the_listener(tmp_path: Path, failures: Callable[[], list[str]]) -> None:
    agent = an_agent(tmp_path)
    agent.load()
    agent.spool.start()

    async def take(one: Input) -> None:
        agent.listener.hear((one.raw,), Source.PUSH)
        assert failures() == []

    try:
        await feed_slowly(inputs("message", NOTICES), take)
        await feed_slowly(sealed("signed message", LetterKind.NOTICE, NOTICES, NOTICE_KEY), take)
    finally:
        await agent.drains.close()
        await agent.kept.close()
        agent.spool.close()
        agent.writer.close()


async def test_what_is_laid_down_reaches_the_identity(tmp_path: Path) -> None:
    own = (b'{"token":"tttttttttttttttttttttttt","apiUrl":"https://api.example/v1"}',)
    agent = an_agent(tmp_path)

    def take(one: Input) -> None:
        try:
            said = json.loads(one.raw)
        except (ValueError, RecursionError):
            return
        if isinstance(said, dict):
            agent.identity.laid(said)

    feed(inputs("own", own), take)
    agent.writer.close()


async def test_files_of_the_agent(tmp_path: Path) -> None:
    agent = an_agent(tmp_path)
    agent.load()
    await agent.bundles.offer(write_bundle(bundle(INSTANCE, version=2), BUNDLE_KEY))
    agent.writer.close()
    known = b'{"instanceId":"i-1","apiUrl":"https://api.example/v1","token":"t"}'
    for target, name in (("held", CURRENT), ("known", IDENTITY), ("trust", TRUST)):
        path = tmp_path / "state" / name
        valid = known if target == "known" else path.read_bytes()

        def take(one: Input, path: Path = path) -> None:
            path.write_bytes(one.raw)
            again = an_agent(tmp_path)
            again.load()
            again.writer.close()

        feed(inputs(target, (valid,)), take)
        path.write_bytes(valid)


async def test_drain_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = await _a_drain_record(tmp_path / "valid")
    clock = SystemClock()
    next_notice = Said(UUID(int=9), Kind.HARD, NOW, NOW + timedelta(minutes=2), None)
    path = tmp_path / drain_record.NAME
    record = DrainRecord(tmp_path, tmp_path / "none", lambda name: None, clock, ProviderClock(clock))

    def take(one: Input) -> None:
        path.write_bytes(one.raw)
        record.load()
        drain = record.saved.drain
        if drain is not None:
            assert deadline_text(drain.notice, DrainDeadline(clock, drain.ends_at), clock)
        assert decide(record.saved.memory, next_notice, drain_on_advisory=True, not_before=NOW)

    feed(inputs("drain", (kept,)), take)
    monkeypatch.setattr(drain_record, "boot_id", lambda: "another start")
    record = DrainRecord(tmp_path, tmp_path / "none", lambda name: None, clock, ProviderClock(clock))
    feed(inputs("drain of before", (kept,)), take)


async def _a_drain_record(folder: Path) -> bytes:
    agent = an_agent(folder)
    agent.load()
    agent.spool.start()
    agent.listener.hear((letter(notice(INSTANCE, 60)),), Source.PUSH)
    await agent.kept.save()
    raw = (folder / "run" / drain_record.NAME).read_bytes()
    await agent.drains.close()
    await agent.kept.close()
    agent.spool.close()
    agent.writer.close()
    assert json.loads(raw)["drain"]["notice"]["instanceId"] == INSTANCE
    return raw
