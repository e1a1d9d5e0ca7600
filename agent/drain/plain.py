"""Processes without a scheduler: systemd units, cgroups and pid files; also the local path of the others."""

from __future__ import annotations

import asyncio
import os
import signal
import stat
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from glob import glob
from pathlib import Path
from typing import NamedTuple

from agent.drain.ports import Deadline, Ending, Work
from agent.drain.processes import (
    Everyone,
    Process,
    catches,
    cgroup_pids,
    kill,
    look,
    owner_of,
    raise_without_means,
    running,
    send,
)
from wire.bundle import DrainOrders, DrainSignal

CGROUP_ROOT = Path("/sys/fs/cgroup")
SYSTEM_SLICE = "system.slice"
MOST_PID_FILES = 2048
# Whose pid files may name the processes of any user.
TRUSTED = frozenset({0})
# A process that forks faster than it is killed is met again; each round leaves less time to fork.
KILL_ROUNDS = 5
KILL_PAUSE_SECONDS = 0.02
# Who does not expect these is ended by them, so they go to those only that do.
FOR_HANDLERS = frozenset({DrainSignal.USR1, DrainSignal.USR2})


class PlainPlaces(NamedTuple):
    """Where this node's plain work is found. Cgroups are paths below `cgroup_root`, pid files patterns."""

    units: tuple[str, ...] = ()
    cgroups: tuple[str, ...] = ()
    pid_files: tuple[str, ...] = ()
    cgroup_root: Path = CGROUP_ROOT


class PlainWork:
    """Finds the work at its places and remembers who was met there, so that no stranger is taken for it."""

    def __init__(self, places: PlainPlaces) -> None:
        self._places = places
        self._leaders: dict[str, tuple[int, Process]] = {}
        self._members: dict[str, tuple[Process, ...]] = {}

    def find(self) -> dict[Work, tuple[Process, ...]]:
        """What runs now, with its processes. OSError when nothing can be looked at now."""
        found = [self._of_cgroup("unit", name, f"{SYSTEM_SLICE}/{name}") for name in self._places.units]
        found += [self._of_cgroup("cgroup", name, name) for name in self._places.cgroups]
        found += [("pid_file", path, members) for path, members in self._of_pid_files().items()]
        return {
            Work(kind, name, tuple(one.pid for one in processes)): processes
            for kind, name, processes in found
            if processes
        }

    def kill_at_once(self, work: Work) -> bool:
        """Let the kernel kill a whole cgroup, forks included. False where it cannot."""
        folder = {"unit": f"{SYSTEM_SLICE}/{work.name}", "cgroup": work.name}.get(work.kind)
        if folder is None:
            return False
        try:
            with (self._places.cgroup_root / folder / "cgroup.kill").open("r+", encoding="ascii") as file:
                file.write("1")
        except OSError:
            return False
        return True

    def _of_cgroup(self, kind: str, name: str, folder: str) -> tuple[str, str, tuple[Process, ...]]:
        return kind, name, running(cgroup_pids(self._places.cgroup_root / folder))

    def _of_pid_files(self) -> dict[str, tuple[Process, ...]]:
        """By path, those too whose file is gone while they run: a program takes it away before it ends."""
        paths = {path for pattern in self._places.pid_files for path in glob(pattern)}
        # Those first that name somebody: however many others are laid beside them, they are not passed by.
        named = [*self._members, *sorted(paths - self._members.keys())][:MOST_PID_FILES]
        leaders = {path: self._leader(path) for path in sorted(named)}
        if not self._members and not any(leaders.values()):
            return {}
        everyone = Everyone()
        found = {path: everyone.family(one, self._members.get(path, ())) for path, one in leaders.items()}
        self._members = {path: members for path, members in found.items() if members}
        self._leaders = {path: one for path, one in self._leaders.items() if path in leaders}
        return self._members

    def _leader(self, path: str) -> Process | None:
        """Whom the file names, unless the pid went to somebody else since the file was first read.

        A user names own processes only: the agent would end those of others for him.
        """
        read = _read_pid_file(path)
        if read is None:
            return None
        details = look(read.pid)
        if details is None or (read.started is not None and read.started != details.process.started):
            return None
        if not read.owners <= TRUSTED | {owner_of(read.pid)}:
            return None
        before = self._leaders.setdefault(path, (read.written, details.process))
        if before[0] != read.written:
            self._leaders[path] = before = (read.written, details.process)
        return details.process if before[1] == details.process else None


class PlainDriver:
    """Signals processes directly, each at most once, and asks nobody."""

    name = "plain"
    signals_again = False

    def __init__(
        self,
        find: Callable[[], dict[Work, tuple[Process, ...]]],
        kill: Callable[[Work], bool],
        endings: Callable[[Sequence[Work]], Awaitable[tuple[Ending, ...]]] | None = None,
    ) -> None:
        """`find` says what runs; `kill` ends a piece of work as a whole where that is possible.

        `endings` says how work ended; without it that stays unknown.
        """
        self._find = find
        self._kill = kill
        self._endings = endings
        self._signalled: set[Process] = set()
        self._told: tuple[Work, ...] = ()

    async def cordon(self, owner: str, until: datetime) -> None:
        """Nobody gives plain work to a node but its owner, so there is nothing to close."""

    async def uncordon(self, owner: str) -> None:
        """Nothing was closed."""

    async def signal(self, orders: DrainOrders, deadline: Deadline) -> None:
        found = self._find()
        self._told = tuple(found)
        for processes in found.values():
            for process, number in receivers(processes, orders.signal):
                if process not in self._signalled and send(process, number):
                    self._signalled.add(process)

    def told(self) -> tuple[Work, ...]:
        return self._told

    async def left(self) -> tuple[Work, ...]:
        return tuple(self._find())

    async def force(self, work: Sequence[Work]) -> None:
        names = {(one.kind, one.name) for one in work}
        for _ in range(KILL_ROUNDS):
            found = [(one, run) for one, run in self._find().items() if (one.kind, one.name) in names]
            for one, processes in found:
                if not self._kill(one):
                    for process in processes:
                        kill(process)
            if not found:
                return
            await asyncio.sleep(KILL_PAUSE_SECONDS)

    async def finish(self, orders: DrainOrders) -> None:
        """Who runs plain work sees it end."""

    async def endings(self, of: Sequence[Work] = ()) -> tuple[Ending, ...]:
        return () if self._endings is None else await self._endings(of)


def plain_driver(places: PlainPlaces) -> PlainDriver:
    """The driver for work at these places."""
    work = PlainWork(places)
    return PlainDriver(work.find, work.kill_at_once)


def strike(work: Sequence[Work], wanted: DrainSignal) -> None:
    """Signal the processes of work that some system knows and cannot tell itself."""
    for one in work:
        for process, number in receivers(running(one.pids), wanted):
            send(process, number)


def receivers(
    processes: Sequence[Process], wanted: DrainSignal
) -> tuple[tuple[Process, signal.Signals], ...]:
    """Whom to signal with what, so that the work is told and no helper process of it is struck dead."""
    number = signal.Signals[f"SIG{wanted}"]
    if wanted not in FOR_HANDLERS:
        return tuple((one, number) for one in processes)
    ready = tuple((one, number) for one in processes if catches(one, number))
    return ready or tuple((one, signal.SIGTERM) for one in processes)


class _PidFile(NamedTuple):
    """When it was written, whose it and a link to it are, the pid, and the start that its writer may give."""

    written: int
    owners: frozenset[int]
    pid: int
    started: int | None


def _read_pid_file(path: str) -> _PidFile | None:
    """What a pid file says; None when it cannot be read, or is no plain file: a pipe would be waited for."""
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), encoding="ascii") as file:
            about, link = os.fstat(file.fileno()), os.lstat(path)
            if not stat.S_ISREG(about.st_mode):
                return None
            words = file.read(64).split()
        started = int(words[1]) if len(words) > 1 else None
        return _PidFile(about.st_mtime_ns, frozenset({about.st_uid, link.st_uid}), int(words[0]), started)
    except OSError as error:
        raise_without_means(error)
        return None
    except (ValueError, IndexError):
        return None
