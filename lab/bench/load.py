"""Load: requests at a fixed rate or as fast as they are answered, each timed until Postgres shows its effect.

Effects are found by polling, so every latency contains up to one poll interval more than the truth.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import sqlalchemy as sa

from store.engine import Engine

POLL_SECONDS = 0.02
GIVE_UP_SECONDS = 120.0

Request = Callable[[str], Awaitable[None]]


@dataclass
class Timing:
    """What one run saw: latencies in seconds in the order of completion, and how long it took in all."""

    latencies: list[float] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def per_second(self) -> float:
        return len(self.latencies) / self.seconds


class Watch:
    """Notices when named things appear in the answer of one query (`:names` is what is still missing)."""

    def __init__(self, engine: Engine, query: str) -> None:
        self._engine = engine
        self._query = sa.text(query)
        self._pending: dict[str, asyncio.Future[float]] = {}

    async def appears(self, name: str) -> float:
        """The monotonic time at which `name` was seen."""
        self._pending[name] = asyncio.get_running_loop().create_future()
        return await self._pending[name]

    async def run(self) -> None:
        async with self._engine.connect() as connection:
            await connection.execution_options(isolation_level="AUTOCOMMIT")
            while True:
                if self._pending:
                    rows = await connection.execute(self._query, {"names": list(self._pending)})
                    seen = time.perf_counter()
                    for name in rows.scalars():
                        self._pending.pop(name).set_result(seen)
                await asyncio.sleep(POLL_SECONDS)


@asynccontextmanager
async def watching(*watches: Watch) -> AsyncIterator[None]:
    """Let the watches poll, and give their connections back afterwards."""
    tasks = [asyncio.ensure_future(one.run()) for one in watches]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _one(watch: Watch, request: Request, name: str, timing: Timing) -> None:
    began = time.perf_counter()
    appeared = asyncio.ensure_future(watch.appears(name))
    await request(name)
    timing.latencies.append(await asyncio.wait_for(appeared, GIVE_UP_SECONDS) - began)


async def open_loop(watch: Watch, request: Request, names: Sequence[str], per_second: float) -> Timing:
    """Send requests at a fixed rate whether or not earlier ones were answered."""
    timing = Timing()
    began = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for number, name in enumerate(names):
            await asyncio.sleep(max(0.0, began + number / per_second - time.perf_counter()))
            group.create_task(_one(watch, request, name, timing))
    timing.seconds = time.perf_counter() - began
    return timing


async def closed_loop(watch: Watch, request: Request, names: Sequence[str], in_flight: int) -> Timing:
    """Keep `in_flight` requests open until all names are done."""
    timing = Timing()
    waiting = iter(names)

    async def lane() -> None:
        for name in waiting:
            await _one(watch, request, name, timing)

    began = time.perf_counter()
    await asyncio.gather(*(lane() for _ in range(in_flight)))
    timing.seconds = time.perf_counter() - began
    return timing
