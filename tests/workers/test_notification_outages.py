"""What is told is neither lost nor counted twice, whatever dies, restarts or is emptied."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Sequence
from datetime import datetime

import pytest
from nats.aio.msg import Msg

from lab.stack import Stack
from store import notifications
from store.engine import Connection
from store.notifications import Kept
from tests.estates import PARTITION
from tests.wire.messages import message
from tests.workers.post_office import PATIENCE_SECONDS, PostOffice, looks, until
from wire.notifications import Notification
from workers import notification_intake


async def test_nobody_reconciles(office: PostOffice) -> None:
    """Without a workflow nothing is lost: the notification is kept, and the next ones come in."""
    one, two, *_ = await office.place()
    async with office.intake():
        await office.stream_is_there()
        for each in (one, two):
            await office.publish(message("instance.delete.end", each))
            await office.emptied()
    assert await office.kept() == sorted([("deleted", one), ("deleted", two)])


async def test_a_look_waits_for_temporal(office: PostOffice, own_stack: Stack) -> None:
    (gone, *_) = await office.place()
    async with office.lookout(PARTITION) as (lookout,), office.intake():
        await office.stream_is_there()
        await asyncio.to_thread(own_stack.kill_one, "temporal")
        await office.publish(message("instance.delete.end", gone))
        await office.emptied()
        assert await office.kept() == [("deleted", gone)]
        await asyncio.to_thread(own_stack.start_one, "temporal")
        await until(lambda: looks(lookout))


async def test_killed_after_the_commit_and_before_the_confirmation(
    office: PostOffice, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It comes again: kept once, and the look that died with the process is asked for."""
    (gone, *_) = await office.place()
    real, confirmed = Msg.ack, []

    async def ack(self: Msg) -> None:
        confirmed.append(self.metadata.num_delivered)
        if len(confirmed) == 1:
            raise asyncio.CancelledError
        await real(self)

    monkeypatch.setattr(Msg, "ack", ack)
    async with office.intake() as running:
        await office.stream_is_there()
        await office.publish(message("instance.delete.end", gone))
        await asyncio.wait([running], timeout=PATIENCE_SECONDS)
        assert running.cancelled()
    assert await office.kept() == [("deleted", gone)]
    async with office.lookout(PARTITION) as (lookout,), office.intake():
        await office.emptied()
        await until(lambda: looks(lookout))
    assert confirmed == [1, 2]
    assert await office.kept() == [("deleted", gone)]


async def test_killed_before_the_commit(office: PostOffice, monkeypatch: pytest.MonkeyPatch) -> None:
    (gone, *_) = await office.place()
    real, kills = notifications.keep, list[int]()

    async def keep(connection: Connection, tenant: str, told: Sequence[Notification], at: datetime) -> Kept:
        kept = await real(connection, tenant, told, at)
        if told and not kills:
            kills.append(len(told))
            raise asyncio.CancelledError
        return kept

    monkeypatch.setattr(notifications, "keep", keep)
    async with office.intake() as running:
        await office.stream_is_there()
        await office.publish(message("instance.delete.end", gone))
        await asyncio.wait([running], timeout=PATIENCE_SECONDS)
        assert running.cancelled()
    assert await office.kept() == []
    async with office.intake():
        await office.emptied()
    assert await office.kept() == [("deleted", gone)]


async def test_a_database_that_is_away_only_delays(office: PostOffice) -> None:
    servers = await office.place()
    async with office.intake():
        await office.stream_is_there()
        for each in servers:
            await office.publish(message("instance.delete.end", each))
            async with office.estate.engine.connect() as connection:
                await connection.exec_driver_sql(
                    "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
                    " WHERE datname = current_database() AND pid <> pg_backend_pid()"
                )
        await office.emptied()
    assert await office.kept() == sorted(("deleted", each) for each in servers)


async def test_a_restarted_server_delivers_what_waited(office: PostOffice, own_stack: Stack) -> None:
    one, two, three, *_ = await office.place()
    async with office.intake():
        await office.stream_is_there()
        await office.publish(message("instance.delete.end", one))
        await office.emptied()
        await asyncio.to_thread(own_stack.kill_one, "nats")
        await asyncio.to_thread(own_stack.start_one, "nats")
        await office.publish(message("instance.delete.end", two))
        await office.emptied()
    await office.publish(message("instance.delete.end", three))
    async with office.intake():
        await office.emptied()
    assert await office.kept() == sorted(("deleted", each) for each in (one, two, three))


async def test_a_server_that_lost_its_store_gets_a_new_stream(office: PostOffice, own_stack: Stack) -> None:
    one, two, *_ = await office.place()
    first = message("instance.delete.end", one)
    async with office.intake():
        await office.stream_is_there()
        await office.publish(first)
        await office.emptied()
        await asyncio.to_thread(own_stack.kill_one, "nats")
        shutil.rmtree(own_stack.data_dir / "nats" / "store")
        await asyncio.to_thread(own_stack.start_one, "nats")
        await office.stream_is_there()
        await office.publish(first, message("instance.delete.end", two))
        await office.emptied()
    assert await office.kept() == sorted([("deleted", one), ("deleted", two)])


async def test_a_stream_or_consumer_that_was_deleted_is_made_again(office: PostOffice) -> None:
    one, two, three, *_ = await office.place()
    async with office.intake():
        await office.stream_is_there()
        await office.publish(message("instance.delete.end", one))
        await office.emptied()
        await office.forget_stream()
        await office.stream_is_there()
        await office.publish(message("instance.delete.end", two))
        await office.emptied()
        await office.forget_consumer()
        await office.publish(message("instance.delete.end", three))
        await office.emptied()
    assert await office.kept() == sorted(("deleted", each) for each in (one, two, three))


async def test_without_a_message_server_it_waits_quietly_and_stops_when_told(
    office: PostOffice, capsys: pytest.CaptureFixture[str]
) -> None:
    before = notification_intake.FAILED._value.get()

    async def failed_twice() -> bool:
        return bool(notification_intake.FAILED._value.get() >= before + 2)

    nowhere = PostOffice(office.estate, "nats://127.0.0.1:1", office.client)
    async with nowhere.intake():
        await until(failed_twice)
    assert capsys.readouterr().out.count("notification_intake_failed") == 1
