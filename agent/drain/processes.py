"""Processes as /proc and cgroups show them. One is its pid and its start: a pid alone is used again."""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

PROC = Path("/proc")
# Deeper or wider than any unit is; a tree that somebody grows on purpose ends here.
MOST_CGROUPS = 4096
MOST_PIDS = 65_536
ENDED = frozenset({b"Z", b"X", b"x"})
# Nothing can be opened for want of these: what is not seen then may run all the same.
WITHOUT_MEANS = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})
# More than the line of any process takes.
STAT_BYTES = 4096
# Fields of /proc/<pid>/stat, counted from the state, which follows the name in brackets.
_STATE, _PARENT, _SESSION, _STARTED = 0, 1, 3, 19


class Process(NamedTuple):
    """One process; `started` is in clock ticks since the machine did."""

    pid: int
    started: int


class Details(NamedTuple):
    """What is read of a process in one look."""

    process: Process
    parent: int
    session: int


def look(pid: int) -> Details | None:
    """A process that runs now; None when there is none, or only its exit code is left.

    OSError when nothing can be looked at now.
    """
    try:
        stat = _read(f"{PROC}/{pid}/stat")
        fields = stat[stat.rindex(b")") + 2 :].split(None, _STARTED + 1)
        if fields[_STATE] in ENDED:
            return None
        process = Process(pid, int(fields[_STARTED]))
        return Details(process, int(fields[_PARENT]), int(fields[_SESSION]))
    except OSError as error:
        raise_without_means(error)
        return None
    except (ValueError, IndexError):
        return None


def owner_of(pid: int) -> int | None:
    """The user as whom a process runs; None when it has ended. OSError when nothing can be looked at now."""
    try:
        with open(f"{PROC}/{pid}/status", encoding="utf-8", errors="replace") as status:
            return next((int(line.split()[1]) for line in status if line.startswith("Uid:")), None)
    except OSError as error:
        raise_without_means(error)
        return None


def raise_without_means(error: OSError) -> None:
    """Raise an error that says nothing of what was asked for. That of a process that has ended does."""
    if error.errno in WITHOUT_MEANS:
        raise error


def running(pids: Iterable[int]) -> tuple[Process, ...]:
    """Those of the pids that run now, each once, without this process and the first.

    OSError when nothing can be looked at now.
    """
    seen = (look(pid) for pid in sorted(set(pids) - _own()))
    return tuple(one.process for one in seen if one is not None)


def send(process: Process, number: signal.Signals) -> bool:
    """Signal exactly this process. False when it has ended, or its pid is somebody else's by now."""
    try:
        handle = os.pidfd_open(process.pid)
    except OSError:
        return False
    try:
        # The handle keeps what it was opened on: looking afterwards tells whether that was the right one.
        found = look(process.pid)
        if found is None or found.process != process:
            return False
        signal.pidfd_send_signal(handle, number)
    except OSError:
        return False
    finally:
        os.close(handle)
    return True


def kill(process: Process) -> None:
    """End exactly this process; where it leads a session, with the group that it began.

    The kernel ends a group at once: who forks faster than anybody can look does not get away.
    """
    found = look(process.pid)
    leads = found is not None and found.process == process and found.session == process.pid
    if leads and process.pid != os.getpgrp():
        with suppress(OSError):
            os.killpg(process.pid, signal.SIGKILL)
    send(process, signal.SIGKILL)


def catches(process: Process, number: signal.Signals) -> bool:
    """Whether it has a handler for the signal, or ignores it: whether it would live through it.

    OSError when nothing can be looked at now.
    """
    try:
        status = (PROC / str(process.pid) / "status").read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise_without_means(error)
        return False
    masks = (line.split()[1] for line in status.splitlines() if line.startswith(("SigCgt:", "SigIgn:")))
    return any(int(mask, 16) >> (number - 1) & 1 for mask in masks)


class Everyone:
    """All processes as one look showed them: a node has thousands, and maybe hundreds of pieces of work."""

    def __init__(self) -> None:
        """OSError when nothing can be looked at now."""
        self._by_pid: dict[int, Process] = {}
        self._children: dict[int, list[int]] = {}
        self._of_session: dict[int, list[int]] = {}
        for pid in _all_pids():
            if (one := look(pid)) is not None:
                self._by_pid[pid] = one.process
                self._children.setdefault(one.parent, []).append(pid)
                self._of_session.setdefault(one.session, []).append(pid)

    def family(self, leader: Process | None, known: Iterable[Process]) -> tuple[Process, ...]:
        """A process with all that descend from it or share its session, and those known that still run."""
        start = {*known, *([leader] if leader else ())}
        members = {one.pid for one in start if self._by_pid.get(one.pid) == one}
        if leader is not None and leader.pid in members:
            members.update(self._of_session.get(leader.pid, ()))
        waiting = list(members)
        while waiting:
            new = [pid for pid in self._children.get(waiting.pop(), ()) if pid not in members]
            members.update(new)
            waiting.extend(new)
        return tuple(self._by_pid[pid] for pid in sorted(members - _own()))


def cgroup_pids(folder: Path) -> tuple[int, ...]:
    """The pids in a cgroup and all below it; none where there is no such cgroup.

    OSError when nothing can be looked at now.
    """
    pids: list[int] = []
    waiting, visited = [folder], 0
    while waiting and visited < MOST_CGROUPS and len(pids) < MOST_PIDS:
        current = waiting.pop()
        visited += 1
        try:
            text = (current / "cgroup.procs").read_text(encoding="ascii")
            waiting.extend(Path(one.path) for one in os.scandir(current) if one.is_dir(follow_symlinks=False))
        except OSError as error:
            raise_without_means(error)
            continue
        except ValueError:
            continue
        pids.extend(int(line) for line in text.split() if line.isdigit())
    return tuple(pids)


def _read(path: str) -> bytes:
    # With nothing around it: a node has thousands of processes, and all are looked at before a signal.
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(handle, STAT_BYTES)
    finally:
        os.close(handle)


def _own() -> set[int]:
    return {0, 1, os.getpid()}


def _all_pids() -> list[int]:
    return [int(name) for name in os.listdir(PROC) if name.isdigit()]
