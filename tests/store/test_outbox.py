"""The outbox: written with the change, once for each event, and given out in order to one at a time."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from uuid import UUID, uuid4

from domain.ids import event_id
from store import event_streams, outbox
from store.engine import Connection, Engine, of_tenant
from store.event_streams import Known, Seen
from tests.estates import TENANT, Estate
from wire.payloads import ModelWarmed


async def add(
    connection: Connection, key: str, once: str | None = None, *, tenant: str = TENANT, vram_gb: int = 40
) -> UUID:
    once = once or str(uuid4())
    payload = ModelWarmed(tenant_id=tenant, pool_id=key, model="llama", vram_gb=vram_gb)
    await outbox.add_event(connection, payload, once=once)
    return event_id(ModelWarmed.topic, tenant, once)


async def test_an_event_written_again_stays_as_it_was(estate: Estate) -> None:
    async with estate.engine.begin() as connection:
        told = await add(connection, "a", "load-1", vram_gb=40)
    async with estate.engine.begin() as connection:
        await add(connection, "a", "load-1", vram_gb=80)
    assert await estate.rows("SELECT event_id, payload->'vramGb' FROM outbox") == [(told, 40)]


async def test_one_thing_in_two_tenants_is_two_events(estate: Estate) -> None:
    async with estate.engine.begin() as connection:
        ours = await add(connection, "a", "load-1")
        theirs = await add(connection, "a", "load-1", tenant="acme")
    assert ours != theirs
    rows = await estate.rows("SELECT tenant_id, event_id FROM outbox ORDER BY sequence")
    assert rows == [(TENANT, ours), ("acme", theirs)]


async def test_an_event_goes_with_its_transaction(estate: Estate) -> None:
    async with estate.engine.connect() as connection:
        await add(connection, "a")
        await connection.rollback()
    async with estate.engine.begin() as connection:
        assert await outbox.waiting(connection) == 0


async def test_the_oldest_come_first_and_once_marked_never_again(estate: Estate) -> None:
    async with estate.engine.begin() as connection:
        written = [await add(connection, "a") for _ in range(5)]
    async with estate.engine.begin() as connection:
        rows = await outbox.to_publish(connection, 2)
        assert [row.event_id for row in rows] == written[:2]
        await outbox.mark_published(connection, [row.sequence for row in rows], estate.clock())
    async with estate.engine.begin() as connection:
        assert await outbox.waiting(connection) == 3
        assert [row.event_id for row in await outbox.to_publish(connection, 9)] == written[2:]
    assert await estate.value("SELECT count(*) FROM outbox WHERE published_at = :at", at=estate.clock()) == 2


async def test_marking_nothing_is_no_change(estate: Estate) -> None:
    async with estate.engine.begin() as connection:
        await add(connection, "a")
        await outbox.mark_published(connection, [], estate.clock())
        assert await outbox.waiting(connection) == 1


async def test_one_publishes_at_a_time(estate: Estate) -> None:
    async with estate.engine.begin() as first, estate.engine.begin() as second:
        assert await outbox.take_turn(first)
        assert not await outbox.take_turn(second)
    async with estate.engine.begin() as third:
        assert await outbox.take_turn(third)


async def test_what_was_published_comes_again_in_its_order_with_what_was_not(estate: Estate) -> None:
    async with estate.engine.begin() as connection:
        written = [await add(connection, "a") for _ in range(6)]
    sequences = [row[0] for row in await estate.rows("SELECT sequence FROM outbox ORDER BY 1")]
    async with estate.engine.begin() as connection:
        await outbox.mark_published(connection, [sequences[0], *sequences[2:5]], estate.clock())
        again = await outbox.to_publish(connection, 9, resend_after=sequences[2])
        assert [row.event_id for row in again] == [written[1], *written[3:]]
        assert [row.event_id for row in await outbox.to_publish(connection, 2, resend_after=0)] == written[:2]


async def test_what_was_published_keeps_its_time_when_it_is_published_again(estate: Estate) -> None:
    async with estate.engine.begin() as connection:
        await add(connection, "a")
    first = estate.clock()
    for _ in range(2):
        async with estate.engine.begin() as connection:
            rows = await outbox.to_publish(connection, 9, resend_after=0)
            await outbox.mark_published(connection, [row.sequence for row in rows], estate.clock())
        estate.clock.move(60)
    assert await estate.rows("SELECT published_at FROM outbox") == [(first,)]


async def test_events_of_one_key_take_their_place_one_after_the_other(estate: Estate) -> None:
    """The second transaction waits for the first, so its event cannot be published before the first's."""
    engine = estate.engine
    async with engine.connect() as first, engine.connect() as second, engine.connect() as third:
        told = [await add(first, "a")]
        waits = asyncio.create_task(add(second, "a"))
        await add(third, "a", tenant="acme")
        await add(third, "b")
        await third.commit()
        done, _ = await asyncio.wait([waits], timeout=0.5)
        assert not done
        await first.commit()
        told.append(await asyncio.wait_for(waits, 10))
        await second.commit()
    ours = "SELECT event_id FROM outbox WHERE (tenant_id, key) = (:tenant, 'a') ORDER BY sequence"
    assert await estate.rows(ours, tenant=TENANT) == [(one,) for one in told]


async def test_the_backlog_counts_what_waits_and_its_age(estate: Estate) -> None:
    async with estate.engine.begin() as connection:
        assert await outbox.backlog(connection) == (0, 0.0)
        for _ in range(3):
            await add(connection, "a")
    await estate.rows("UPDATE outbox SET created_at = created_at - interval '1 hour'")
    async with estate.engine.begin() as connection:
        waits = await outbox.backlog(connection)
        assert waits.events == 3
        assert waits.oldest_seconds >= 3600
        rows = await outbox.to_publish(connection, 9)
        await outbox.mark_published(connection, [row.sequence for row in rows], estate.clock())
        assert await outbox.backlog(connection) == (0, 0.0)
        assert (await outbox.backlog(connection, resend_after=rows[0].sequence)).events == 2


async def aged(estate: Estate, ages_days: list[int]) -> None:
    """Events in the order of these ages, all published but the last."""
    async with estate.engine.begin() as connection:
        for _ in ages_days:
            await add(connection, "a")
        rows = await outbox.to_publish(connection, 99)
        await outbox.mark_published(connection, [row.sequence for row in rows[:-1]], estate.clock())
    for row, days in zip(rows, ages_days, strict=True):
        at = estate.clock() - timedelta(days=days)
        await estate.rows("UPDATE outbox SET created_at = :at WHERE sequence = :s", at=at, s=row.sequence)


async def test_what_was_published_long_ago_is_forgotten_in_small_steps(estate: Estate) -> None:
    await aged(estate, [30, 20, 10, 3, 30])
    before = estate.clock() - timedelta(days=7)
    gone = []
    for _ in range(3):
        async with estate.engine.begin() as connection:
            gone.append(await outbox.purge(connection, before, limit=2))
    assert gone == [2, 1, 0]
    async with estate.engine.begin() as connection:
        assert await outbox.purge(connection, before, limit=99) == 0
        assert await outbox.waiting(connection) == 1
    assert await estate.value("SELECT count(*) FROM outbox") == 2


async def test_nothing_is_forgotten_while_it_is_published_again(estate: Estate) -> None:
    await aged(estate, [30, 30, 1])
    seen = Seen(estate.clock(), 5)
    for resend_after, gone in ((0, 0), (None, 2)):
        async with estate.engine.begin() as connection:
            await event_streams.remember(connection, "S", Known(seen, resend_after))
            assert await outbox.purge(connection, estate.clock() - timedelta(days=7), limit=9) == gone


async def test_both_roles_do_their_part(
    estate: Estate, tenant_engine: Engine, service_engine: Engine
) -> None:
    """The API writes events of its tenant and sees no others; workers publish and forget them all."""
    async with of_tenant(tenant_engine, "acme").begin() as connection:
        await add(connection, "a", tenant="acme")
        await add(connection, "a", "twice", tenant="acme")
        await add(connection, "a", "twice", tenant="acme")
        assert await outbox.waiting(connection) == 2
    async with of_tenant(tenant_engine, TENANT).begin() as connection:
        assert await outbox.waiting(connection) == 0
    async with service_engine.begin() as connection:
        assert await outbox.take_turn(connection)
        rows = await outbox.to_publish(connection, 9)
        assert [row.tenant_id for row in rows] == ["acme", "acme"]
        await outbox.mark_published(connection, [row.sequence for row in rows], estate.clock())
        await event_streams.remember(connection, "S", Known(Seen(estate.clock(), 2), None))
        assert await outbox.purge(connection, estate.clock() + timedelta(days=999), limit=9) == 2
