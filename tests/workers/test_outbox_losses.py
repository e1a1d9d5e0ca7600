"""JetStream loses what it acknowledged: everything that is kept is published again, in order."""

from __future__ import annotations

import asyncio
import random
import shutil

from nats.js.api import StreamConfig

from lab.stack import Stack
from tests.workers.event_post import EventPost, metric
from wire.events import STREAM
from workers import outbox_pump


async def test_a_server_that_lost_its_store_gets_everything_again(post: EventPost, own_stack: Stack) -> None:
    """What was acknowledged, what was not, and what was written meanwhile, in order for each key."""
    before = metric("sco_outbox_republished_total")
    async with post.pump():
        await post.write_many(2 * outbox_pump.BATCH + 30)
        await post.emptied()
        await asyncio.to_thread(own_stack.kill_one, "nats")
        shutil.rmtree(own_stack.data_dir / "nats" / "store")
        await post.write_many(30)
        await asyncio.to_thread(own_stack.start_one, "nats")
        await post.caught_up()
    await post.all_arrived_once_in_order()
    assert metric("sco_outbox_republished_total") - before == 2 * outbox_pump.BATCH + 30


async def test_a_stream_that_was_deleted_is_made_and_filled_again(post: EventPost) -> None:
    """Also when nothing new is published."""
    async with post.pump():
        await post.write_many(10)
        await post.emptied()
        await post.forget_stream()
        await post.caught_up()
        await post.all_arrived_once_in_order()
        await post.write_many(10)
        await post.emptied()
    await post.all_arrived_once_in_order()


async def test_a_stream_that_somebody_else_made_again_is_filled(post: EventPost) -> None:
    async with post.pump():
        await post.write_many(10)
        await post.emptied()
        await post.make_stream(StreamConfig(name=STREAM, subjects=["compute-pools.>"]))
        await post.write_many(10)
        await post.caught_up()
    await post.all_arrived_once_in_order()


async def test_a_stream_that_lost_its_end_is_filled_again(post: EventPost, own_stack: Stack) -> None:
    """An older copy of the store is put back: as many messages are missing as a disk may lose."""
    store = own_stack.data_dir / "nats" / "store"
    copy = own_stack.data_dir / "copy"
    async with post.pump():
        await post.write_many(20)
        await post.emptied()
        await asyncio.to_thread(own_stack.stop_one, "nats")
        shutil.copytree(store, copy)
        await asyncio.to_thread(own_stack.start_one, "nats")
        await post.write_many(20)
        await post.emptied()
        await asyncio.to_thread(own_stack.kill_one, "nats")
        shutil.rmtree(store)
        shutil.move(copy, store)
        await asyncio.to_thread(own_stack.start_one, "nats")
        await post.caught_up()
    await post.all_arrived_once_in_order()


async def test_pumps_that_are_killed_while_a_stream_is_filled_again_go_on(post: EventPost) -> None:
    await post.write_many(300)
    async with post.pump():
        await post.emptied()
    await post.forget_stream()
    rng = random.Random(11)
    writing = asyncio.create_task(post.write_many(100))
    for _ in range(6):
        async with post.pump() as first, post.pump() as second:
            await asyncio.sleep(rng.random() / 10)
            first.cancel()
            second.cancel()
    await writing
    async with post.pump(), post.pump():
        await post.caught_up()
    await post.all_arrived_once_in_order()
