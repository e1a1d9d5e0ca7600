"""Many nodes taken back at once, with nothing of the control plane running: what became of each."""

from __future__ import annotations

import asyncio
import contextlib
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

from lab.nodes.fleet import Fleet
from lab.nodes.in_process import READY, Plan, PlannedNode
from lab.nodes.provider import Provider
from lab.nodes.story import Heard, listening
from lab.nodes.workloads import ENDS_BY_ITSELF, Kind, read_stamp
from lab.reclaimer.targets import Node
from lab.relay.bus import NodeBus
from lab.relay.decisions import Decision
from wire.lifecycle import EventType, LifecycleEvent

HALL = "eu-north-1a"
SEPARATE, SHARED = "separate", "shared"
START_SECONDS = 180.0
STOP_SECONDS = 60.0
# What is told after the deadline may wait a moment longer for its turn on the bus.
TOLD_SECONDS = 60.0
# A reclaim that is spread over a while comes in so many decisions.
DECISIONS = 10


Afterwards = Callable[[NodeBus, Heard], Awaitable[None]]


class Size(NamedTuple):
    """How many nodes: one kind per node. Those in process are spread over so many processes.

    `settle_seconds` pass between the moment when all are ready and the first decision; with `spread_seconds`
    there are several, evenly over that time, instead of one.
    """

    separate: tuple[Kind, ...]
    in_process: tuple[Kind, ...]
    processes: int
    warning_seconds: float
    poll_seconds: float = 5.0
    in_process_poll_seconds: float = 5.0
    linger_seconds: float = 1.0
    settle_seconds: float = 0.0
    spread_seconds: float = 0.0


class Taken(NamedTuple):
    """One node: seconds from the decision about it to its workload's own handler, and what it told."""

    instance_id: str
    kind: Kind
    separate: bool
    signalled_after_seconds: float | None
    told: tuple[EventType, ...]

    @property
    def ends_by_itself(self) -> bool:
        return self.kind in ENDS_BY_ITSELF


class AtOnce(NamedTuple):
    """What a reclaim of everything came to. Memory is that of separate agents, in MiB, the median."""

    nodes: tuple[Taken, ...]
    events: tuple[LifecycleEvent, ...]
    deciding_seconds: float
    idle_rss_mb: float
    drained_rss_mb: float


async def reclaim_at_once(folder: Path, size: Size, afterwards: Afterwards | None = None) -> AtOnce:
    """Run the nodes, take them all back, and wait until each has told its outcome.

    Instances are not ended at the deadline, so that those that overran can still tell it; `afterwards` runs
    while the nodes and their bus still do. RuntimeError when the nodes do not come up; what a node does not
    tell in time is missing in the answer.
    """
    provider = Provider(folder / "provider")
    async with provider.serving():
        fleet, separate = _fleet(folder, provider, size)
        plans, in_process = _plans(folder, provider, size)
        everybody = separate + in_process
        async with listening(provider.bus) as heard, _running(fleet, plans, folder):
            await _all(heard, everybody, "ready", START_SECONDS, EventType.READY)
            await asyncio.sleep(size.settle_seconds)
            idle = _rss(fleet)
            began = time.monotonic()
            decided = await _decide(provider, [one for one, _ in everybody], size)
            deciding_seconds = time.monotonic() - began
            patience = size.warning_seconds + TOLD_SECONDS
            with contextlib.suppress(RuntimeError):
                await _all(heard, everybody, "told", patience, EventType.DRAINED, EventType.OVERRUN)
            drained = _rss(fleet)
            if afterwards is not None:
                await afterwards(provider.bus, heard)
    taken = [_taken(folder, one, decided[one[0]], heard, separate=one in separate) for one in everybody]
    return AtOnce(tuple(taken), heard.events, deciding_seconds, idle, drained)


async def _decide(provider: Provider, instances: Sequence[str], size: Size) -> dict[str, int]:
    """Take them back; of each, the moment in monotonic nanoseconds at which that was decided."""
    decisions = DECISIONS if size.spread_seconds else 1
    decided: dict[str, int] = {}
    began = time.monotonic()
    for number in range(decisions):
        due = began + size.spread_seconds * number / decisions
        await asyncio.sleep(max(0.0, due - time.monotonic()))
        chosen = instances[number::decisions]
        decided |= dict.fromkeys(chosen, time.monotonic_ns())
        await provider.relay.relay.decide(
            [Decision(instance_id=one, hall=HALL, seconds=size.warning_seconds) for one in chosen]
        )
    return decided


def _named(name: str, kinds: Sequence[Kind]) -> list[tuple[str, Kind]]:
    return [(f"{name}-{number}", kind) for number, kind in enumerate(kinds, 1)]


def _fleet(folder: Path, provider: Provider, size: Size) -> tuple[Fleet, list[tuple[str, Kind]]]:
    fleet = Fleet(folder, provider, settings={"SCO_AGENT_POLL_SECONDS": str(size.poll_seconds)})
    named = _named(SEPARATE, size.separate)
    for instance_id, kind in named:
        fleet.add(_node(instance_id), [kind])
    return fleet, named


def _plans(folder: Path, provider: Provider, size: Size) -> tuple[list[Path], list[tuple[str, Kind]]]:
    """The plan of each process; every node's papers are laid down already."""
    named = _named(SHARED, size.in_process)
    planned = []
    for instance_id, kind in named:
        provider.papers.lay_down(folder / instance_id / "state", _node(instance_id))
        url = provider.metadata.url_of(instance_id)
        planned.append(
            PlannedNode(instance_id=instance_id, folder=folder / instance_id, metadata_url=url, kind=kind)
        )
    paths = []
    for number in range(size.processes):
        plan = Plan(
            nodes=tuple(planned[number :: size.processes]),
            poll_seconds=size.in_process_poll_seconds,
            linger_seconds=size.linger_seconds,
        )
        paths.append(folder / f"plan-{number}.json")
        paths[-1].write_text(plan.model_dump_json())
    return paths, named


@asynccontextmanager
async def _running(fleet: Fleet, plans: Sequence[Path], folder: Path) -> AsyncIterator[None]:
    shared: list[subprocess.Popen[str]] = []
    try:
        await asyncio.to_thread(_start_all, plans, folder, shared)
        await asyncio.to_thread(fleet.start)
        yield
    finally:
        for process in shared:
            process.terminate()
        await asyncio.to_thread(fleet.stop)
        await asyncio.to_thread(_end, shared)


def _start_all(plans: Sequence[Path], folder: Path, started: list[subprocess.Popen[str]]) -> None:
    started.extend(_start(plan, folder / f"{plan.stem}.log") for plan in plans)


def _start(plan: Path, log: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "lab.nodes.in_process", "--plan", str(plan)]
    with log.open("wb") as errors:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)
    assert process.stdout is not None
    if process.stdout.readline().strip() != READY:
        process.kill()
        raise RuntimeError(f"the nodes of {plan} did not start: {log.read_text()[-2000:]}")
    return process


def _end(processes: Sequence[subprocess.Popen[str]]) -> None:
    for process in processes:
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(STOP_SECONDS)


async def _all(
    heard: Heard, everybody: Sequence[tuple[str, Kind]], what: str, seconds: float, *types: EventType
) -> None:
    names = {one for one, _ in everybody}
    if not await heard.until(lambda now: names <= now.instances(*types), seconds):
        missing = sorted(names - heard.instances(*types))
        raise RuntimeError(f"{len(missing)} nodes are not {what} after {seconds:.0f} s, such as {missing[0]}")


def _taken(folder: Path, one: tuple[str, Kind], decided: int, heard: Heard, *, separate: bool) -> Taken:
    instance_id, kind = one
    stamp = read_stamp(folder / instance_id / "work" / "0")
    after = None if stamp is None else (stamp.monotonic_ns - decided) / 1e9
    told = tuple(event.type for event in heard.events if event.instance_id == instance_id)
    return Taken(instance_id, kind, separate, after, told)


def _rss(fleet: Fleet) -> float:
    sizes = [size for node in fleet.nodes.values() if (size := node.agent_rss_mb()) is not None]
    return statistics.median(sizes) if sizes else 0.0


def _node(instance_id: str) -> Node:
    return Node(instance_id, HALL, "pool-0", "group-0")
