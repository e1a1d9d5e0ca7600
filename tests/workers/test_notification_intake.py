"""Each notification counts once, whatever comes twice, late, broken or in any order."""

from __future__ import annotations

import asyncio
import random
from datetime import timedelta
from typing import Any

import nats
import pytest

from lab.cloud.notifications import NotificationFaults
from lab.cloud.server import CloudHandle
from lab.cloud.settings import CloudSettings
from store.notifications import evidence
from tests.estates import PARTITION, REGION, START, TENANT
from tests.wire.messages import message, server, updated, wrapped
from tests.workers.post_office import PostOffice, looks, until
from wire.notifications import STREAM
from workers import looks as looks_module
from workers import notification_intake


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


async def test_the_stream_is_bounded(office: PostOffice) -> None:
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
        " (tenant_id, message_id, region, kind, server_id, emitted_at, received_at)"
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


async def test_a_cloud_that_tells_badly_tells_no_lies(office: PostOffice) -> None:
    """Some are lost, some come twice, late or in another order: what is kept is true, and kept once."""
    settings = CloudSettings(speed=0, nats_url=office.nats_url)
    faults = NotificationFaults(lost=0.2, duplicated=0.3, reordered=0.5, late=0.2, late_seconds=0.3)
    labels = {"sco_batch": "b-1", "sco_tenant": TENANT}
    with CloudHandle.start_in_thread(settings) as cloud:
        async with office.intake():
            await office.stream_is_there()
            await asyncio.to_thread(cloud.admin.set_notification_faults, faults)
            await asyncio.to_thread(cloud.admin.load, REGION, 60, metadata=labels)
            made = {one["id"] for one in await asyncio.to_thread(cloud.admin.servers, metadata=labels)}
            taken = sorted(made)[:30]
            for each in taken:
                await asyncio.to_thread(cloud.admin.terminate, each)
            await until(lambda: _deleted_of(office, taken))
            await asyncio.sleep(0.5)
            await office.emptied()
    rows = await office.estate.rows("SELECT message_id, kind, server_id FROM provider_notifications")
    found = await evidence_of(office, *made)
    assert len({row[0] for row in rows}) == len(rows)
    assert {each for each, one in found.items() if one.deleted_at is not None} <= set(taken)
    assert set(found) <= made


async def _deleted_of(office: PostOffice, servers: list[str]) -> bool:
    """Whether most of what is told twice over was told at least once."""
    found = await evidence_of(office, *servers)
    return sum(one.deleted_at is not None for one in found.values()) > len(servers) / 2
