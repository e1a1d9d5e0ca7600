"""A placement of a model the whole way: Postgres, Temporal, the product's worker and a server of models."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import pytest_asyncio
from pydantic import SecretStr
from temporalio.client import Client, WorkflowHandle

from activities.model_placement_calls import ModelPlacementEnded
from activities.model_placement_start import ModelPlacementStarter
from activities.model_placing import ModelPlacing, Placed
from activities.usage_sinks import NoUsageSink
from domain.ids import model_placement_workflow_id
from domain.policy import Policy
from lab.stack import Stack
from store import registry
from store.engine import Engine
from store.model_placements import StoredPlacement
from tests.activities.model_loading import OneSecret, utc_now
from tests.activities.model_placing import ACME, ServingEstate
from tests.activities.serving.model_servers import Served, served
from tests.domain.serving.pools import wanted
from tests.estates import Clock
from tests.workers.post_office import temporal, until
from workers.assemble import Wiring
from workers.serving import ServingPorts, serving_worker
from workers.serving_chores import start_lost_placements
from workers.settings import WorkerSettings

MODEL = "m:20gb"
PATIENCE_SECONDS = 30


@dataclass
class Way:
    """A pool with a real server of models, and the hand of an API that starts workflows."""

    estate: ServingEstate
    server: Served
    client: Client
    hand: ModelPlacing

    async def place(self, model: str = MODEL) -> StoredPlacement:
        await self.estate.report()
        asked = wanted(model=model, vram_gb=20)
        placed = await self.estate.place(asked)
        assert isinstance(placed, Placed)
        await self.estate.hand.settle()
        return placed.record

    def workflow(self, placement_id: UUID) -> WorkflowHandle[Any, ModelPlacementEnded]:
        workflow_id = model_placement_workflow_id(ACME, placement_id)
        return self.client.get_workflow_handle(workflow_id, result_type=ModelPlacementEnded)

    async def end_of(self, placement_id: UUID) -> ModelPlacementEnded:
        return await asyncio.wait_for(self.workflow(placement_id).result(), PATIENCE_SECONDS)

    async def row(self, placement_id: UUID, columns: str) -> tuple[Any, ...]:
        rows = await self.estate.run(
            f"SELECT {columns} FROM model_placements WHERE placement_id = :id", id=placement_id
        )
        found: tuple[Any, ...] = rows[0]
        return found

    async def is_loaded(self) -> bool:
        return await self.estate.run("SELECT state FROM cached_models") == [("loaded",)]


class Now(Clock):
    """The time that it is: the worker's hands have no other."""

    def __call__(self) -> Any:
        return utc_now()


@pytest_asyncio.fixture
async def way(
    stack: Stack, engine: Engine, tenant_engine: Engine, service_engine: Engine
) -> AsyncIterator[Way]:
    client = await temporal(stack.temporal_address)
    with served("ollama", seconds_per_gb=0.02) as server:
        estate = ServingEstate(engine, tenant_engine, Now())
        await estate.pool(vram_gb=80)
        async with engine.begin() as connection:
            await registry.set_endpoint(connection, ACME, "gpu-1", server.url)
        starter = ModelPlacementStarter(client)
        estate.hand = ModelPlacing(
            tenant_engine, policy=Policy, now=utc_now, secrets=OneSecret(), starter=starter
        )
        settings = WorkerSettings(
            database_url=SecretStr("postgresql://nobody@127.0.0.1/none"),
            temporal_address=stack.temporal_address,
            sandbox=True,
        )
        wiring = Wiring(client, service_engine, settings, Policy())
        ports = ServingPorts(server.serving, OneSecret(), NoUsageSink(), _nothing_to_close)
        async with serving_worker(wiring, ports):
            yield Way(estate, server, client, estate.hand)


async def _nothing_to_close() -> None:
    return


async def test_a_cold_placement_loads_its_model_and_ends_with_its_release(way: Way) -> None:
    cold = await way.place()
    assert (cold.held, cold.warm) == (True, False)
    await until(way.is_loaded)
    assert await way.server.names() == [MODEL]

    async def is_recorded() -> bool:
        return await way.row(cold.placement_id, "caused_load") == (True,)

    await until(is_recorded)
    warm = await way.place()
    assert (warm.held, warm.warm, warm.cold_start_seconds) == (True, True, 0)
    await way.hand.release(ACME, cold.placement_id)
    ended = await way.end_of(cold.placement_id)
    assert ended == ModelPlacementEnded(outcome="released", loaded=True)
    assert await way.estate.run("SELECT state, holds FROM cached_models") == [("loaded", 1)]
    assert await way.row(warm.placement_id, "state, caused_load") == ("held", False)
    await way.estate.memory_is_right()


async def test_a_crowd_of_placements_loads_its_model_once(way: Way) -> None:
    await way.estate.report()
    asked = wanted(model=MODEL, vram_gb=20)
    placed = await asyncio.gather(*(way.estate.place(asked) for _ in range(10)))
    await until(way.is_loaded)
    assert sum(one.record.held for one in placed) == 10
    assert await way.estate.run("SELECT count(*) FROM model_loads WHERE outcome = 'loaded'") == [(1,)]
    await asyncio.gather(*(way.hand.release(ACME, one.record.placement_id) for one in placed))
    assert await way.estate.run("SELECT state, holds FROM cached_models") == [("loaded", 0)]
    for one in placed:
        if one.needs_load:
            assert (await way.end_of(one.record.placement_id)).outcome == "released"
    assert await way.estate.run("SELECT count(*) FROM model_placements WHERE caused_load") == [(1,)]


async def test_a_model_that_does_not_load_gives_the_memory_back(way: Way) -> None:
    """The server has not so much memory, whatever the registry says."""
    await way.estate.run("UPDATE pool_serving SET vram_gb = 640")
    placed = await way.place("m:100gb")
    ended = await way.end_of(placed.placement_id)
    assert ended == ModelPlacementEnded(outcome="failed", loaded=False)
    state, problem = await way.row(placed.placement_id, "state, problem")
    assert state == "released"
    assert problem.startswith("no_memory: ")
    assert await way.estate.committed() == 0
    assert await way.estate.run("SELECT count(*) FROM endpoint_reports") == [(0,)]


async def test_a_start_that_was_lost_is_made_up_for(way: Way, service_engine: Engine) -> None:
    way.estate.hand = ModelPlacing(way.estate.owner, policy=Policy, now=utc_now, secrets=OneSecret())
    placed = await way.place()
    assert not await way.is_loaded()
    stop = asyncio.Event()
    later = Later()
    sweeping = asyncio.create_task(
        start_lost_placements(service_engine, way.client, stop, now=later, every_seconds=0.1)
    )
    try:
        await until(way.is_loaded)
    finally:
        stop.set()
        await sweeping
    await way.hand.release(ACME, placed.placement_id)
    assert (await way.end_of(placed.placement_id)).outcome == "released"


class Later(Clock):
    """A clock by which what was just placed was placed a while ago."""

    def __call__(self) -> Any:
        self.at = utc_now()
        self.move(20)
        return self.at
