"""Processes of a pod on this machine: what the kernel says, whatever the API says."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from agent.drain.processes import cgroup_pids, raise_without_means

CGROUPS = Path("/sys/fs/cgroup")
# A pod's group lies at most this deep below the root, under either of the kubelet's two drivers.
MAX_DEPTH = 5
# Folders that hold pods; below them the names of the groups differ with driver and class of service.
TOP = ("kubepods", "kubelet")
# The uid of a pod, with underscores where systemd names the group; that of a static pod is a plain digest.
GROUP = re.compile(r"(?:^|-)pod([0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12}|[0-9a-f]{32})(?:\.slice)?$")

Processes = Mapping[str, tuple[int, ...]]


def processes_of_pods(root: Path = CGROUPS) -> Processes:
    """The processes of each pod that has any, by the pod's uid, from the kernel's control groups.

    OSError when nothing can be looked at now.
    """
    found = {}
    for group in _groups(root):
        named = GROUP.search(group.name)
        pids = tuple(sorted(cgroup_pids(group))) if named else ()
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
    except OSError as error:
        raise_without_means(error)
        return []
