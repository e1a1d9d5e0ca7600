"""The outbox: written with the change, once for each event, and given out in order to one at a time."""

from __future__ import annotations

from uuid import UUID, uuid4

from domain.ids import event_id
from store import outbox
from store.engine import Connection
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
        rows = await outbox.unpublished(connection, 2)
        assert [row.event_id for row in rows] == written[:2]
        await outbox.mark_published(connection, [row.sequence for row in rows], estate.clock())
    async with estate.engine.begin() as connection:
        assert await outbox.waiting(connection) == 3
        assert [row.event_id for row in await outbox.unpublished(connection, 9)] == written[2:]
    assert await estate.value("SELECT count(*) FROM outbox WHERE published_at = :at", at=estate.clock()) == 2


async def test_marking_nothing_is_no_change(estate: Estate) -> None:
    async with estate.engine.begin() as connection:
        await add(connection, "a")
        await outbox.mark_published(connection, [], estate.clock())
        assert await outbox.waiting(connection) == 1


async def test_one_publishes_at_a_time(estate: Estate) -> None:
    async with estate.engine.begin() as connection:
        await add(connection, "a")
    async with estate.engine.begin() as first, estate.engine.begin() as second:
        assert len(await outbox.unpublished(first, 9)) == 1
        assert await outbox.unpublished(second, 9) == []
    async with estate.engine.begin() as third:
        assert len(await outbox.unpublished(third, 9)) == 1
