"""Ends a node's pods without the API: the kubelet's graceful shutdown, as when the machine is switched off.

The kubelet listens on the system bus for the word that the machine is about to go down. Then it admits no pod
any more and ends those that run, by priority, each with its preStop hook and within `shutdownGracePeriod`.
The same word with `false` takes it back.
"""

from __future__ import annotations

import asyncio
import signal as signals
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path

from agent.drain.kube_processes import Processes, processes_of_pods
from agent.drain.ports import Deadline, SchedulerUnreachable, Work
from agent.drain.processes import running, send
from wire.bundle import DrainOrders

ANNOUNCE = (
    "dbus-send",
    "--system",
    "--type=signal",
    "/org/freedesktop/login1",
    "org.freedesktop.login1.Manager.PrepareForShutdown",
)
# Shorter than a signal may take.
COMMAND_SECONDS = 0.8
# Gone with the boot, as is what the kubelet was told.
MARKER = Path("/run/sco-agent/kubelet-shutdown")
MAX_DETAIL = 200


class KubeletShutdown:
    """The local path of a Kubernetes node. Needs `shutdownGracePeriod` in the kubelet's configuration."""

    name = "kubernetes"
    signals_again = False

    def __init__(
        self,
        processes: Callable[[], Processes] = processes_of_pods,
        announce: Sequence[str] = ANNOUNCE,
        marker: Path = MARKER,
    ) -> None:
        """`announce` is the command that tells the kubelet; `boolean:true` or `false` is added to it.

        The file `marker` is there while the kubelet was told, so that a later process can take it back.
        """
        self._processes = processes
        self._announce = tuple(announce)
        self._marker = marker

    async def cordon(self, owner: str, until: datetime) -> None:
        """Nothing yet: a kubelet that shuts down admits no pod."""

    async def signal(self, orders: DrainOrders, deadline: Deadline) -> None:
        # Without the file the word cannot be taken back after a restart, but the drain comes first.
        with suppress(OSError):
            self._marker.touch()
        await self._say(going_down=True)

    async def left(self) -> tuple[Work, ...]:
        """Every pod with processes: a kubelet that shuts down ends daemons and static pods, too."""
        found = await asyncio.to_thread(self._processes)
        return tuple(Work("pod", uid, pids) for uid, pids in sorted(found.items()))

    async def force(self, work: Sequence[Work]) -> None:
        for process in running(pid for one in work for pid in one.pids):
            send(process, signals.SIGKILL)

    async def finish(self, orders: DrainOrders) -> None:
        """Nothing: the pods' owners start them elsewhere once the API knows of it."""

    async def uncordon(self, owner: str) -> None:
        if self._marker.exists():
            await self._say(going_down=False)
            self._marker.unlink(missing_ok=True)

    async def _say(self, *, going_down: bool) -> None:
        command = (*self._announce, f"boolean:{str(going_down).lower()}")
        try:
            process = await asyncio.create_subprocess_exec(
                *command, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE
            )
        except OSError as error:
            raise SchedulerUnreachable(f"cannot run {command[0]}: {error}") from error
        try:
            _, told = await asyncio.wait_for(process.communicate(), COMMAND_SECONDS)
        except TimeoutError as error:
            raise SchedulerUnreachable(f"{command[0]} did not end within {COMMAND_SECONDS} s") from error
        finally:
            if process.returncode is None:
                with suppress(ProcessLookupError):
                    process.kill()
        if process.returncode != 0:
            detail = told.decode(errors="replace").strip()[:MAX_DETAIL]
            raise SchedulerUnreachable(f"{command[0]} ended with {process.returncode}: {detail}")
