"""Reports of many streams, written together: one transaction for what came in a quarter of a second.

What is not written yet is bounded for each tenant, and whoever reports more than can be written is held up.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Generic, TypeVar

from api.grpc.calls import Refused

MOST_REPORTS = 200
WITHIN_SECONDS = 0.25
# So many tenants' batches are written at once; the other connections are for callers who wait.
WRITERS = 2

Report = TypeVar("Report")
# Why a report was not taken, or None.
Verdict = Refused | None
Write = Callable[[str, Sequence[Report]], Awaitable[Sequence[Verdict]]]
Pending = tuple[Report, asyncio.Future[Verdict]]
# None ends it.
Waiting = asyncio.Queue[Pending[Report] | None]


@dataclass(slots=True)
class _Batch(Generic[Report]):
    """What one tenant's open streams reported, and the task that writes it."""

    queue: Waiting[Report]
    writing: asyncio.Task[None]
    streams: int = 0


class Batches(Generic[Report]):
    """`write` gets the reports of one tenant and says of each why it was refused; it raises nothing."""

    def __init__(self, write: Write[Report]) -> None:
        self._write = write
        self._batches: dict[str, _Batch[Report]] = {}
        self._writers = asyncio.Semaphore(WRITERS)

    @asynccontextmanager
    async def joined(
        self, tenant_id: str
    ) -> AsyncIterator[Callable[[Report], Awaitable[asyncio.Future[Verdict]]]]:
        """Let one stream report: what it is given takes a report, and holds up whoever reports too much."""
        batch = self._batches.get(tenant_id) or self._open(tenant_id)
        batch.streams += 1

        async def put(report: Report) -> asyncio.Future[Verdict]:
            verdict: asyncio.Future[Verdict] = asyncio.get_running_loop().create_future()
            await batch.queue.put((report, verdict))
            return verdict

        try:
            yield put
        finally:
            batch.streams -= 1
            if not batch.streams:
                await self._close(tenant_id)

    def _open(self, tenant_id: str) -> _Batch[Report]:
        queue: Waiting[Report] = asyncio.Queue(MOST_REPORTS)
        writing = asyncio.create_task(self._write_all(tenant_id, queue), name=f"reports of {tenant_id}")
        self._batches[tenant_id] = _Batch(queue, writing)
        return self._batches[tenant_id]

    async def _close(self, tenant_id: str) -> None:
        """The last stream has gone: what it reported is still written, and nobody waits for that."""
        await self._batches.pop(tenant_id).queue.put(None)

    async def _write_all(self, tenant_id: str, queue: Waiting[Report]) -> None:
        while pending := await _gathered(queue):
            async with self._writers:
                verdicts = await self._write(tenant_id, [report for report, _ in pending])
            for (_, verdict), said in zip(pending, verdicts, strict=True):
                if not verdict.done():
                    verdict.set_result(said)


async def _gathered(queue: Waiting[Report]) -> list[Pending[Report]]:
    """The next reports: as many as go into one batch, or what comes until the time or the streams end."""
    pending: list[Pending[Report]] = []
    with suppress(TimeoutError):
        async with asyncio.timeout(None) as limit:
            while len(pending) < MOST_REPORTS:
                one = await queue.get()
                if one is None:
                    # For the next round, which then has nothing before it.
                    if pending:
                        queue.put_nowait(None)
                    break
                pending.append(one)
                if len(pending) == 1:
                    limit.reschedule(asyncio.get_running_loop().time() + WITHIN_SECONDS)
    return pending
