"""Takes jobs off this node by Slurm: drain, signal, wait for the checkpoint, requeue so that it resumes."""

from __future__ import annotations

import asyncio
import signal as signals
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime

from agent.drain.ports import Deadline, DrainDriver, Ending, SchedulerUnreachable, Work
from agent.drain.processes import running, send
from agent.drain.slurm_forwarder import SlurmForwarder
from agent.drain.slurm_local import KIND, Jobs, SlurmLocal, processes_of_jobs
from wire.bundle import CheckpointMode, DrainOrders, Restart

RUNNING = ("RUNNING", "SUSPENDED", "STOPPED")
# Modes in which a job writes once more when it is signalled; a requeue before that would cut it short.
WRITES_LAST = frozenset({CheckpointMode.FINAL, CheckpointMode.PERIODIC_AND_FINAL})
REQUEUE_SECONDS = 0.3


class SlurmDriver:
    """Drains one node through the forwarder.

    A requeue ends a job at once, so a job that writes a last checkpoint is requeued when it has ended by
    itself, when `checkpointed` says that it has written, or when its budget is used up. Jobs that ended
    before are requeued in `finish`, unless their work was done.
    """

    name = "slurm"
    signals_again = True

    def __init__(
        self,
        forwarder: SlurmForwarder,
        node: str,
        *,
        processes: Callable[[], Jobs] | None = None,
        checkpointed: Callable[[str, float], bool] = lambda job_id, since: False,
        clock: Callable[[], float] = time.monotonic,
        local: SlurmLocal | None = None,
    ) -> None:
        """`node` is its name in Slurm; `checkpointed` tells whether a job wrote since then by `clock`."""
        self._forwarder = forwarder
        self._processes = processes or (lambda: processes_of_jobs(node))
        self._checkpointed = checkpointed
        self._clock = clock
        self._signalled_at: float | None = None
        self._local = local or SlurmLocal(self._processes)
        self._orders: DrainOrders | None = None
        self._deadline: Deadline | None = None
        self._budget_ends_at = 0.0
        self._seen: set[str] = set()
        self._requeued: set[str] = set()
        self._requeuing: asyncio.Task[None] | None = None

    def local(self) -> DrainDriver:
        """The jobs' processes themselves, for when slurmctld or its forwarder does not answer."""
        return self._local

    async def cordon(self, owner: str, until: datetime) -> None:
        await self._forwarder.drain(owner, until)

    async def signal(self, orders: DrainOrders, deadline: Deadline) -> None:
        self._orders = None
        if self._signalled_at is None:
            self._signalled_at = self._clock()
        told = await self._forwarder.signal(str(orders.signal))
        self._seen |= set(told.jobs)
        if told.jobs and len(told.failed) == len(told.jobs):
            raise SchedulerUnreachable(f"no job was signalled: {told.jobs[told.failed[0]]}")
        self._budget_ends_at = deadline.remaining_seconds() - orders.budget_seconds
        self._orders, self._deadline = orders, deadline

    async def left(self) -> tuple[Work, ...]:
        """Jobs that hold the node, and those that Slurm thinks are over while their processes run."""
        jobs, here = await asyncio.gather(self._forwarder.jobs(), asyncio.to_thread(self._processes))
        self._seen |= jobs.keys() | here.keys()
        await self._requeue_due(jobs)
        return tuple(Work(KIND, job, here.get(job, ())) for job in sorted(jobs.keys() | here.keys()))

    async def force(self, work: Sequence[Work]) -> None:
        """Requeue where the contract wants that, and end the processes without waiting any longer."""
        jobs = {one.name for one in work} - self._requeued
        if jobs and self._orders is not None and self._orders.restart is not Restart.NONE:
            with suppress(SchedulerUnreachable, TimeoutError):
                await asyncio.wait_for(self._requeue(sorted(jobs)), REQUEUE_SECONDS)
        for process in running(pid for one in work for pid in one.pids):
            send(process, signals.SIGKILL)

    async def finish(self, orders: DrainOrders) -> None:
        """Requeue what was cut short and let it start at once; the forwarder leaves alone what is done."""
        await self._let_go()
        if orders.restart is Restart.NONE:
            return
        told = await self._forwarder.requeue(sorted(self._seen), signalled=True)
        if told.failed:
            raise SchedulerUnreachable(f"job {told.failed[0]} is not requeued: {told.jobs[told.failed[0]]}")

    async def endings(self, of: Sequence[Work] = ()) -> tuple[Ending, ...]:
        ended = await self._forwarder.endings([one.name for one in of])
        return tuple(
            Ending(KIND, one.job_id, one.exit_code, str(one.ended_at), one.ended_at) for one in ended
        )

    async def uncordon(self, owner: str) -> None:
        await self._let_go()
        await self._forwarder.resume(owner)
        await self._forwarder.close()

    async def _requeue_due(self, jobs: dict[str, str]) -> None:
        """Start a requeue of what may go now. It goes on by itself where Slurm is slow."""
        if self._requeuing is not None and not self._requeuing.done():
            return
        due = [job for job, state in sorted(jobs.items()) if state in RUNNING and self._is_due(job)]
        if due:
            self._requeuing = asyncio.create_task(self._requeue_quietly(due))
            await asyncio.wait({self._requeuing}, timeout=REQUEUE_SECONDS)

    def _is_due(self, job: str) -> bool:
        if self._orders is None or self._deadline is None or self._signalled_at is None:
            return False
        if self._orders.restart is Restart.NONE or job in self._requeued:
            return False
        used_up = self._deadline.remaining_seconds() <= self._budget_ends_at
        return (
            used_up
            or self._orders.checkpoint not in WRITES_LAST
            or self._checkpointed(job, self._signalled_at)
        )

    async def _requeue_quietly(self, jobs: Sequence[str]) -> None:
        # The next look asks again for what still runs.
        with suppress(SchedulerUnreachable):
            await self._requeue(jobs)

    async def _requeue(self, jobs: Sequence[str]) -> None:
        told = await self._forwarder.requeue(jobs)
        self._requeued |= told.jobs.keys() - set(told.failed)

    async def _let_go(self) -> None:
        self._orders = None
        task, self._requeuing = self._requeuing, None
        if task is not None:
            await asyncio.wait({task})
