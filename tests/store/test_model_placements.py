"""Placements of models in the store: expiry in batches, listings in pages, and row security."""

from __future__ import annotations

import asyncio
from uuid import UUID, uuid4

import pytest
import pytest_asyncio
import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from domain.pool import SecurityBoundary
from domain.serving.placing import PlacementOutcome
from store import model_placements
from store.engine import Engine, of_tenant
from store.model_placements import Place, PlacementFilter
from store.tables import PlacementState
from tests.activities.model_placing import ACME, PLATFORM, ServingEstate
from tests.domain.serving.pools import wanted
from tests.estates import Clock


@pytest_asyncio.fixture
async def serving(engine: Engine, tenant_engine: Engine, clock: Clock) -> ServingEstate:
    own = ServingEstate(engine, tenant_engine, clock)
    await own.pool(vram_gb=640)
    return own


async def test_what_is_over_expires_oldest_first_in_batches(
    serving: ServingEstate, service_engine: Engine
) -> None:
    names = []
    for number in range(5):
        names.append((await serving.place(wanted(model=f"model-{number}"))).record.placement_id)
        serving.clock.move(1)
    serving.clock.move(597)
    ended = []
    for _ in range(3):
        async with service_engine.begin() as connection:
            batch = await model_placements.expire(connection, serving.clock(), 2)
        ended.append({one.placement_id for one in batch})
    assert ended == [set(names[:2]), {names[2]}, set()]
    assert await serving.committed() == 140
    await serving.memory_is_right()


async def test_two_sweeps_at_once_end_each_placement_once(
    serving: ServingEstate, service_engine: Engine
) -> None:
    for number in range(8):
        await serving.place(wanted(model=f"model-{number}"))
    serving.clock.move(601)

    async def sweep() -> list[UUID]:
        async with service_engine.begin() as connection:
            batch = await model_placements.expire(connection, serving.clock(), 100)
            await asyncio.sleep(0.05)
            return [one.placement_id for one in batch]

    ended = [name for batch in await asyncio.gather(*(sweep() for _ in range(4))) for name in batch]
    assert len(ended) == len(set(ended)) == 8
    assert await serving.committed() == 0


async def test_a_loaded_model_stays_when_its_placement_expires(
    serving: ServingEstate, service_engine: Engine
) -> None:
    await serving.place()
    await serving.load()
    serving.clock.move(601)
    async with service_engine.begin() as connection:
        assert len(await model_placements.expire(connection, serving.clock(), 10)) == 1
    assert await serving.committed() == 70
    assert await serving.run("SELECT state, holds FROM cached_models") == [("loaded", 0)]


async def test_listings_are_newest_first_and_go_on_where_they_ended(serving: ServingEstate) -> None:
    for number in range(5):
        await serving.place(wanted(model=f"model-{number % 2}"))
        serving.clock.move(number % 2)
    engine = of_tenant(serving.owner, ACME)
    async with engine.connect() as connection:
        everything = await model_placements.list_placements(
            connection, ACME, PlacementFilter(), before=None, limit=10
        )
        found, before = [], None
        for _ in range(4):
            page = await model_placements.list_placements(
                connection, ACME, PlacementFilter(), before=before, limit=2
            )
            found += page
            before = Place(page[-1].decided_at, page[-1].placement_id) if page else before
    assert found == everything
    keys = [(one.decided_at, one.placement_id) for one in everything]
    assert keys == sorted(keys, reverse=True)


@pytest.mark.parametrize(
    ("wanted_filter", "count"),
    [
        (PlacementFilter(), 4),
        (PlacementFilter(outcome="placed"), 2),
        (PlacementFilter(outcome="policy_denied"), 1),
        (PlacementFilter(state="released"), 1),
        (PlacementFilter(deployment_id="assistant"), 3),
        (PlacementFilter(model="qwen"), 1),
        (PlacementFilter(pool_id="gpu-1", state="held"), 1),
        (PlacementFilter(pool_id="gpu-2"), 0),
    ],
)
async def test_listings_are_filtered(
    serving: ServingEstate, wanted_filter: PlacementFilter, count: int
) -> None:
    released = await serving.place()
    await serving.hand.release(ACME, released.record.placement_id)
    await serving.place(wanted(model="qwen"))
    await serving.place(wanted(regions=("us-east",)))
    await serving.place(wanted(deployment_id="big", vram_gb=5000))
    await serving.place(tenant="others")
    async with of_tenant(serving.owner, ACME).connect() as connection:
        found = await model_placements.list_placements(connection, ACME, wanted_filter, before=None, limit=10)
    assert len(found) == count


async def test_a_tenant_reads_and_ends_its_own_placements_alone(
    serving: ServingEstate, tenant_engine: Engine
) -> None:
    name = (await serving.place()).record.placement_id
    async with of_tenant(tenant_engine, "others").begin() as connection:
        assert await model_placements.find_placement(connection, ACME, name) is None
        assert await model_placements.release_placement(connection, ACME, name, at=serving.clock()) is None
        assert (
            await model_placements.list_placements(connection, ACME, PlacementFilter(), before=None, limit=9)
            == []
        )
        assert await model_placements.expire(connection, serving.later(9999), 10) == []
    assert await serving.committed() == 70


@pytest.mark.parametrize("pool", [(ACME, "gpu-1"), (PLATFORM, "not-shared")])
async def test_nobody_holds_a_pool_that_he_may_not_see(
    serving: ServingEstate, tenant_engine: Engine, pool: tuple[str, str]
) -> None:
    """Not even with a statement of his own."""
    await serving.pool("not-shared", PLATFORM, security_boundary=SecurityBoundary.PRIVATE)
    statement = sa.text(
        "INSERT INTO model_placements (tenant_id, placement_id, deployment_id, model, requirements,"
        " candidates, outcome, pool_tenant_id, pool_id, vram_gb, state, decided_at, expires_at)"
        " VALUES ('others', :id, 'd', 'm', '{}', '{}', 'placed', :tenant, :pool, 1, 'held', now(), now())"
    )
    with pytest.raises((IntegrityError, sa.exc.ProgrammingError)):
        async with of_tenant(tenant_engine, "others").begin() as connection:
            await connection.execute(statement, {"id": uuid4(), "tenant": pool[0], "pool": pool[1]})
    assert await serving.run("SELECT count(*) FROM model_placements") == [(0,)]


async def test_an_end_never_comes_before_the_decision(serving: ServingEstate) -> None:
    placed = await serving.place()
    serving.clock.move(-60)
    ended = await serving.hand.release(ACME, placed.record.placement_id)
    assert ended is not None
    assert ended.ended_at == placed.record.decided_at
    assert (ended.state, ended.outcome) == (PlacementState.RELEASED, PlacementOutcome.PLACED)
