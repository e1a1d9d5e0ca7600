"""Turns: bounded, fair to tenants, and never lost when somebody gives up."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from grpc import StatusCode

from api.grpc.admission import Admission, Places
from api.grpc.calls import Refused


class Work:
    """Turns that last until they are let go."""

    def __init__(self, admission: Admission) -> None:
        self.admission = admission
        self.began: list[str] = []
        self.let_go = asyncio.Event()

    async def run(self, tenant_id: str) -> None:
        async with self.admission.turn(tenant_id):
            self.began.append(tenant_id)
            await self.let_go.wait()

    async def start(self, *tenants: str) -> list[asyncio.Task[None]]:
        tasks = [asyncio.create_task(self.run(tenant)) for tenant in tenants]
        await settled()
        return tasks


async def settled() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


@asynccontextmanager
async def held(admission: Admission, *tenants: str) -> AsyncIterator[Work]:
    """Turns in use until the end of the block."""
    work = Work(admission)
    tasks = await work.start(*tenants)
    try:
        yield work
    finally:
        work.let_go.set()
        await asyncio.gather(*tasks)


async def test_no_more_work_at_once_than_there_are_turns() -> None:
    admission = Admission(at_once=2, most_waiting=10)
    work = Work(admission)
    tasks = await work.start(*["a"] * 5)
    assert len(work.began) == 2
    assert admission.waiting == 3
    work.let_go.set()
    await asyncio.gather(*tasks)
    assert len(work.began) == 5
    assert admission.waiting == 0


async def test_a_full_queue_refuses_at_once_and_says_when_to_come_again() -> None:
    admission = Admission(at_once=1, most_waiting=2)
    async with held(admission, "a", "b", "c"):
        with pytest.raises(Refused) as refused:
            async with admission.turn("d"):
                pass
    assert refused.value.code is StatusCode.RESOURCE_EXHAUSTED
    assert dict(refused.value.trailers) == {"retry-after": "1", "grpc-retry-pushback-ms": "1000"}
    async with admission.turn("d"):
        assert admission.waiting == 0


async def test_no_tenant_fills_the_queue_alone() -> None:
    admission = Admission(at_once=1, most_waiting=10)
    async with held(admission, *["loud"] * 6):
        with pytest.raises(Refused):
            async with admission.turn("loud"):
                pass
        quiet = asyncio.create_task(Work(admission).run("quiet"))
        await settled()
        assert admission.waiting == 6
        quiet.cancel()


async def test_tenants_take_turns() -> None:
    admission = Admission(at_once=1, most_waiting=100)
    order: list[str] = []

    async def one(tenant_id: str) -> None:
        async with admission.turn(tenant_id):
            order.append(tenant_id)

    async with held(admission, "first"):
        tasks = [asyncio.create_task(one(tenant)) for tenant in ["loud"] * 6 + ["quiet", "calm"]]
        await settled()
    await asyncio.gather(*tasks)
    assert order.index("quiet") < 3
    assert order.index("calm") < 4
    assert len(order) == 8


async def test_turns_outlive_whoever_gives_up() -> None:
    """Whatever is cancelled at whatever moment, every turn comes back."""
    for seed in range(200):
        rng = random.Random(seed)
        admission = Admission(at_once=3, most_waiting=50)

        async def one(tenant: str, steps: int, admission: Admission = admission) -> None:
            async with admission.turn(tenant):
                for _ in range(steps):
                    await asyncio.sleep(0)

        tasks = [asyncio.create_task(one(rng.choice("abc"), rng.randint(0, 3))) for _ in range(25)]
        while not all(task.done() for task in tasks):
            rng.choice(tasks).cancel()
            await asyncio.sleep(0)
        await asyncio.gather(*tasks, return_exceptions=True)
        assert admission.waiting == 0
        async with held(admission, "x", "y", "z") as work:
            assert len(work.began) == 3, f"a turn was lost (seed {seed})"
            (waiting,) = await work.start("w")
            assert len(work.began) == 3, f"there is a turn too many (seed {seed})"
            work.let_go.set()
            await waiting


async def test_whom_it_would_refuse() -> None:
    admission = Admission(at_once=1, most_waiting=4)
    assert not admission.is_full("a")
    async with held(admission, "a") as work:
        assert not admission.is_full("a")
        waiting = await work.start("a", "a")
        assert (admission.is_full("a"), admission.is_full("b"), admission.is_full(None)) == (
            True,
            False,
            False,
        )
        waiting += await work.start("b", "c")
        assert admission.is_full("d")
        assert admission.is_full(None)
        work.let_go.set()
        await asyncio.gather(*waiting)
    assert not admission.is_full("a")


async def test_open_streams_are_bounded_for_each_tenant_and_for_all() -> None:
    places = Places(4)
    async with places.taken("a"), places.taken("a"):
        with pytest.raises(Refused):
            async with places.taken("a"):
                pass
        async with places.taken("b"), places.taken("c"):
            with pytest.raises(Refused) as refused:
                async with places.taken("d"):
                    pass
            assert refused.value.code is StatusCode.RESOURCE_EXHAUSTED
    async with places.taken("a"), places.taken("a"):
        pass
