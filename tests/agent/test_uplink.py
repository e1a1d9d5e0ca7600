"""The uplink against a real node bus: what has no receipt is sent again, what has one is not."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import UUID, uuid4

import nats
import pytest
from nats.aio.client import Client
from nats.js.api import StreamConfig
from nats.js.client import JetStreamContext

from agent.bus import BusRefusedError, BusUnavailableError, NodeBus, connect_bus
from agent.spool import Spool
from agent.uplink import Pace, Uplink
from lab.relay.admission import write_private
from lab.relay.bus import NodeBus as BusServer
from lab.stack.nats import taken_in
from tests.agent.spooling import HALL, INSTANCE, event, own, started, told, until, waiting
from wire.lifecycle import LifecycleEvent, Receipt, read_event
from wire.node import STREAM, STREAM_SUBJECTS, inbox_prefix, lifecycle_subject, receipt_subject

QUICK = Pace(resend=(0.2, 0.4), retry=(0.05, 0.2))
SLOW = Pace(resend=(60, 60), retry=(0.05, 0.2))


@pytest.fixture
def server() -> Iterator[BusServer]:
    folder = Path(tempfile.mkdtemp(prefix="sco-bus-"))
    bus = BusServer(folder)
    try:
        with bus:
            yield bus
    finally:
        shutil.rmtree(folder)


class History:
    """What the control plane does at its end, as far as an uplink sees it."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.stream: JetStreamContext = client.jetstream()

    async def lay_stream(self) -> None:
        await self.stream.add_stream(StreamConfig(name=STREAM, subjects=list(STREAM_SUBJECTS)))

    async def messages(self) -> int:
        return (await self.stream.stream_info(STREAM)).state.messages

    async def read(self) -> list[LifecycleEvent]:
        events = []
        state = (await self.stream.stream_info(STREAM)).state
        for sequence in range(state.first_seq, state.last_seq + 1):
            message = await self.stream.get_msg(STREAM, sequence)
            assert message.subject == lifecycle_subject(HALL, INSTANCE)
            one = read_event(message.data or b"")
            assert isinstance(one, LifecycleEvent), one
            assert (message.headers or {})["Nats-Msg-Id"] == str(one.event_id)
            events.append(one)
        return events

    async def confirm(self, event_ids: list[UUID]) -> None:
        body = Receipt(event_ids=tuple(event_ids)).model_dump_json(by_alias=True).encode()
        await self._client.publish(receipt_subject(HALL, INSTANCE), body)
        await taken_in(self._client)

    async def holds(self, count: int) -> None:
        for _ in range(1000):
            if await self.messages() >= count:
                return
            await asyncio.sleep(0.02)
        raise AssertionError(f"never {count} messages")


@asynccontextmanager
async def history(server: BusServer) -> AsyncIterator[History]:
    client = await nats.connect(
        server.url, user_credentials=str(server.admission.history_file()), inbox_prefix=b"_INBOX_history"
    )
    try:
        yield History(client)
    finally:
        await client.close()


@asynccontextmanager
async def node(server: BusServer, folder: Path, pace: Pace) -> AsyncIterator[tuple[Spool, NodeBus, Uplink]]:
    creds = write_private(folder / "bus.creds", server.admission.agent_credentials(HALL, INSTANCE))
    spool = started(folder / "spool.db")
    bus = await connect_bus([server.url], creds, inbox_prefix(INSTANCE), retry_seconds=0.1)
    uplink = Uplink(spool, bus, hall=HALL, instance_id=INSTANCE, pace=pace)
    task = asyncio.create_task(uplink.run())
    try:
        yield spool, bus, uplink
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await bus.close()
        spool.close()


async def test_events_are_shipped_in_order_and_kept_until_their_receipt(
    server: BusServer, tmp_path: Path
) -> None:
    async with history(server) as far, node(server, tmp_path, SLOW) as (spool, _, uplink):
        await far.lay_stream()
        given = [event(detail=str(n)) for n in range(150)]
        for one in given:
            spool.append(one)
        await far.holds(150)
        shipped = await far.read()
        assert [one.event_id for one in shipped] == [one.event_id for one in given]
        assert [one.sequence for one in shipped] == list(range(1, 151))
        assert len(await waiting(spool)) == 150
        await far.confirm([one.event_id for one in given[:100]])
        await until(lambda: spool.stats().events == 50, "a hundred let go")
        await far.confirm([one.event_id for one in given])
        await until(lambda: spool.stats().events == 0, "all let go")
        sent = uplink.stats().sent
        spool.append(event(detail="later"))
        await far.holds(151)
        await until(lambda: uplink.stats().sent == sent + 1, "only the new one is sent")


async def rests(uplink: Uplink) -> None:
    """Until nothing was sent for a second; what is under way comes to its end first."""
    for _ in range(20):
        sent = uplink.stats().sent
        await asyncio.sleep(1)
        if uplink.stats().sent == sent:
            return
    raise AssertionError("it goes on sending what was received")


async def test_without_a_receipt_all_is_sent_again_and_the_stream_leaves_the_repetition_out(
    server: BusServer, tmp_path: Path
) -> None:
    async with history(server) as far, node(server, tmp_path, QUICK) as (spool, _, uplink):
        await far.lay_stream()
        given = [event(detail=str(n)) for n in range(5)]
        for one in given:
            spool.append(one)
        await until(lambda: uplink.stats().sent >= 15, "sent three times")
        assert await far.messages() == 5
        await far.confirm([one.event_id for one in given])
        await until(lambda: spool.stats().events == 0, "all let go")
        await rests(uplink)


async def test_a_lost_stream_is_filled_again(server: BusServer, tmp_path: Path) -> None:
    async with history(server) as far, node(server, tmp_path, QUICK) as (spool, _, _uplink):
        await far.lay_stream()
        given = [event(detail=str(n)) for n in range(10)]
        for one in given:
            spool.append(one)
        await far.holds(10)
        await far.confirm([one.event_id for one in given[:4]])
        await until(lambda: spool.stats().events == 6, "four let go")
        await far.stream.delete_stream(STREAM)
        await asyncio.sleep(0.5)
        await far.lay_stream()
        await far.holds(6)
        assert [one.event_id for one in await far.read()][:6] == [one.event_id for one in given[4:]]


async def test_a_server_that_lost_its_whole_store_gets_all_again_at_the_new_connection(
    server: BusServer, tmp_path: Path
) -> None:
    given = [event(detail=str(n)) for n in range(10)]
    async with node(server, tmp_path, SLOW) as (spool, bus, _):
        async with history(server) as far:
            await far.lay_stream()
            for one in given:
                spool.append(one)
            await far.holds(10)
        server.kill()
        await until(lambda: not bus.connected, "the break is seen")
        shutil.rmtree(server.admission.folder / "store")
        spool.append(event(detail="meanwhile"))
        server.start()
        async with history(server) as far:
            await far.lay_stream()
            await far.holds(11)
            details = [one.detail for one in own(await far.read())]
            assert details == [*(str(n) for n in range(10)), "meanwhile"]


async def test_a_dead_bus_costs_disk_and_nothing_else(tmp_path: Path) -> None:
    spool = started(tmp_path / "spool.db")
    bus = await connect_bus(["nats://127.0.0.1:9"], None, inbox_prefix(INSTANCE))
    task = asyncio.create_task(Uplink(spool, bus, hall=HALL, instance_id=INSTANCE).run())
    for n in range(50):
        spool.append(event(detail=str(n)))
    await until(lambda: spool.stats().events == 50, "all on disk")
    began, cpu = time.monotonic(), time.process_time()
    await asyncio.sleep(1.5)
    assert time.process_time() - cpu < 0.2 * (time.monotonic() - began)
    assert not bus.connected
    with pytest.raises(BusUnavailableError):
        await bus.publish("lifecycle.a.b", b"", "1")
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await asyncio.wait_for(bus.close(), 5)
    spool.close()


async def test_receipts_that_make_no_sense_change_nothing(server: BusServer, tmp_path: Path) -> None:
    async with history(server) as far, node(server, tmp_path, SLOW) as (spool, _, uplink):
        await far.lay_stream()
        one = event()
        spool.append(one)
        await far.holds(1)
        bad = (b"", b"{}", b"\xff", b'{"eventIds": ["x"]}', b"[" * 50_000, b" " * 70_000)
        for body in bad:
            await far._client.publish(receipt_subject(HALL, INSTANCE), body)
        await far.confirm([uuid4()])
        await until(lambda: uplink.stats().receipts == 1, "the good one is heard")
        assert uplink.stats().bad_receipts == len(bad)
        assert [kept.event_id for kept in told(await waiting(spool))] == [one.event_id]
        await far.confirm([one.event_id])
        await until(lambda: spool.stats().events == 0, "let go")


async def test_credentials_that_are_refused_are_read_anew(server: BusServer, tmp_path: Path) -> None:
    creds = write_private(tmp_path / "bus.creds", "none yet")
    bus = await connect_bus([server.url], creds, inbox_prefix(INSTANCE), retry_seconds=0.1)
    heard: list[bytes] = []

    async def hear(body: bytes) -> None:
        heard.append(body)

    await bus.subscribe(receipt_subject(HALL, INSTANCE), hear)
    await asyncio.sleep(0.3)
    assert not bus.connected
    write_private(creds, server.admission.agent_credentials(HALL, INSTANCE))
    await until(lambda: bus.connected, "admitted with the new credentials")
    async with history(server) as far:
        await far.lay_stream()
        await bus.publish(lifecycle_subject(HALL, INSTANCE), b"x", "1")
        with pytest.raises(BusRefusedError):
            await bus.publish(lifecycle_subject(HALL, INSTANCE), bytes(2 * 1024 * 1024), "2")
        for _ in range(500):
            await far.confirm([])
            if heard:
                break
            await asyncio.sleep(0.02)
    assert heard
    await bus.close()
    assert not bus.connected


async def test_without_servers_it_says_what_is_missing() -> None:
    with pytest.raises(ValueError, match="no server of the node bus"):
        await connect_bus([], None, inbox_prefix(INSTANCE))
