"""Ends a Slurm node's jobs without slurmctld: their processes are signalled, and slurmd takes no new ones."""

from __future__ import annotations

import asyncio
import re
import signal as signals
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path

from agent.drain.ports import Deadline, SchedulerUnreachable, Work
from agent.drain.processes import PROC, catches, raise_without_means, running, send
from wire.bundle import DrainOrders

KIND = "job"
STOP = ("systemctl", "stop", "slurmd.service")
START = ("systemctl", "start", "slurmd.service")
COMMAND_SECONDS = 4.0
MAX_DETAIL = 200
# There while slurmd was stopped by us; gone with the boot, after which slurmd is started anyway.
MARKER = Path("/run/sco-agent/slurmd-stopped")
# Where Slurm groups processes, the group names the job; elsewhere each has it in its environment.
GROUP = re.compile(rb"/job_(\d+)(?:/|\s|$)")
JOB = b"SLURM_JOB_ID="
NODE = b"SLURMD_NODENAME="

Jobs = Mapping[str, tuple[int, ...]]


def processes_of_jobs(node: str) -> Jobs:
    """The processes of each job on this node that has any, by the job's id.

    OSError when nothing can be looked at now.
    """
    found: dict[str, list[int]] = {}
    for entry in PROC.iterdir():
        if entry.name.isdigit() and (job := _job_of(entry, node.encode())):
            found.setdefault(job, []).append(int(entry.name))
    return {job: tuple(sorted(pids)) for job, pids in found.items()}


def _job_of(entry: Path, node: bytes) -> str | None:
    try:
        if (entry / "comm").read_bytes().startswith(b"slurmstepd"):
            return None
        grouped = GROUP.search((entry / "cgroup").read_bytes())
        if grouped is not None:
            return grouped[1].decode()
        words = (entry / "environ").read_bytes().split(b"\0")
    except OSError as error:
        raise_without_means(error)
        return None
    if NODE + node not in words:
        return None
    job = next((word.removeprefix(JOB) for word in words if word.startswith(JOB)), b"")
    return job.decode() if job.isdigit() else None


class SlurmLocal:
    """The local path of a Slurm node. Slurm itself requeues the jobs once it finds the node gone."""

    name = "slurm"
    signals_again = False

    def __init__(
        self,
        processes: Callable[[], Jobs],
        *,
        stop: Sequence[str] = STOP,
        start: Sequence[str] = START,
        marker: Path = MARKER,
    ) -> None:
        """`stop` and `start` are the commands for slurmd; running steps live on without it."""
        self._processes = processes
        self._stop, self._start = tuple(stop), tuple(start)
        self._marker = marker
        self._stopping: asyncio.Task[None] | None = None

    async def cordon(self, owner: str, until: datetime) -> None:
        """Nothing before the signal: until then slurmctld may still answer and close the node."""

    async def signal(self, orders: DrainOrders, deadline: Deadline) -> None:
        """Signal the processes that understand it. A job in which none does is asked to end plainly."""
        number = signals.Signals[f"SIG{orders.signal}"]
        found = await asyncio.to_thread(self._processes)
        for pids in found.values():
            processes = running(pids)
            understand = [one for one in processes if catches(one, number)]
            for one in understand or processes:
                send(one, number if understand else signals.SIGTERM)
        # Stopping a service may take seconds, and the jobs have been told already.
        self._stopping = asyncio.create_task(self._stop_slurmd())

    async def left(self) -> tuple[Work, ...]:
        found = await asyncio.to_thread(self._processes)
        return tuple(Work(KIND, job, pids) for job, pids in sorted(found.items()))

    async def force(self, work: Sequence[Work]) -> None:
        for one in running(pid for piece in work for pid in piece.pids):
            send(one, signals.SIGKILL)

    async def finish(self, orders: DrainOrders) -> None:
        """Nothing: what became of the jobs, slurmctld learns from slurmd or from its silence."""

    async def uncordon(self, owner: str) -> None:
        if self._stopping is not None:
            await asyncio.wait({self._stopping})
        if self._marker.exists():
            await _run(self._start)
            self._marker.unlink(missing_ok=True)

    async def _stop_slurmd(self) -> None:
        # Without it slurmctld may send another job; that one is then found and ended as the others were.
        with suppress(OSError, SchedulerUnreachable):
            self._marker.touch()
            await _run(self._stop)


async def _run(command: Sequence[str]) -> None:
    quiet = asyncio.subprocess.DEVNULL
    try:
        process = await asyncio.create_subprocess_exec(*command, stdin=quiet, stdout=quiet, stderr=quiet)
    except OSError as error:
        raise SchedulerUnreachable(f"cannot run {command[0]}: {error}"[:MAX_DETAIL]) from error
    try:
        code = await asyncio.wait_for(process.wait(), COMMAND_SECONDS)
    except TimeoutError as error:
        raise SchedulerUnreachable(f"{command[0]} did not end within {COMMAND_SECONDS:g} s") from error
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                process.kill()
    if code != 0:
        raise SchedulerUnreachable(f"{' '.join(command)} ended with {code}"[:MAX_DETAIL])
