"""Events reach JetStream once, in order, and none is lost, whatever is killed or restarted."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from uuid import uuid4

import nats
import orjson
import pytest
from nats.js.api import StorageType, StreamConfig
from nats.js.errors import NoStreamResponseError
from structlog.testing import capture_logs

from lab.stack import Stack
from store import outbox
from store.engine import Connection, Engine
from tests.estates import TENANT
from tests.running import until_stopped
from tests.workers.event_post import EventPost, metric
from tests.workers.post_office import PATIENCE_SECONDS, until
from wire.events import STREAM
from wire.payloads import ModelWarmed
from workers import outbox_pump
from workers.event_stream import StreamTerms


async def test_events_arrive_in_order_as_cloud_events(post: EventPost) -> None:
    await post.write_many(2 * outbox_pump.BATCH + 50)
    last = await post.write("a")
    async with post.pump():
        await post.emptied()
    await post.all_arrived_once_in_order()
    event = (await post.arrived())[-1]
    assert datetime.fromisoformat(event.pop("time")).tzinfo is not None
    assert event.pop("sequence") == max(one["sequence"] for one in await post.arrived())
    assert event == {
        "specversion": "1.0",
        "id": str(last),
        "source": "/sco/control-plane",
        "type": ModelWarmed.topic,
        "subject": "a",
        "datacontenttype": "application/json",
        "dataschema": "urn:sco:events:compute-pools:cache:v1:model-warmed",
        "tenantid": TENANT,
        "partitionkey": f"{TENANT}/a",
        "data": {"tenantId": TENANT, "poolId": "a", "model": "llama", "vramGb": 151},
    }


async def test_what_is_not_committed_is_not_told(post: EventPost) -> None:
    await post.write("a", commit=False)
    await post.write("a")
    async with post.pump():
        await post.emptied()
    await post.all_arrived_once_in_order()


async def test_two_pumps_keep_the_order(post: EventPost) -> None:
    """Two processes with small batches: a later batch never overtakes the one before it."""
    await post.write_many(30, keys=("a",))
    async with post.pump(), post.pump(), post.pump():
        await post.write_many(300, keys=("a", "b"))
        await post.emptied()
    await post.all_arrived_once_in_order()


async def test_killed_after_it_published_and_before_it_marked(
    post: EventPost, monkeypatch: pytest.MonkeyPatch
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


async def test_pumps_that_are_killed_at_any_time_lose_nothing(post: EventPost) -> None:
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


async def test_lost_database_sessions_only_delay(post: EventPost, engine: Engine) -> None:
    async with post.pump():
        for _ in range(3):
            await post.write_many(20)
            async with engine.connect() as connection:
                await connection.exec_driver_sql(
                    "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
                    " WHERE datname = current_database() AND pid <> pg_backend_pid()"
                )
        await post.emptied()
    await post.all_arrived_once_in_order()


async def test_a_restarted_server_gets_what_waited(post: EventPost, own_stack: Stack) -> None:
    async with post.pump():
        await post.write_many(30)
        await post.emptied()
        await asyncio.to_thread(own_stack.kill_one, "nats")
        await post.write_many(30)
        await asyncio.to_thread(own_stack.start_one, "nats")
        await post.emptied()
    await post.all_arrived_once_in_order()


async def test_behind_an_event_that_is_refused_none_is_taken(post: EventPost) -> None:
    """A stream whose messages are too small for one of the events, until somebody allows them."""
    small = StreamConfig(name=STREAM, subjects=["compute-pools.>"], max_msg_size=900)
    await post.make_stream(small)
    for place in range(9):
        await post.write("a", model="m" * 255 if place == 4 else "m")
    failed = metric("sco_outbox_failures_total")

    async def failed_often() -> bool:
        return metric("sco_outbox_failures_total") >= failed + 3

    async with post.pump():
        await until(failed_often)
        assert await post.messages() == 4
        await post.change_stream(small.evolve(max_msg_size=-1))
        await post.emptied()
    await post.all_arrived_once_in_order()


async def test_events_of_others_in_between_do_not_break_the_order(post: EventPost) -> None:
    """Another installation publishes to the same stream all the time."""
    client = await nats.connect(post.nats_url)

    async def disturb(stop: asyncio.Event) -> None:
        while not stop.is_set():
            other = orjson.dumps({"subject": "other", "id": uuid4().hex})
            with suppress(NoStreamResponseError):
                await client.jetstream().publish("compute-pools.other", other)
            await asyncio.sleep(0)

    async with until_stopped(disturb, patience_seconds=PATIENCE_SECONDS), post.pump():
        await post.write_many(2 * outbox_pump.BATCH)
        await post.emptied()
    await client.close()
    await post.all_arrived_once_in_order()


async def test_the_stream_is_brought_to_its_terms(post: EventPost) -> None:
    terms = StreamTerms(max_age=timedelta(days=3), max_bytes=10 * 1024**2)
    async with post.pump(terms=terms):
        await post.write("a")
        await post.emptied()
    async with post.pump(terms=StreamTerms()):
        await post.write("a")
        await post.emptied()
    config = await post.config()
    assert (config.max_age, config.max_bytes) == (30 * 86400, 1024**3)
    assert (config.storage, config.discard, config.duplicate_window) == ("file", "old", 600)
    await post.all_arrived_once_in_order()


async def test_a_stream_that_will_not_change_still_gets_events(post: EventPost) -> None:
    """One that keeps its messages in memory cannot be moved to disk."""
    await post.make_stream(
        StreamConfig(name=STREAM, subjects=["compute-pools.>"], storage=StorageType.MEMORY)
    )
    with capture_logs() as lines:
        async with post.pump():
            await post.write("a")
            await post.emptied()
    assert "event_stream_not_changed" in [line["event"] for line in lines]
    await post.all_arrived_once_in_order()


async def test_the_metrics_say_how_far_behind_it_is(post: EventPost, own_stack: Stack) -> None:
    await asyncio.to_thread(own_stack.kill_one, "nats")
    await post.write_many(3)
    async with post.engine.begin() as connection:
        await connection.exec_driver_sql("UPDATE outbox SET created_at = now() - interval '10 minutes'")
    async with post.pump():
        await until(waiting_is(3))
        assert metric("sco_outbox_lag_seconds") >= 600
        await asyncio.to_thread(own_stack.start_one, "nats")
        await until(waiting_is(0))
        assert metric("sco_outbox_lag_seconds") == 0


def waiting_is(number: int) -> Callable[[], Awaitable[bool]]:
    async def reached() -> bool:
        return metric("sco_outbox_waiting") == number

    return reached


async def test_what_was_published_long_ago_is_forgotten(post: EventPost) -> None:
    await post.write_many(5)
    async with post.pump():
        await post.emptied()
    async with post.engine.begin() as connection:
        await connection.exec_driver_sql("UPDATE outbox SET created_at = now() - interval '8 days'")
    kept = await post.write("a")

    async def only_that_is_left() -> bool:
        async with post.engine.begin() as connection:
            rows = await connection.exec_driver_sql("SELECT event_id FROM outbox")
            return list(rows.scalars()) == [kept]

    async with post.pump():
        await until(only_that_is_left)
