"""Processes of a pod on this machine: what the kernel says, whatever the API says."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterable, Mapping
from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup")
PROC = Path("/proc")
# A pod's group lies at most this deep below the root, under either of the kubelet's two drivers.
MAX_DEPTH = 5
# Folders that hold pods; below them the names of the groups differ with driver and class of service.
TOP = ("kubepods", "kubelet")
# The uid of a pod, with underscores where systemd names the group; that of a static pod is a plain digest.
GROUP = re.compile(r"(?:^|-)pod([0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12}|[0-9a-f]{32})(?:\.slice)?$")

Processes = Mapping[str, tuple[int, ...]]


def processes_of_pods(root: Path = CGROUPS) -> Processes:
    """The processes of each pod that has any, by the pod's uid, from the kernel's control groups."""
    found = {}
    for group in _groups(root):
        named = GROUP.search(group.name)
        pids = _pids_below(group) if named else ()
        if named and pids:
            found[named[1].replace("_", "-")] = pids
    return found


def _groups(root: Path) -> Iterable[Path]:
    # The first version of control groups has one tree for each controller; any of them tells.
    bases = (root, root / "pids", root / "systemd")
    level = [entry for base in bases for entry in _folders(base) if entry.name.startswith(TOP)]
    for _ in range(MAX_DEPTH):
        yield from level
        level = [entry for folder in level for entry in _folders(folder) if not GROUP.search(folder.name)]


def _folders(folder: Path) -> list[Path]:
    try:
        return sorted(entry for entry in folder.iterdir() if entry.is_dir())
    except OSError:
        return []


def _pids_below(group: Path) -> tuple[int, ...]:
    found: set[int] = set()
    for folder, _, files in os.walk(group):
        if "cgroup.procs" in files:
            found.update(_read_pids(Path(folder) / "cgroup.procs"))
    return tuple(sorted(found))


def _read_pids(file: Path) -> Iterable[int]:
    try:
        return [int(line) for line in file.read_text().split()]
    except (OSError, ValueError):
        return ()


def catches(pid: int, number: signal.Signals, proc: Path = PROC) -> bool:
    """Whether a process has a handler for a signal; one that has none may die of it."""
    try:
        lines = (proc / str(pid) / "status").read_text().splitlines()
        caught = next(line.split()[1] for line in lines if line.startswith("SigCgt:"))
        return bool(int(caught, 16) >> (number - 1) & 1)
    except (OSError, StopIteration, ValueError, IndexError):
        return False


def command_line(pid: int, proc: Path = PROC) -> tuple[str, ...]:
    try:
        return tuple((proc / str(pid) / "cmdline").read_bytes().decode(errors="replace").split("\0"))
    except OSError:
        return ()


def send(pids: Iterable[int], number: signal.Signals) -> tuple[int, ...]:
    """Signal processes; returns those that got it. One that is gone or not ours to signal is left out."""
    reached = []
    for pid in pids:
        try:
            os.kill(pid, number)
        except (ProcessLookupError, PermissionError):
            continue
        reached.append(pid)
    return tuple(reached)
