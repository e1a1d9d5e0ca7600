"""Any order, any batches and any repetition of the same events leave the same rows."""

from __future__ import annotations

import random

import pytest
import sqlalchemy as sa

from domain.lifecycle import Event, EventType
from store.engine import Engine
from tests.domain.drains import happened, honest
from tests.store.histories import Books, books, keep, own

T = EventType
WIPE = ("lifecycle_events", "node_drains", "outbox")
LIFE = (
    happened(T.READY, -600, 1, of=None),
    happened(T.WORK_ENDED, -60, 2, of=None, exit_code=1),
    *honest(1, first=3),
    happened(T.NOTICE, 40, 8, of=2),
    happened(T.WITHDRAWN, 50, 9, of=2),
    *honest(3, starts=5000, first=10)[:2],
    happened(T.OVERRUN, 5118, 12, of=3, seconds_to_spare=2.0),
    happened(T.GAP, 5119, 13, of=None, lost_events=4),
)


async def lived(engine: Engine, writer: Engine, batches: list[list[Event]]) -> Books:
    async with engine.begin() as connection:
        for table in WIPE:
            await connection.execute(sa.text(f"DELETE FROM {table}"))
    for batch in batches:
        await keep(writer, "n1", batch)
    return await books(engine)


def shuffled(rng: random.Random) -> list[list[Event]]:
    """Every event at least once, some again and again, cut into batches anywhere."""
    events = [*LIFE, *rng.choices(LIFE, k=rng.randrange(12))]
    rng.shuffle(events)
    cuts = sorted(rng.sample(range(1, len(events)), rng.randrange(6)))
    return [events[a:b] for a, b in zip([0, *cuts], [*cuts, len(events)], strict=True)]


@pytest.mark.parametrize("seed", range(6))
async def test_the_same_events_leave_the_same_rows(service_engine: Engine, engine: Engine, seed: int) -> None:
    await own(engine, "n1")
    expected = await lived(engine, service_engine, [list(LIFE)])
    assert sorted(row[3] for row in expected.drains) == ["drained", "overrun", "withdrawn"]
    rng = random.Random(seed)
    for _ in range(3):
        assert await lived(engine, service_engine, shuffled(rng)) == expected
