"""Each notification counts once, whatever comes twice, late, broken or not at all, and whatever dies."""

from __future__ import annotations

import asyncio
import random
import shutil
from collections.abc import AsyncIterator, Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any

import pytest
import pytest_asyncio
from nats.aio.msg import Msg

from lab.stack import Stack
from store import notifications
from store.engine import Connection
from store.notifications import Kept, evidence
from tests.estates import PARTITION, REGION, START, TENANT, Estate
from tests.stack_fixtures import new_folder
from tests.wire.messages import message, server, updated, wrapped
from tests.workers.post_office import PATIENCE_SECONDS, PostOffice, looks, temporal, until
from wire.notifications import STREAM, Notification
from workers import looks as looks_module
from workers import notification_intake


@pytest.fixture(scope="module")
def own_stack() -> Iterator[Stack]:
    """Servers of this module, whose NATS and Temporal may be killed and emptied."""
    folder = new_folder()
    own = Stack.start(folder / "lab")
    yield own
    own.stop()
    shutil.rmtree(folder)


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notification_intake, "WAIT_SECONDS", 0.2)
    monkeypatch.setattr(notification_intake, "TROUBLE_SECONDS", 0.1)
    monkeypatch.setattr(notification_intake, "ACK_WAIT_SECONDS", 2.0)


@pytest_asyncio.fixture
async def office(estate: Estate, own_stack: Stack) -> AsyncIterator[PostOffice]:
    opened = PostOffice(estate, own_stack.nats_url, await temporal(own_stack.temporal_address))
    yield opened
    await opened.forget_stream()


async def evidence_of(office: PostOffice, *servers: str) -> dict[str, Any]:
    async with office.estate.engine.connect() as connection:
        return await evidence(connection, TENANT, REGION, servers)


async def test_what_is_told_is_kept_and_has_reconcile_look(office: PostOffice) -> None:
    gone, failed, *_ = await office.place()
    async with office.lookout(PARTITION) as (lookout,), office.intake():
        await office.stream_is_there()
        await office.publish(
            message("instance.delete.end", gone, batch=office.batches[0]),
            wrapped(message("instance.create.error", failed, batch=office.batches[1], fault="No host.")),
            message("instance.delete.start", gone),
            message("instance.delete.end", server(99), batch="b-of-another", tenant="another"),
        )
        await office.emptied()
        await until(lambda: looks(lookout))
        assert set(await looks(lookout)) == {REGION}
    assert await office.kept() == [("deleted", gone), ("errored", failed)]
    found = await evidence_of(office, gone, failed, server(99))
    assert found[failed].fault == "No host."
    assert found[gone].deleted_at is not None
    assert set(found) == {gone, failed}


async def test_repeats_and_any_order_change_nothing(office: PostOffice) -> None:
    """Three times everything, shuffled, to two intakes: one row each, and the same evidence."""
    (server_id, *_) = await office.place()
    story = [
        ("instance.create.error", "the first host was full", 1),
        ("instance.create.end", None, 2),
        ("instance.power_off.end", None, 3),
        ("instance.create.error", "the disk is gone", 4),
        ("instance.delete.end", None, 5),
        ("instance.delete.end", None, 6),
    ]
    told = [
        message(kind, server_id, at=START + timedelta(seconds=second), fault=fault)
        for kind, fault, second in story
    ]
    rng = random.Random(3)
    async with office.intake(), office.intake():
        await office.stream_is_there()
        await office.publish(*rng.sample(told * 3, 18))
        await office.emptied()
    assert len(await office.kept()) == len(story)
    found = (await evidence_of(office, server_id))[server_id]
    assert found.created_at == START + timedelta(seconds=2)
    assert found.stopped_at == START + timedelta(seconds=3)
    assert (found.errored_at, found.fault) == (START + timedelta(seconds=4), "the disk is gone")
    assert found.deleted_at == START + timedelta(seconds=5)


async def test_an_attempt_that_failed_is_no_error_once_the_server_was_built(office: PostOffice) -> None:
    (server_id, *_) = await office.place()
    async with office.intake():
        await office.stream_is_there()
        await office.publish(
            message("instance.create.end", server_id, at=START + timedelta(seconds=2)),
            message("instance.create.error", server_id, at=START, fault="the first host was full"),
        )
        await office.emptied()
    found = (await evidence_of(office, server_id))[server_id]
    assert (found.created_at, found.errored_at, found.fault) == (START + timedelta(seconds=2), None, None)


@pytest.mark.parametrize(
    "sql",
    [
        "UPDATE instances SET state = 'releasing' WHERE server_id = :s",
        "UPDATE instances SET state = 'failed' WHERE server_id = :s",
        "INSERT INTO audit_log (tenant_id, actor, action, cause, region, server_id)"
        " VALUES ('platform', 'reconcile', 'delete', 'orphan', 'eu-north', :s)",
    ],
    ids=["given back", "failed", "deleted by us"],
)
async def test_an_end_that_we_asked_for_is_kept_but_needs_no_look(office: PostOffice, sql: str) -> None:
    ours, theirs, *_ = await office.place()
    await office.estate.rows(sql, s=ours)
    async with office.lookout(PARTITION) as (lookout,), office.intake():
        await office.stream_is_there()
        await office.publish(message("instance.delete.end", ours, batch=office.batches[0]))
        await office.emptied()
        assert await office.kept() == [("deleted", ours)]
        await asyncio.sleep(0.3)
        assert await looks(lookout) == []
        await office.publish(message("instance.delete.end", theirs, batch=office.batches[1]))
        await until(lambda: looks(lookout))


async def test_a_server_without_a_slot_is_ours_by_its_batch(office: PostOffice) -> None:
    """It vanished before it was bound: its metadata says whose it was."""
    await office.place()
    async with office.lookout(PARTITION) as (lookout,), office.intake():
        await office.stream_is_there()
        await office.publish(
            updated("building", "error", server_id=server(5), batch=office.batches[0]),
            updated("building", "error", server_id=server(6), batch="b-nobody-remembers"),
        )
        await office.emptied()
        await until(lambda: looks(lookout))
        assert await looks(lookout) == [REGION]
    assert await office.kept() == [("errored", server(5)), ("errored", server(6))]


async def test_eight_hundred_ends_at_once_are_one_or_two_looks(office: PostOffice) -> None:
    servers = await office.place(800)
    assert len(servers) == 800
    async with office.lookout(PARTITION) as (lookout,), office.intake():
        await office.stream_is_there()
        started = asyncio.get_running_loop().time()
        await office.publish(
            *(
                message("instance.delete.end", each, batch=batch)
                for each, batch in zip(servers, office.batches, strict=True)
            )
        )
        await office.emptied()
        seconds = asyncio.get_running_loop().time() - started
        await until(lambda: looks(lookout))
        await asyncio.sleep(1.5 * looks_module.EVERY_SECONDS)
        asked = await looks(lookout)
    assert len(await office.kept()) == 800
    assert 1 <= len(asked) <= 2 + seconds // looks_module.EVERY_SECONDS
    assert set(asked) == {REGION}


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


async def test_poison_is_thrown_away_and_what_is_around_it_is_kept(office: PostOffice) -> None:
    """Bad JSON, wrong shapes, and one that only the database refuses."""
    one, two, bad, *_ = await office.place()
    refused = notification_intake.REFUSED.labels
    before = {
        reason: refused(reason)._value.get() for reason in ("not_json", "payload", "server_id", "store")
    }
    await office.estate.rows(
        f"ALTER TABLE provider_notifications ADD CONSTRAINT poison CHECK (server_id <> '{bad}')"
    )
    try:
        async with office.intake():
            await office.stream_is_there()
            await office.publish(
                message("instance.delete.end", one),
                b"\xff\xfe no json",
                message("instance.delete.end", bad),
                message() | {"payload": "nothing"},
                message(uuid="\x00"),
                message("instance.delete.end", two),
            )
            await office.emptied()
            assert await office.kept() == sorted([("deleted", one), ("deleted", two)])
    finally:
        await office.estate.rows("ALTER TABLE provider_notifications DROP CONSTRAINT poison")
    assert {reason: refused(reason)._value.get() for reason in before} == {
        reason: count + 1 for reason, count in before.items()
    }


async def test_a_database_that_is_away_only_delays(office: PostOffice) -> None:
    servers = await office.place()
    async with office.intake():
        await office.stream_is_there()
        for each in servers:
            await office.publish(message("instance.delete.end", each))
            async with office.estate.engine.connect() as connection:
                await connection.exec_driver_sql(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
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


async def test_the_stream_is_bounded(office: PostOffice) -> None:
    import nats

    async with office.intake():
        await office.stream_is_there()
        client = await nats.connect(office.nats_url)
        config = (await client.jetstream().stream_info(STREAM)).config
        await client.close()
    assert (config.max_age, config.max_bytes) == (3 * 86_400, 256 * 1024 * 1024)
    assert config.subjects == ["sco.provider.*.notifications"]


async def test_what_is_old_is_forgotten_in_small_deletes(
    office: PostOffice, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notification_intake, "PURGE_BATCH", 3)
    monkeypatch.setattr(notification_intake, "PURGE_EVERY_SECONDS", 0.1)
    await office.estate.rows(
        "INSERT INTO provider_notifications"
        " (tenant_id, message_id, region, event_type, server_id, emitted_at, received_at)"
        " SELECT 'platform', i::text, 'eu-north', 'deleted', 's' || i, :now,"
        " CAST(:now AS timestamptz) - make_interval(days => CAST(i AS int)) FROM generate_series(21, 40) i",
        now=START,
    )
    async with office.intake():
        await until(lambda: _is_down_to(office, 10))
        await asyncio.sleep(0.3)
    assert len(await office.kept()) == 10


async def _is_down_to(office: PostOffice, count: int) -> bool:
    return len(await office.kept()) == count
