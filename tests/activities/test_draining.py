"""The hand that drains, on a real database: whoever dies when, a pool is drained once and told once."""

from __future__ import annotations

import asyncio
from typing import Any, cast
from uuid import uuid4

import pytest
from psycopg.errors import CheckViolation
from temporalio.testing import ActivityEnvironment

from activities.drain_calls import DrainLooked, PoolDrainInput
from activities.draining import DrainingActivities
from activities.model_loading import ModelLoading
from activities.placing import PlacingActivities
from activities.serving.http import HttpServing
from activities.serving.ports import ServingPort
from domain.pool import PoolState
from domain.pool_life import DrainTerms, LifeRefusal, PoolAction, Refusal
from domain.serving.endpoint import EndpointTerms
from domain.serving.warm_keep import WarmKeepTerms
from lab.chaos.killing import FusedEngine
from store import pool_life
from store.engine import Engine
from store.pool_life import Stepped
from tests.activities.deciding import Placer, counts_are_right, halls
from tests.activities.model_loading import OneSecret
from tests.activities.provider import Crashed, Fuse
from tests.activities.serving.model_servers import served
from tests.estates import PARTITION, TENANT, Estate

POOL = "eu-north-h1-p1"
TERMS = DrainTerms(model_patience_seconds=600, model_quiet_seconds=60, look_seconds=7)
LEASE_SECONDS = 30
LOAD = """
    INSERT INTO cached_models (tenant_id, pool_id, model, loaded_at, last_used_at, vram_gb)
    VALUES ('platform', :pool, :model, :at, :at, 40)
"""
EVENTS = "SELECT topic, payload FROM outbox WHERE key = :pool ORDER BY sequence"


class Drainer:
    """One pool of an estate and the hand that drains it."""

    def __init__(self, estate: Estate) -> None:
        self.estate = estate
        self.told: list[tuple[str, str, str]] = []
        self.serving: ServingPort = HttpServing(EndpointTerms())

    async def serve(self, url: str, serving: ServingPort) -> None:
        """Give the pool an endpoint."""
        self.serving = serving
        await self.estate.rows(
            "UPDATE pools SET endpoint_ref = :url WHERE pool_id = :pool", url=url, pool=POOL
        )

    async def step(self, action: PoolAction, version: int | None = None) -> Stepped | Refusal:
        async with self.estate.engine.begin() as connection:
            at = self.estate.clock()
            return await pool_life.take_step(connection, TENANT, POOL, action, version, by="ada", at=at)

    async def look(self, told_since: Any = None, engine: Engine | None = None) -> DrainLooked:
        over = engine or self.estate.engine
        models = ModelLoading(
            over,
            self.serving,
            OneSecret(),
            terms=WarmKeepTerms(lease_seconds=LEASE_SECONDS),
            now=self.estate.clock,
            new_key=uuid4,
        )
        hands = DrainingActivities(over, self._tell, models, terms=TERMS, now=self.estate.clock)
        request = PoolDrainInput(tenant_id=TENANT, pool_id=POOL, told_since=told_since)
        return cast(DrainLooked, await ActivityEnvironment().run(hands.drain_pool, request))

    async def _tell(self, tenant_id: str, partition_id: str, workload_id: str) -> None:
        self.told.append((tenant_id, partition_id, workload_id))

    async def load(self, model: str) -> None:
        await self.estate.rows(LOAD, pool=POOL, model=model, at=self.estate.clock())

    async def events(self) -> list[str]:
        rows = await self.estate.rows(EVENTS, pool=POOL)
        return [topic.rpartition(".")[2] for topic, _ in rows]


async def held_pool(estate: Estate) -> tuple[Placer, Drainer]:
    """A workload with running units in the pool, among others."""
    await estate.open(halls(), free=40)
    await estate.workload()
    placer = Placer(estate)
    await placer.place(30)
    await placer.run()
    assert POOL in await placer.held()
    return placer, Drainer(estate)


async def test_a_pool_is_drained_when_its_units_run_elsewhere(estate: Estate) -> None:
    placer, drainer = await held_pool(estate)
    await drainer.step(PoolAction.DRAIN)
    first = await drainer.look()
    assert (first.over, first.state, first.pause_seconds) == (False, PoolState.DRAINING, 7)
    assert first.units == first.instances > 0
    assert "of orders" in first.held
    assert drainer.told == [(TENANT, PARTITION, "orders")]
    await placer.decide()
    second = await drainer.look(first.since)
    assert (second.over, second.units, second.instances) == (False, 0, first.instances)
    await placer.run()
    await placer.give_back()
    third = await drainer.look(first.since)
    assert (third.over, third.held) == (True, "nothing")
    assert third.drained_at == estate.clock()
    assert len(drainer.told) == 1
    assert await drainer.events() == ["compute-pool-state-changed", "compute-pool-drained"]
    await counts_are_right(estate)


async def test_looking_again_drains_no_second_time(estate: Estate) -> None:
    await estate.open(halls(), free=40)
    drainer = Drainer(estate)
    await drainer.step(PoolAction.DRAIN)
    first = await drainer.look()
    estate.clock.move(60)
    assert (await drainer.look()).drained_at == first.drained_at
    looks = await asyncio.gather(*(drainer.look() for _ in range(8)))
    assert {one.drained_at for one in looks} == {first.drained_at}
    assert (await drainer.events()).count("compute-pool-drained") == 1


async def test_looks_at_once_evict_and_drain_once(estate: Estate) -> None:
    await estate.open(halls(), free=40)
    drainer = Drainer(estate)
    await drainer.load("llama")
    estate.clock.move(100)
    await drainer.step(PoolAction.DRAIN)
    looks = await asyncio.gather(*(drainer.look() for _ in range(8)))
    assert sorted(one.evicted for one in looks) == [()] * 7 + [("llama",)]
    events = await drainer.events()
    assert events == ["compute-pool-state-changed", "model-evicted", "compute-pool-drained"]


@pytest.mark.parametrize("dies_at", range(1, 14))
async def test_a_hand_that_dies_anywhere_is_taken_up_by_a_later_look(estate: Estate, dies_at: int) -> None:
    """The worker dies before, in or after each of its transactions: looks, unloading, and its record."""
    await estate.open(halls(), free=40)
    drainer = Drainer(estate)
    await drainer.load("llama")
    estate.clock.move(100)
    await drainer.step(PoolAction.DRAIN)
    with pytest.raises(Crashed):
        await drainer.look(engine=cast(Engine, FusedEngine(estate.engine, Fuse(dies_at))))
    estate.clock.move(LEASE_SECONDS)
    assert (await drainer.look()).over
    assert await drainer.events() == ["compute-pool-state-changed", "model-evicted", "compute-pool-drained"]
    assert await estate.value("SELECT count(*) FROM cached_models") == 0


async def test_holders_are_told_although_the_hand_died_after_its_commit(estate: Estate) -> None:
    _, drainer = await held_pool(estate)
    await drainer.step(PoolAction.DRAIN)
    with pytest.raises(Crashed):
        await drainer.look(engine=cast(Engine, FusedEngine(estate.engine, Fuse(3))))
    assert drainer.told == []
    await drainer.look()
    assert drainer.told == [(TENANT, PARTITION, "orders")]


async def test_a_model_in_use_is_waited_for(estate: Estate) -> None:
    await estate.open(halls(), free=40)
    drainer = Drainer(estate)
    await drainer.load("llama")
    await drainer.step(PoolAction.DRAIN)
    assert (await drainer.look()).models == 1
    estate.clock.move(59)
    waiting = await drainer.look()
    assert (waiting.over, waiting.evicted) == (False, ())
    estate.clock.move(1)
    done = await drainer.look()
    assert (done.over, done.evicted, done.models) == (True, ("llama",), 0)
    ((topic, payload),) = (await estate.rows(EVENTS, pool=POOL))[1:2]
    assert topic == "compute-pools.cache.v1.model-evicted"
    assert payload == {"poolId": POOL, "tenantId": TENANT, "model": "llama", "reason": "drained"}


async def test_patience_with_models_is_bounded(estate: Estate) -> None:
    await estate.open(halls(), free=40)
    drainer = Drainer(estate)
    await drainer.step(PoolAction.DRAIN)
    await drainer.load("llama")
    for _ in range(10):
        estate.clock.move(60)
        await estate.rows("UPDATE cached_models SET last_used_at = :at", at=estate.clock())
        done = await drainer.look()
    assert (done.over, done.evicted) == (True, ("llama",))
    rows = await estate.rows(EVENTS, pool=POOL)
    assert rows[1][1]["reason"] == "patience_over"


async def test_a_model_leaves_its_endpoint_before_the_store_forgets_it(estate: Estate) -> None:
    await estate.open(halls(), free=40)
    drainer = Drainer(estate)
    with served("ollama") as server:
        await drainer.serve(server.url, server.serving)
        await server.serving.load(server.endpoint, "m:40gb")
        await drainer.load("m:40gb")
        await drainer.step(PoolAction.DRAIN)
        estate.clock.move(100)
        server.admin("disturb", {"deny": True})
        stays = await drainer.look()
        assert (stays.over, stays.evicted, stays.models) == (False, (), 1)
        assert server.state["models"] == {"m:40gb": "loaded"}
        server.admin("disturb", {"deny": False})
        done = await drainer.look()
        assert (done.over, done.evicted) == (True, ("m:40gb",))
        assert server.state["models"] == {}
    assert await drainer.events() == ["compute-pool-state-changed", "model-evicted", "compute-pool-drained"]


async def test_an_endpoint_that_is_gone_holds_up_a_drain_no_longer_than_its_patience(estate: Estate) -> None:
    await estate.open(halls(), free=40)
    drainer = Drainer(estate)
    with served("ollama") as server:
        await drainer.serve(server.url, server.serving)
    await drainer.load("llama")
    await drainer.step(PoolAction.DRAIN)
    estate.clock.move(TERMS.model_patience_seconds - 1)
    assert not (await drainer.look()).over
    estate.clock.move(1)
    assert (await drainer.look()).over
    assert (await drainer.events()).count("model-evicted") == 1


async def test_a_resumed_pool_is_left_alone(estate: Estate) -> None:
    _, drainer = await held_pool(estate)
    await drainer.step(PoolAction.DRAIN)
    await drainer.step(PoolAction.RESUME)
    looked = await drainer.look()
    assert (looked.over, looked.state, looked.drained_at) == (True, PoolState.ACTIVE, None)
    assert drainer.told == []


async def test_a_second_drain_is_one_of_its_own(estate: Estate) -> None:
    await estate.open(halls(), free=40)
    drainer = Drainer(estate)
    for _ in range(2):
        await drainer.step(PoolAction.DRAIN)
        estate.clock.move(1)
        assert (await drainer.look()).over
        await drainer.step(PoolAction.RESUME)
        assert await estate.value("SELECT drained_at FROM pools WHERE pool_id = :p", p=POOL) is None
    assert (await drainer.events()).count("compute-pool-drained") == 2


async def test_retiring_is_refused_while_anything_is_held(estate: Estate) -> None:
    placer, drainer = await held_pool(estate)
    await drainer.step(PoolAction.DRAIN)
    refused = await drainer.step(PoolAction.RETIRE)
    assert isinstance(refused, Refusal)
    assert refused.reason is LifeRefusal.POOL_HOLDS
    await placer.decide()
    await placer.run()
    await placer.give_back()
    done = await drainer.step(PoolAction.RETIRE)
    assert isinstance(done, Stepped)
    assert (done.pool.state, done.pool.drained_at) == (PoolState.RETIRED, estate.clock())
    assert await drainer.events() == [
        "compute-pool-state-changed",
        "compute-pool-drained",
        "compute-pool-state-changed",
    ]


async def test_a_plan_made_before_the_drain_is_made_again(estate: Estate) -> None:
    """A decision on live state of a second ago plans no slot in a pool that drains since."""
    await estate.open(halls(), free=40)
    await estate.workload()
    await estate.workload("later")
    placer = Placer(estate)
    await placer.place(8)
    await Drainer(estate).step(PoolAction.DRAIN)
    await estate.claim(30, "later")
    hands: PlacingActivities = placer.hands
    before = estate.clock()
    estate.clock.move(-2)
    await placer.decide("later")
    assert estate.clock() == before
    assert hands is placer.hands
    assert POOL not in await placer.held("later")
    await counts_are_right(estate)


async def test_the_database_itself_refuses_slots_in_a_pool_that_drains(estate: Estate) -> None:
    await held_pool(estate)
    await Drainer(estate).step(PoolAction.DRAIN)
    insert = """
        INSERT INTO instances (tenant_id, workload_id, partition_id, generation, state, slot_key,
                               batch_key, pool_id, region, shape_key)
        VALUES ('platform', 'orders', :partition, 1, 'planned', 'new', 'new', :pool, 'eu-north', 'x')
    """
    with pytest.raises(Exception, match="takes no new slots") as refused:
        await estate.rows(insert, partition=PARTITION, pool=POOL)
    assert isinstance(getattr(refused.value, "orig", None), CheckViolation)


async def test_sixteen_people_take_one_step_once(estate: Estate) -> None:
    await estate.open(halls(), free=40)
    drainer = Drainer(estate)
    done = await asyncio.gather(*(drainer.step(PoolAction.DRAIN, 1) for _ in range(16)))
    assert sum(isinstance(one, Stepped) for one in done) == 1
    reasons = {one.reason for one in done if isinstance(one, Refusal)}
    assert reasons == {LifeRefusal.VERSION_CONFLICT}
    assert await drainer.events() == ["compute-pool-state-changed"]
