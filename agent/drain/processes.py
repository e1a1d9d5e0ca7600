"""Processes as /proc and cgroups show them. One is its pid and its start: a pid alone is used again."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

PROC = Path("/proc")
# Deeper or wider than any unit is; a tree that somebody grows on purpose ends here.
MOST_CGROUPS = 4096
MOST_PIDS = 65_536
ENDED = frozenset({b"Z", b"X", b"x"})
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
    """A process that runs now; None when there is none, or only its exit code is left."""
    try:
        stat = _read(f"{PROC}/{pid}/stat")
        fields = stat[stat.rindex(b")") + 2 :].split(None, _STARTED + 1)
        if fields[_STATE] in ENDED:
            return None
        process = Process(pid, int(fields[_STARTED]))
        return Details(process, int(fields[_PARENT]), int(fields[_SESSION]))
    except (OSError, ValueError, IndexError):
        return None


def running(pids: Iterable[int]) -> tuple[Process, ...]:
    """Those of the pids that run now, each once, without this process and the first."""
    own = {0, 1, os.getpid()}
    seen = (look(pid) for pid in sorted(set(pids) - own))
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


def catches(process: Process, number: signal.Signals) -> bool:
    """Whether it has a handler for the signal, or ignores it: whether it would live through it."""
    try:
        status = (PROC / str(process.pid) / "status").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    masks = (line.split()[1] for line in status.splitlines() if line.startswith(("SigCgt:", "SigIgn:")))
    return any(int(mask, 16) >> (number - 1) & 1 for mask in masks)


def family(leader: Process | None, known: Iterable[Process]) -> tuple[Process, ...]:
    """A process with all that descend from it or share its session, and those known before that still run."""
    everyone = [one for one in map(look, _all_pids()) if one is not None]
    start = set(known) | ({leader} if leader else set())
    members = {one.process.pid for one in everyone if one.process in start}
    if leader is not None and leader.pid in members:
        members |= {one.process.pid for one in everyone if one.session == leader.pid}
    children: dict[int, list[int]] = {}
    for one in everyone:
        children.setdefault(one.parent, []).append(one.process.pid)
    waiting = list(members)
    while waiting:
        new = [pid for pid in children.get(waiting.pop(), ()) if pid not in members]
        members.update(new)
        waiting.extend(new)
    return running(members)


def cgroup_pids(folder: Path) -> tuple[int, ...]:
    """The pids in a cgroup and all below it; none where there is no such cgroup."""
    pids: list[int] = []
    waiting, visited = [folder], 0
    while waiting and visited < MOST_CGROUPS and len(pids) < MOST_PIDS:
        current = waiting.pop()
        visited += 1
        try:
            text = (current / "cgroup.procs").read_text(encoding="ascii")
            waiting.extend(Path(one.path) for one in os.scandir(current) if one.is_dir(follow_symlinks=False))
        except (OSError, ValueError):
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


def _all_pids() -> list[int]:
    try:
        return [int(name) for name in os.listdir(PROC) if name.isdigit()]
    except OSError:
        return []
