"""The big drill: 800 nodes are taken back within a second while the control plane does not run."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

from lab.bench import node_history
from lab.bench.report import Figure, percentile
from lab.nodes.at_once import DECISIONS, SHARED, AtOnce, Size, Taken, reclaim_at_once
from lab.nodes.at_once import SEPARATE as SEPARATE_NAME
from lab.nodes.story import Heard
from lab.nodes.workloads import Kind
from lab.relay.bus import NodeBus
from wire.lifecycle import EventType

NODES, SEPARATE, PROCESSES = 800, 40, 8
WARNING_SECONDS = 30.0
# As long as a small checkpoint: the end of shorter work is told while others are still to be signalled.
LINGER_SECONDS = 5.0
# Nodes that are taken back have run for a while: 800 that have just started are still busy with that.
SETTLE_SECONDS = 5.0
SPREAD_SECONDS = 1.0
# Each in-process agent polls this seldom here: 800 polls every 5 s from one machine would measure the polls.
IN_PROCESS_POLL_SECONDS = 60.0
# The disks of 800 nodes are one disk here, so that they write to memory where there is a place for it.
MEMORY = Path("/dev/shm")  # noqa: S108 - a folder of our own is made below it
SEPARATE_KINDS = (Kind.HONEST, Kind.CHECKPOINTS, Kind.FORKS, Kind.EXITS_WRONGLY)


def measure() -> list[Figure]:
    """One drill with honest workloads alone: who overruns was told late. Then the control plane is back."""
    separate = tuple(SEPARATE_KINDS[number % len(SEPARATE_KINDS)] for number in range(SEPARATE))
    size = Size(
        separate,
        (Kind.HONEST,) * (NODES - SEPARATE),
        PROCESSES,
        WARNING_SECONDS,
        in_process_poll_seconds=IN_PROCESS_POLL_SECONDS,
        linger_seconds=LINGER_SECONDS,
        settle_seconds=SETTLE_SECONDS,
        spread_seconds=SPREAD_SECONDS,
    )
    place = MEMORY if MEMORY.is_dir() else None
    in_history: list[Figure] = []

    async def back(bus: NodeBus, heard: Heard) -> None:
        named = {SEPARATE_NAME: len(size.separate), SHARED: len(size.in_process)}
        in_history.extend(await node_history.measure(bus, named, len(heard.events)))

    with tempfile.TemporaryDirectory(prefix="sco-bench-nodes-", dir=place) as folder:
        drill = asyncio.run(reclaim_at_once(Path(folder), size, back))
    return figures(drill, size) + in_history


def figures(drill: AtOnce, size: Size) -> list[Figure]:
    """The figures of one drill."""
    told_late = [one for one in drill.nodes if EventType.DRAINED not in one.told]
    waits = [_wait(one, size) for one in drill.nodes]
    p50, p99, last = (percentile(waits, share) * 1000 for share in (0.5, 0.99, 1.0))
    alone = [_wait(one, size) for one in drill.nodes if one.separate]
    count = len(drill.nodes)
    how = (
        f"{count} nodes taken back by {DECISIONS} decisions, all sent after"
        f" {drill.deciding_seconds * 1000:.0f} ms; {len(size.separate)} are agent processes with real"
        " workloads, the others run the same agent,"
        f" {len(size.in_process)} in {size.processes} processes; no Temporal, Postgres or API; one machine"
    )
    return [
        Figure(
            name="notice_to_signal_p99_ms",
            value=p99,
            unit="ms",
            target="<= 2000",
            method=(
                f"from the relay's decision about a node to its workload's own handler; p50 {p50:.0f} ms,"
                f" last {last:.0f} ms, last of the separate {max(alone, default=0.0) * 1000:.0f} ms; {how}"
            ),
        ),
        Figure(
            name=f"drain_overruns_of_{count}",
            value=len(told_late),
            unit="nodes",
            target="<= 4 of 800",
            method=(
                f"nodes that did not tell `drained`, every workload ending when told; deadline of"
                f" {size.warning_seconds:.0f} s instead of 120; {how}"
            ),
        ),
        Figure(
            name="agent_rss_mb",
            value=drill.drained_rss_mb,
            unit="MiB",
            method=(
                f"resident memory of a separate agent after its drain, the median of {len(size.separate)};"
                f" idle before it {drill.idle_rss_mb:.0f} MiB"
            ),
        ),
    ]


def _wait(one: Taken, size: Size) -> float:
    # Whoever was never told counts as told when the time was up.
    return size.warning_seconds if one.signalled_after_seconds is None else one.signalled_after_seconds
