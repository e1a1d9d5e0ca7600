"""Reports of many streams are written together, in bounded batches, and none is lost or answered twice."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack

from grpc import StatusCode

from api.grpc import batches
from api.grpc.batches import MOST_REPORTS, WRITERS, Batches, Verdict
from api.grpc.calls import Refused
from tests.api.grpc.test_admission import settled

ODD = Refused(StatusCode.NOT_FOUND, "it is odd", reason="odd")


class Store:
    """Writes what it is given while its gate is open, and refuses odd reports."""

    def __init__(self) -> None:
        self.written: list[tuple[str, list[int]]] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.changed = asyncio.Condition()
        self.at_work = self.most_at_work = 0

    async def write(self, tenant_id: str, reports: Sequence[int]) -> list[Verdict]:
        self.at_work += 1
        self.most_at_work = max(self.most_at_work, self.at_work)
        await self.gate.wait()
        self.at_work -= 1
        self.written.append((tenant_id, list(reports)))
        async with self.changed:
            self.changed.notify_all()
        return [ODD if report % 2 else None for report in reports]

    def reports(self) -> list[int]:
        return sorted(report for _, reports in self.written for report in reports)


async def test_streams_of_a_tenant_share_a_batch_and_each_report_has_its_verdict() -> None:
    store = Store()
    gathering: Batches[int] = Batches(store.write)
    async with gathering.joined("a") as one, gathering.joined("a") as other, gathering.joined("b") as foreign:
        verdicts = [await one(0), await other(1), await one(2), await foreign(3)]
        said = await asyncio.gather(*verdicts)
    assert said == [None, ODD, None, ODD]
    assert sorted(store.written) == [("a", [0, 1, 2]), ("b", [3])]


async def test_a_batch_is_bounded_and_whoever_reports_too_much_is_held_up() -> None:
    store = Store()
    store.gate.clear()
    gathering: Batches[int] = Batches(store.write)
    sent = 0
    async with gathering.joined("a") as put:

        async def flood() -> None:
            nonlocal sent
            for number in range(10 * MOST_REPORTS):
                await put(number)
                sent += 1

        flooding = asyncio.create_task(flood())
        await asyncio.sleep(4 * batches.WITHIN_SECONDS)
        # One batch is being written, and one may wait.
        assert sent <= 2 * MOST_REPORTS + 1
        store.gate.set()
        await flooding
    await written(store, 10 * MOST_REPORTS)
    assert store.reports() == list(range(10 * MOST_REPORTS))
    assert max(len(reports) for _, reports in store.written) <= MOST_REPORTS


async def written(store: Store, count: int) -> None:
    async with asyncio.timeout(30), store.changed:
        await store.changed.wait_for(lambda: len(store.reports()) >= count)


async def test_reports_never_take_every_connection() -> None:
    store = Store()
    store.gate.clear()
    gathering: Batches[int] = Batches(store.write)
    async with AsyncExitStack() as streams:
        for tenant in range(6):
            put = await streams.enter_async_context(gathering.joined(f"tenant-{tenant}"))
            await put(tenant)
        await asyncio.sleep(2 * batches.WITHIN_SECONDS)
        store.gate.set()
        await written(store, 6)
    assert store.most_at_work == WRITERS


async def test_what_a_stream_leaves_behind_is_still_written_and_nothing_runs_on() -> None:
    store = Store()
    gathering: Batches[int] = Batches(store.write)
    before = asyncio.all_tasks()
    for number in range(3):
        async with gathering.joined("a") as put:
            await put(number)
    await written(store, 3)
    _, running = await asyncio.wait(
        {asyncio.create_task(settled()), *asyncio.all_tasks() - before}, timeout=10
    )
    assert not running
    assert store.reports() == [0, 1, 2]
