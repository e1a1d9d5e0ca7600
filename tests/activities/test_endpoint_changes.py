"""A pool gets another endpoint: what the one before had loaded is not loaded until the new one lists it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio

from activities.model_loading import LoadError
from domain.serving.requirements import ModelRequirements
from store import pool_life
from store.engine import Engine
from store.pool_life import Stepped
from tests.activities.model_loading import NAME, Loader
from tests.activities.model_placing import PLATFORM, ServingEstate
from tests.activities.serving.model_servers import Served, served

MODEL = "m:20gb"
PATIENCE_SECONDS = 60


@pytest.fixture
def servers() -> Iterator[tuple[Served, Served]]:
    """The endpoint before and the one after; the first loads so slowly that it can be left meanwhile."""
    with served("ollama", seconds_per_gb=0.05) as before, served("ollama") as after:
        # Both ports are allowed, as endpoints of one policy.
        yield (
            Served(before.handle, "ollama", ports=(before.handle.port, after.handle.port)),
            Served(after.handle, "ollama", ports=(before.handle.port, after.handle.port)),
        )


@pytest_asyncio.fixture
async def loader(engine: Engine, servers: tuple[Served, Served]) -> AsyncIterator[Loader]:
    opened = await Loader(engine, servers[0]).open()
    yield opened
    await opened.all_is_well()


async def moved(loader: Loader, url: str | None) -> None:
    async with loader.engine.begin() as connection:
        done = await pool_life.change(
            connection, *NAME, {"endpoint_ref": url}, None, by="ada", at=loader.clock()
        )
    assert isinstance(done, Stepped)


async def loading_at(server: Served) -> None:
    for _ in range(PATIENCE_SECONDS * 100):
        if "loading" in server.state["models"].values():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it does not load")


async def test_what_is_not_at_the_new_endpoint_is_lost(
    loader: Loader, servers: tuple[Served, Served]
) -> None:
    await loader.load()
    await moved(loader, servers[1].url)
    assert await loader.states() == {MODEL: "loading"}
    assert (await loader.settle()).lost == (MODEL,)
    assert await loader.states() == {}
    assert await loader.events() == [("model-warmed", MODEL, None), ("model-evicted", MODEL, "lost")]


async def test_what_is_at_the_new_endpoint_too_stays_and_nothing_is_told(
    loader: Loader, servers: tuple[Served, Served]
) -> None:
    await loader.load()
    await servers[1].serving.load(servers[1].endpoint, MODEL)
    await moved(loader, servers[1].url)
    assert (await loader.settle()).found == (MODEL,)
    assert await loader.states() == {MODEL: "loaded"}
    assert await loader.events() == [("model-warmed", MODEL, None)]


async def test_whoever_is_placed_after_the_change_has_the_model_loaded_there(
    loader: Loader, servers: tuple[Served, Served]
) -> None:
    await loader.load()
    await moved(loader, servers[1].url)
    estate = ServingEstate(loader.engine, loader.engine, loader.clock)  # type: ignore[arg-type]  # it only tells
    await estate.report()
    asked = ModelRequirements(deployment_id="d", model=MODEL, vram_gb=20, boundary="shared")
    placed = await estate.place(asked, tenant=PLATFORM)
    assert (placed.record.held, placed.record.warm, placed.needs_load) == (True, False, True)
    assert await loader.load() is True
    assert servers[1].state["loads"] == {MODEL: 1}
    assert await loader.states() == {MODEL: "loaded"}


async def test_a_load_under_way_at_the_endpoint_before_makes_nothing_warm(
    loader: Loader, servers: tuple[Served, Served]
) -> None:
    first = asyncio.create_task(loader.load())
    await loading_at(servers[0])
    await moved(loader, servers[1].url)
    with pytest.raises(LoadError) as told:
        await first
    assert told.value.kind == "lease_lost"
    assert await loader.states() == {MODEL: "loading"}
    assert [row[2] for row in await loader.loads()] == ["failed"]
    assert await loader.load() is True
    assert servers[1].state["loads"] == {MODEL: 1}
    assert await loader.events() == [("model-warmed", MODEL, None)]


async def test_a_pool_without_an_endpoint_lets_go_of_its_models_when_it_drains(loader: Loader) -> None:
    await loader.load()
    held = await loader.hold()
    await moved(loader, None)
    await loader.turn("draining")
    assert await loader.hand.unload(NAME, MODEL, "drained", forced=True) is True
    assert await loader.states() == {}
    ((state,),) = await loader.rows("SELECT state FROM model_placements WHERE placement_id = :id", id=held)
    assert state == "released"


async def test_the_same_endpoint_again_changes_nothing_of_the_models(
    loader: Loader, servers: tuple[Served, Served]
) -> None:
    await loader.load()
    await moved(loader, servers[0].url)
    assert await loader.states() == {MODEL: "loaded"}
