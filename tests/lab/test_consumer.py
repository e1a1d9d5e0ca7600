"""The example consumer: whatever repeats, fails, dies or is lost, an event takes effect once and in order."""

from __future__ import annotations

import asyncio
import random
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import nats
import orjson
import pytest
import pytest_asyncio
from nats.js.api import ConsumerConfig, StreamConfig

from lab import consumer
from lab.consumer import Consumer, Effect, Event, keep_board
from lab.stack import Stack
from store import outbox
from store.engine import Engine
from tests.estates import TENANT
from tests.running import until_stopped
from tests.stack_fixtures import new_folder
from tests.workers.event_post import EventPost, utc_now
from tests.workers.post_office import PATIENCE_SECONDS, until
from wire.events import STREAM
from wire.payloads import ComputePoolRegistered, ComputePoolStateChanged, ModelEvicted, ModelWarmed, Payload
from workers import outbox_pump

TOLD = "SELECT partitionkey, event_id FROM told ORDER BY number"


@pytest.fixture(scope="module")
def own_stack() -> Iterator[Stack]:
    """Servers of this module, whose NATS may be killed and emptied."""
    folder = new_folder()
    own = Stack.start(folder / "lab")
    yield own
    own.stop()
    shutil.rmtree(folder)


@pytest_asyncio.fixture
async def post(
    service_engine: Engine, own_stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[EventPost]:
    """An outbox, pumps and consumers that lose no time."""
    monkeypatch.setattr(outbox_pump, "IDLE_SECONDS", 0.02)
    monkeypatch.setattr(outbox_pump, "TROUBLE_SECONDS", 0.1)
    monkeypatch.setattr(outbox_pump, "PUBLISH_TIMEOUT_SECONDS", 1.0)
    monkeypatch.setattr(consumer, "WAIT_SECONDS", 0.2)
    monkeypatch.setattr(consumer, "TROUBLE_SECONDS", 0.05)
    monkeypatch.setattr(consumer, "ACK_WAIT_SECONDS", 1.0)
    opened = EventPost(service_engine, own_stack.nats_url)
    yield opened
    await opened.forget_stream()


class Reader:
    """The file of a consumer, and consumers that write to it."""

    def __init__(self, nats_url: str, file: Path) -> None:
        self.nats_url = nats_url
        self.file = file

    @asynccontextmanager
    async def consuming(self, effect: Effect = keep_board) -> AsyncIterator[asyncio.Task[None]]:
        reading = Consumer(self.nats_url, self.file, effect=effect, now=utc_now)
        async with until_stopped(reading.run, patience_seconds=PATIENCE_SECONDS) as task:
            yield task

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """What a query finds; nothing before the first consumer has made its tables."""
        with closing(sqlite3.connect(self.file)) as store:
            if store.execute("SELECT count(*) FROM sqlite_master").fetchone() == (0,):
                return []
            return store.execute(query).fetchall()

    def told(self) -> dict[str, list[str]]:
        """The ids of what took effect, in that order, by key."""
        found = defaultdict(list)
        for key, event_id in self.rows(TOLD):
            found[key].append(event_id)
        return dict(found)

    async def has_at_least(self, number: int) -> None:
        async def reached() -> bool:
            return len(self.rows(TOLD)) >= number

        await until(reached)

    async def has(self, post: EventPost) -> None:
        """Until everything that was written took effect, then once and in order for each key."""
        await self.has_at_least(sum(len(ids) for ids in post.written.values()))
        assert self.told() == {
            f"{TENANT}/{key}": [str(one) for one in ids] for key, ids in post.written.items()
        }


@pytest.fixture
def reader(own_stack: Stack, tmp_path: Path) -> Reader:
    return Reader(own_stack.nats_url, tmp_path / "board.sqlite")


async def test_the_board_shows_pools_and_the_models_on_them(post: EventPost, reader: Reader) -> None:
    pool: dict[str, Any] = {"tenant_id": TENANT, "pool_id": "p-1"}
    registered = ComputePoolRegistered(
        **pool,
        kind="cloud_gpu",
        region="eu-north",
        security_boundary="shared",
        hall="h1",
        sku_family="g2",
        size="m",
        purchase_model="guaranteed",
        group_id="g-1",
    )
    story: list[Payload] = [
        registered,
        ComputePoolStateChanged(**pool, from_state="draft", to_state="active", version=2),
        ModelWarmed(**pool, model="llama", vram_gb=40),
        ModelWarmed(**pool, model="mistral", vram_gb=20),
        ModelEvicted(**pool, model="llama", reason="drained"),
        registered.model_copy(update={"tenant_id": "acme"}),
    ]
    async with post.engine.begin() as connection:
        for number, payload in enumerate(story):
            await outbox.add_event(connection, payload, once=str(number))
    async with post.pump(), reader.consuming():
        await post.emptied()
        await reader.has_at_least(len(story))
    assert reader.rows("SELECT * FROM pools ORDER BY 1") == [
        ("acme", "p-1", "draft"),
        (TENANT, "p-1", "active"),
    ]
    assert reader.rows("SELECT * FROM models") == [(TENANT, "p-1", "mistral", 20)]


async def test_what_is_published_twice_takes_effect_once(post: EventPost, reader: Reader) -> None:
    """Without message ids JetStream keeps every repetition; keys are mixed, and repeats come late."""
    await post.write_many(30)
    async with post.pump():
        await post.emptied()
    events = await post.arrived()
    await post.make_stream(StreamConfig(name=STREAM, subjects=["compute-pools.>"]))
    client = await nats.connect(post.nats_url)
    rng = random.Random(5)
    for place, event in enumerate(events):
        for again in [event, *rng.sample(events[: place + 1], k=min(3, place))]:
            await client.jetstream().publish(again["type"], orjson.dumps(again))
    await client.close()
    assert await post.messages() > 100
    async with reader.consuming():
        await reader.has(post)
        await asyncio.sleep(0.3)
    await reader.has(post)


async def test_an_effect_that_fails_is_rolled_back_and_comes_before_the_next(
    post: EventPost, reader: Reader
) -> None:
    await post.write_many(12)
    attempts: dict[str, int] = defaultdict(int)

    def fails_twice(store: sqlite3.Connection, event: Event) -> None:
        keep_board(store, event)
        attempts[event["id"]] += 1
        if attempts[event["id"]] < 3:
            raise OSError("the disk of the board is full")

    async with post.pump(), reader.consuming(fails_twice):
        await reader.has(post)
    assert set(attempts.values()) == {3}


async def test_killed_between_its_commit_and_the_confirmation(
    post: EventPost, reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    await post.write_many(9)
    commit = Consumer.commit
    killed: list[str] = []

    def dies_after(self: Consumer, store: sqlite3.Connection, event: Event) -> bool:
        done = commit(self, store, event)
        if done and len(killed) < 3:
            killed.append(event["id"])
            raise asyncio.CancelledError
        return done

    monkeypatch.setattr(Consumer, "commit", dies_after)
    async with post.pump():
        for _ in range(3):
            async with reader.consuming() as task:
                await asyncio.wait([task], timeout=PATIENCE_SECONDS)
                assert task.cancelled()
        async with reader.consuming():
            await reader.has(post)
    assert len(set(killed)) == 3


async def test_killed_before_its_commit_it_lets_nothing_overtake(post: EventPost, reader: Reader) -> None:
    """JetStream waits for the one that was killed, and hands out nothing else meanwhile."""
    await post.write_many(9)
    killed: list[str] = []

    def dies(store: sqlite3.Connection, event: Event) -> None:
        if len(killed) < 2 and event["id"] not in killed:
            killed.append(event["id"])
            raise asyncio.CancelledError
        keep_board(store, event)

    async with post.pump():
        for _ in range(2):
            async with reader.consuming(dies) as task:
                await asyncio.wait([task], timeout=PATIENCE_SECONDS)
                assert task.cancelled()
        async with reader.consuming(dies):
            await reader.has(post)


async def test_the_store_of_nats_is_deleted_under_everybody(
    post: EventPost, reader: Reader, own_stack: Stack
) -> None:
    """Part of what was published is consumed; then NATS is killed and its folder deleted, twice."""
    writing = asyncio.create_task(post.write_many(150))
    async with post.pump(), post.pump():
        for number in (20, 70):
            async with reader.consuming():
                await reader.has_at_least(number)
            await asyncio.to_thread(own_stack.kill_one, "nats")
            shutil.rmtree(own_stack.data_dir / "nats" / "store")
            await asyncio.to_thread(own_stack.start_one, "nats")
        async with reader.consuming():
            await writing
            await reader.has(post)


async def test_processes_that_are_killed_go_on_where_they_were(post: EventPost, reader: Reader) -> None:
    await post.write_many(60)
    async with post.pump():
        await post.emptied()
        await _make_consumer(post.nats_url)
        for number in (10, 30):
            running = _start(reader)
            try:
                await reader.has_at_least(number)
            finally:
                running.kill()
                running.wait()
        running = _start(reader)
        await reader.has(post)
        running.send_signal(signal.SIGTERM)
        assert await asyncio.to_thread(running.wait, PATIENCE_SECONDS) == 0


async def _make_consumer(nats_url: str) -> None:
    """The one that the processes use, with less patience for those that were killed."""
    client = await nats.connect(nats_url)
    config = ConsumerConfig(durable_name="board", ack_wait=1.0, max_ack_pending=1)
    await client.jetstream().add_consumer(STREAM, config)
    await client.close()


def _start(reader: Reader) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "lab.consumer", reader.nats_url, str(reader.file)]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def test_wrong_arguments_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert consumer.main([]) == 2
    assert "usage" in capsys.readouterr().err


def test_a_server_that_is_away_is_told_in_one_line(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    command = [sys.executable, "-m", "lab.consumer", f"nats://127.0.0.1:{port}", str(tmp_path / "board")]
    running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        assert running.stdout is not None
        assert "consumer_waits" in running.stdout.readline()
    finally:
        running.terminate()
        rest, _ = running.communicate(timeout=PATIENCE_SECONDS)
    assert "Traceback" not in rest
    assert running.returncode == 0
