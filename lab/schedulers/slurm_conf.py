"""The configuration of a small Slurm on loopback, for the version that is installed."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

Version = tuple[int, int]
# From here on Slurm wants to be told that there are no control groups.
DISABLED_CGROUPS: Version = (23, 11)


class Layout(NamedTuple):
    """Where a cluster lies, whose it is, and the port of `slurmctld` and of each node."""

    folder: Path
    user: str
    nodes: tuple[str, ...]
    ports: Mapping[str, int]


def version_of(text: str) -> Version:
    """Major and minor version of output such as `slurm-wlm 22.05.8`. ValueError when there is none."""
    found = re.search(r"(\d+)\.(\d+)", text)
    if found is None:
        raise ValueError(f"no version of Slurm in {text.strip()!r}")
    return int(found[1]), int(found[2])


def slurm_conf(layout: Layout, version: Version) -> dict[str, str]:
    """The files by name. Everything that is not here is Slurm's default, which differs between versions."""
    folder = layout.folder
    lines = [
        "ClusterName=lab",
        "SlurmctldHost=localhost(127.0.0.1)",
        f"SlurmUser={layout.user}",
        f"SlurmdUser={layout.user}",
        "AuthType=auth/munge",
        f"AuthInfo=socket={folder}/run/munge.sock",
        "CommunicationParameters=NoCtldInAddrAny,NoInAddrAny",
        f"SlurmctldPort={layout.ports['slurmctld']}",
        f"SlurmctldPidFile={folder}/run/slurmctld.pid",
        f"SlurmctldLogFile={folder}/log/slurmctld.log",
        f"StateSaveLocation={folder}/state",
        f"SlurmdPidFile={folder}/run/slurmd-%n.pid",
        f"SlurmdLogFile={folder}/log/slurmd-%n.log",
        f"SlurmdSpoolDir={folder}/run/spool-%n",
        "SlurmdParameters=config_overrides",
        "ProctrackType=proctrack/linuxproc",
        "SelectType=select/cons_tres",
        "SelectTypeParameters=CR_CPU_Memory",
        "SchedulerParameters=sched_interval=1,sched_min_interval=100000,bf_interval=5",
        "JobRequeue=1",
        "RequeueExit=75",
        "KillWait=5",
        "MinJobAge=600",
        "ReturnToService=2",
        "SlurmctldTimeout=30",
        "SlurmdTimeout=30",
    ]
    lines += [
        f"NodeName={node} NodeAddr=127.0.0.1 NodeHostname=localhost Port={layout.ports[node]}"
        " CPUs=2 RealMemory=1000 State=UNKNOWN"
        for node in layout.nodes
    ]
    lines.append(f"PartitionName=spot Nodes={','.join(layout.nodes)} Default=YES MaxTime=INFINITE State=UP")
    files = {"slurm.conf": "\n".join(lines) + "\n"}
    if version >= DISABLED_CGROUPS:
        files["cgroup.conf"] = "CgroupPlugin=disabled\n"
    return files
