"""A process that ends at any moment of a load or an unloading: another takes it up, and nothing is lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio

from activities.serving.ports import Endpoint, ListedModel
from lab.chaos.killing import Fuse, FusedEngine, Killed
from store.engine import Engine
from store.tables import LoadCause
from tests.activities.model_loading import NAME, Loader
from tests.activities.serving.model_servers import Served, served

MODEL = "m:5gb"
PATIENCE_SECONDS = 30.0


class FusedServing:
    """A serving port of a process that may end before a call is sent, or when its answer is there."""

    def __init__(self, served: Served, fuse: Fuse) -> None:
        self._serving = served.serving
        self._fuse = fuse

    async def list_models(self, endpoint: Endpoint) -> tuple[ListedModel, ...]:
        self._fuse("before a list")
        return await self._serving.list_models(endpoint)

    async def load(self, endpoint: Endpoint, model: str) -> None:
        self._fuse("before a load")
        await self._serving.load(endpoint, model)
        self._fuse("after a load")

    async def unload(self, endpoint: Endpoint, model: str) -> None:
        self._fuse("before an unloading")
        await self._serving.unload(endpoint, model)
        self._fuse("after an unloading")

    async def probe(self, endpoint: Endpoint) -> None:
        await self._serving.probe(endpoint)


@pytest.fixture(scope="module")
def server() -> Iterator[Served]:
    with served("ollama", vram_gb=6, seconds_per_gb=0.005) as own:
        yield own


@pytest_asyncio.fixture(scope="module")
async def loader(shared_engine: Engine, server: Served) -> AsyncIterator[Loader]:
    yield await Loader(shared_engine, server).open(vram_gb=6)


async def ended(loader: Loader, act: str, fuse: Fuse) -> bool:
    """Load or unload with this fuse; False when it blew."""
    engine = FusedEngine(loader.engine, fuse)
    hand = loader.another(engine=engine, serving=FusedServing(loader.served, fuse))
    try:
        if act == "load":
            await hand.load(NAME, MODEL, 5, LoadCause.WARM_KEEP)
        else:
            await hand.unload(NAME, MODEL, "idle", forced=act == "forced")
    except Killed:
        return False
    return True


async def cleared(loader: Loader) -> None:
    """The pool is active and nothing is on it, whatever an earlier run left there."""
    await loader.turn("active")
    await loader.run("UPDATE model_placements SET state = 'released', ended_at = now() WHERE state = 'held'")
    loader.served.admin("forget", {"model": MODEL})
    loader.clock.lease_ends()
    await loader.settle()
    assert await loader.states() == {}
    await loader.agrees()


@pytest.mark.parametrize("held", [False, True], ids=["free", "held"])
async def test_a_load_may_end_at_every_moment(loader: Loader, held: bool) -> None:
    await cleared(loader)
    whole = Fuse()
    assert await ended(loader, "load", whole)
    for moment in range(1, whole.passed + 1):
        await cleared(loader)
        if held:
            await loader.hold(MODEL, 5)
        assert not await ended(loader, "load", Fuse(blows_at=moment))
        await loader.all_is_well()
        loader.clock.lease_ends()
        assert await asyncio.wait_for(loader.load(MODEL, 5), PATIENCE_SECONDS) in {True, False}
        assert await loader.states() == {MODEL: "loaded"}
        await loader.agrees()
    assert whole.passed >= 8


async def test_who_waits_for_a_load_takes_it_over_when_its_hand_has_died(loader: Loader) -> None:
    await cleared(loader)
    assert not await ended(loader, "load", Fuse(blows_at=4))
    waiting = asyncio.create_task(loader.load(MODEL, 5))
    await asyncio.sleep(0.1)
    loader.clock.lease_ends()
    assert await asyncio.wait_for(waiting, PATIENCE_SECONDS)
    await loader.agrees()


@pytest.mark.parametrize("held", [False, True], ids=["free", "held"])
async def test_what_a_dead_load_left_is_settled_by_a_list(loader: Loader, held: bool) -> None:
    await cleared(loader)
    whole = Fuse()
    assert await ended(loader, "load", whole)
    for moment in range(1, whole.passed + 1):
        await cleared(loader)
        placement = await loader.hold(MODEL, 5) if held else None
        await ended(loader, "load", Fuse(blows_at=moment))
        loader.clock.lease_ends()
        await loader.settle()
        states = await loader.states()
        assert states in ({MODEL: "loaded"}, {MODEL: "promised"} if held else {})
        await loader.agrees()
        if placement is not None:
            await loader.release(placement)
            await loader.agrees()


@pytest.mark.parametrize("act", ["unload", "forced"])
async def test_an_unloading_may_end_at_every_moment(loader: Loader, act: str) -> None:
    await cleared(loader)
    await loader.load(MODEL, 5)
    await loader.turn("draining")
    whole = Fuse()
    assert await ended(loader, act, whole)
    for moment in range(1, whole.passed + 1):
        await cleared(loader)
        await loader.load(MODEL, 5)
        if act == "forced":
            await loader.hold(MODEL, 5)
        await loader.turn("draining")
        await loader.run("DELETE FROM outbox")
        await ended(loader, act, Fuse(blows_at=moment))
        loader.clock.lease_ends()
        await loader.settle()
        await loader.agrees()
        await loader.hand.unload(NAME, MODEL, "idle", forced=True)
        assert await loader.states() == {}
        told = [event for event in await loader.events() if event[0] == "model-evicted"]
        assert len(told) == 1, f"moment {moment}: its going is told once"
        await loader.agrees()
