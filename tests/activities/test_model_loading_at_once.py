"""Many hands at one pool at the same time load, unload, place, release and look, and nothing is lost."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest
from sqlalchemy.exc import IntegrityError

from activities.model_loading import LoadError
from store.engine import Engine
from store.tables import LoadCause
from tests.activities.model_loading import NAME, Loader
from tests.activities.serving.model_servers import DIALECTS, Served, served

MODELS = tuple(f"m-{number}:{size}gb" for number, size in enumerate((10, 20, 20, 30, 40)))
HANDS, STEPS = 6, 12
DEADLOCK_SECONDS = 120


def size_of(model: str) -> int:
    return int(model.split(":")[1].removesuffix("gb"))


class Somebody:
    """One process that does one thing after another, by its own dice."""

    def __init__(self, loader: Loader, seed: int) -> None:
        self.loader = loader
        self.dice = random.Random(seed)
        self.hand = loader.another()
        self.held: list[object] = []

    async def live(self) -> None:
        acts: tuple[Callable[[], Awaitable[None]], ...]
        acts = (self.load, self.load, self.unload, self.place, self.release, self.look, self.disturb)
        for _ in range(STEPS):
            try:
                await self.dice.choice(acts)()
            except LoadError:
                continue
        while self.held:
            await self.release()

    async def load(self) -> None:
        model = self.dice.choice(MODELS)
        await self.hand.load(NAME, model, size_of(model), LoadCause.WARM_KEEP)

    async def unload(self) -> None:
        await self.hand.unload(NAME, self.dice.choice(MODELS), "idle")

    async def place(self) -> None:
        model = self.dice.choice(MODELS)
        # What does not fit is refused by the database itself.
        with suppress(IntegrityError):
            self.held.append(await self.loader.hold(model, size_of(model)))

    async def release(self) -> None:
        if self.held:
            await self.loader.release(self.held.pop())

    async def look(self) -> None:
        await self.loader.settle(patience=0.2)

    async def disturb(self) -> None:
        """Loads fail now and then, and the server forgets a model by itself."""
        server = self.loader.served
        change = self.dice.choice(
            [("disturb", {"fail_next": 1}), ("forget", {"model": self.dice.choice(MODELS)})]
        )
        await asyncio.to_thread(server.admin, *change)


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("seed", [1, 2])
async def test_many_hands_at_once_agree_in_the_end(engine: Engine, dialect: str, seed: int) -> None:
    with served(dialect, seconds_per_gb=0.002, terms={"answer_seconds": 3.0}) as server:
        loader = await Loader(engine, server).open()
        people = [Somebody(loader, seed * 100 + number) for number in range(HANDS)]
        await asyncio.wait_for(asyncio.gather(*(one.live() for one in people)), DEADLOCK_SECONDS)
        await loader.all_is_well()
        await settled(loader, server)


async def settled(loader: Loader, server: Served) -> None:
    """After the last lease, a list brings store and server together; what is left can all be unloaded."""
    server.admin("disturb", {"fail_next": 0})
    loader.clock.lease_ends()
    await loader.settle()
    for model in tuple(await loader.states()):
        await loader.hand.unload(NAME, model, "idle")
    assert await loader.states() == {}
    await loader.all_is_well()
    warmed = [event[1] for event in await loader.events() if event[0] == "model-warmed"]
    evicted = [event[1] for event in await loader.events() if event[0] == "model-evicted"]
    assert sorted(warmed) == sorted(evicted), "everything that came was told to go, once"
