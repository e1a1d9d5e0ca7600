"""Events reach JetStream once, in order, and none is lost, whatever is killed, restarted or emptied."""

from __future__ import annotations

import asyncio
import random
import shutil
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any
from uuid import UUID, uuid4

import nats
import orjson
import pytest
import pytest_asyncio
from nats.aio.client import Client as NatsClient
from nats.js.api import ConsumerConfig, DeliverPolicy
from nats.js.errors import NotFoundError

from domain.ids import event_id
from lab.stack import Stack
from store import outbox
from store.engine import Connection, Engine
from tests.estates import TENANT, Clock, Estate
from tests.stack_fixtures import new_folder
from wire.events import STREAM
from wire.payloads import ModelWarmed
from workers import outbox_pump
from workers.outbox_pump import OutboxPump

PATIENCE_SECONDS = 40


@pytest.fixture(scope="module")
def own_stack() -> Iterator[Stack]:
    """Servers of this module, whose NATS may be killed and emptied."""
    folder = new_folder()
    own = Stack.start(folder / "lab")
    yield own
    own.stop()
    shutil.rmtree(folder)


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox_pump, "IDLE_SECONDS", 0.02)
    monkeypatch.setattr(outbox_pump, "TROUBLE_SECONDS", 0.1)
    monkeypatch.setattr(outbox_pump, "PUBLISH_TIMEOUT_SECONDS", 1.0)


class Post:
    """One database with its pumps, and what arrived in the stream."""

    def __init__(self, engine: Engine, nats_url: str) -> None:
        self.engine = engine
        self.nats_url = nats_url
        self.written: dict[str, list[UUID]] = defaultdict(list)

    async def write(self, key: str, *, commit: bool = True) -> UUID:
        number = len(self.written[key]) + 1
        payload = ModelWarmed(tenant_id=TENANT, pool_id=key, model="llama", vram_gb=number)
        once = str(uuid4())
        told = event_id(payload.topic, TENANT, once)
        async with self.engine.connect() as connection:
            await outbox.add_event(connection, payload, once=once)
            if commit:
                await connection.commit()
                self.written[key].append(told)
        return told

    async def write_many(self, number: int, keys: Sequence[str] = ("a", "b", "c")) -> None:
        for place in range(number):
            await self.write(keys[place % len(keys)])

    @asynccontextmanager
    async def pump(self) -> AsyncIterator[asyncio.Task[None]]:
        """A pump that runs until it is told to stop, or is cancelled."""
        stop = asyncio.Event()
        task = asyncio.create_task(OutboxPump(self.engine, self.nats_url, now=Clock()).run(stop))
        yield task
        stop.set()
        done, _ = await asyncio.wait([task], timeout=PATIENCE_SECONDS)
        assert done, "the pump does not stop"
        if not task.cancelled():
            task.result()

    async def emptied(self) -> None:
        """Until nothing waits to be published."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while True:
                async with self.engine.connect() as connection:
                    if await outbox.waiting(connection) == 0:
                        return
                await asyncio.sleep(0.02)

    async def arrived(self) -> list[dict[str, Any]]:
        """Every message of the stream, in its order."""
        client = await nats.connect(self.nats_url)
        try:
            stream = client.jetstream()
            left = (await stream.stream_info(STREAM)).state.messages
            pull = await stream.pull_subscribe(
                "compute-pools.>", config=ConsumerConfig(deliver_policy=DeliverPolicy.ALL)
            )
            found: list[dict[str, Any]] = []
            while left > len(found):
                found += [orjson.loads(one.data) for one in await pull.fetch(200, timeout=5)]
            return found
        finally:
            await client.close()

    async def all_arrived_once_in_order(self) -> None:
        found = defaultdict(list)
        for one in await self.arrived():
            found[one["subject"]].append(UUID(one["id"]))
        assert dict(found) == {key: ids for key, ids in self.written.items() if ids}


@pytest_asyncio.fixture
async def post(estate: Estate, own_stack: Stack) -> AsyncIterator[Post]:
    client = await nats.connect(own_stack.nats_url)
    yield Post(estate.engine, own_stack.nats_url)
    await _forget_stream(client)
    await client.close()


async def _forget_stream(client: NatsClient) -> None:
    try:
        await client.jetstream().delete_stream(STREAM)
    except NotFoundError:
        return


async def test_events_arrive_in_order_as_cloud_events(post: Post) -> None:
    await post.write_many(2 * outbox_pump.BATCH + 50)
    last = await post.write("a")
    async with post.pump():
        await post.emptied()
    await post.all_arrived_once_in_order()
    event = (await post.arrived())[-1]
    assert datetime.fromisoformat(event.pop("time")).tzinfo is not None
    assert event == {
        "specversion": "1.0",
        "id": str(last),
        "source": "/sco/control-plane",
        "type": ModelWarmed.topic,
        "subject": "a",
        "datacontenttype": "application/json",
        "tenantid": TENANT,
        "data": {"tenantId": TENANT, "poolId": "a", "model": "llama", "vramGb": 151},
    }


async def test_what_is_not_committed_is_not_told(post: Post) -> None:
    await post.write("a", commit=False)
    await post.write("a")
    async with post.pump():
        await post.emptied()
    await post.all_arrived_once_in_order()


async def test_two_pumps_keep_the_order(post: Post) -> None:
    """Two processes with small batches: a later batch never overtakes the one before it."""
    await post.write_many(30, keys=("a",))
    async with post.pump(), post.pump(), post.pump():
        await post.write_many(300, keys=("a", "b"))
        await post.emptied()
    await post.all_arrived_once_in_order()


async def test_killed_after_it_published_and_before_it_marked(
    post: Post, monkeypatch: pytest.MonkeyPatch
) -> None:
    await post.write_many(40)
    real, marks = outbox.mark_published, []

    async def mark(connection: Connection, sequences: Sequence[int], at: datetime) -> None:
        if sequences:
            marks.append(len(sequences))
        if len(marks) < 3 and sequences:
            raise asyncio.CancelledError
        await real(connection, sequences, at)

    monkeypatch.setattr(outbox, "mark_published", mark)
    for _ in range(2):
        async with post.pump() as running:
            await asyncio.wait([running], timeout=PATIENCE_SECONDS)
            assert running.cancelled()
    async with post.pump():
        await post.emptied()
    assert marks == [40, 40, 40]
    await post.all_arrived_once_in_order()


async def test_pumps_that_are_killed_at_any_time_lose_nothing(post: Post) -> None:
    rng = random.Random(7)
    writing = asyncio.create_task(post.write_many(400))
    for _ in range(8):
        async with post.pump() as running:
            await asyncio.sleep(rng.random() / 10)
            running.cancel()
    await writing
    async with post.pump():
        await post.emptied()
    await post.all_arrived_once_in_order()


async def test_lost_database_sessions_only_delay(post: Post) -> None:
    async with post.pump():
        for _ in range(3):
            await post.write_many(20)
            async with post.engine.connect() as connection:
                await connection.exec_driver_sql(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                    " WHERE datname = current_database() AND pid <> pg_backend_pid()"
                )
        await post.emptied()
    await post.all_arrived_once_in_order()


async def test_a_restarted_server_gets_what_waited(post: Post, own_stack: Stack) -> None:
    async with post.pump():
        await post.write_many(30)
        await post.emptied()
        await asyncio.to_thread(own_stack.kill_one, "nats")
        await post.write_many(30)
        await asyncio.to_thread(own_stack.start_one, "nats")
        await post.emptied()
    await post.all_arrived_once_in_order()


async def test_a_server_that_lost_its_store_gets_what_follows(post: Post, own_stack: Stack) -> None:
    """Postgres is the truth: what was published before is history, what was not is published."""
    async with post.pump():
        await post.write_many(30)
        await post.emptied()
        await asyncio.to_thread(own_stack.kill_one, "nats")
        shutil.rmtree(own_stack.data_dir / "nats" / "store")
        post.written.clear()
        await post.write_many(30)
        await asyncio.to_thread(own_stack.start_one, "nats")
        await post.emptied()
    await post.all_arrived_once_in_order()


async def test_a_stream_that_was_deleted_is_made_again(post: Post) -> None:
    async with post.pump():
        await post.write_many(10)
        await post.emptied()
        client = await nats.connect(post.nats_url)
        await _forget_stream(client)
        await client.close()
        post.written.clear()
        await post.write_many(10)
        await post.emptied()
    await post.all_arrived_once_in_order()
