"""A notice has two ways to a node, and either is enough: the bus may be dead, or the metadata silent."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

from lab.nodes.fleet import Fleet
from lab.nodes.inventory import made_up
from lab.nodes.metadata import MetadataFaults
from lab.nodes.provider import Provider
from lab.nodes.story import Heard, listening
from lab.nodes.workloads import Kind
from lab.relay.decisions import Decision
from wire.lifecycle import EventType

NODES = made_up(2)
NAMES = frozenset(one.instance_id for one in NODES)
PATIENCE_SECONDS = 60.0
WARNING_SECONDS = 45.0


class Ground(NamedTuple):
    provider: Provider
    fleet: Fleet
    heard: Heard

    async def decide(self) -> None:
        await self.provider.relay.relay.decide(
            [Decision(instance_id=one.instance_id, hall=one.hall, seconds=WARNING_SECONDS) for one in NODES]
        )

    def all_signalled(self) -> bool:
        return all(None not in node.stamps() for node in self.fleet.nodes.values())


@asynccontextmanager
async def ground(folder: Path) -> AsyncIterator[Ground]:
    """Two ready nodes, each with a workload that checkpoints."""
    provider = Provider(folder / "provider", cache_seconds=1.0)
    fleet = Fleet(folder / "nodes", provider, settings={"SCO_AGENT_POLL_SECONDS": "1"})
    for node in NODES:
        fleet.add(node, [Kind.CHECKPOINTS])
    async with provider.serving(), listening(provider.bus) as heard:
        try:
            await asyncio.to_thread(fleet.start)
            assert await heard.until(lambda now: now.instances(EventType.READY) >= NAMES, PATIENCE_SECONDS)
            yield Ground(provider, fleet, heard)
        finally:
            await asyncio.to_thread(fleet.stop)


def all_drained(now: Heard) -> bool:
    return now.instances(EventType.DRAINED) >= NAMES


async def until(happened: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not happened():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.05)


async def test_with_a_dead_bus_the_poll_drains_and_the_outcome_is_told_later(tmp_path: Path) -> None:
    async with ground(tmp_path) as here:
        await asyncio.to_thread(here.provider.bus.kill)
        await here.decide()
        await until(here.all_signalled)
        await asyncio.to_thread(here.provider.bus.start)
        async with listening(here.provider.bus) as heard:
            assert await heard.until(all_drained, PATIENCE_SECONDS)
            assert heard.instances(EventType.OVERRUN) == frozenset()


async def test_with_silent_metadata_the_push_drains(tmp_path: Path) -> None:
    async with ground(tmp_path) as here:
        here.provider.metadata.service.faults = MetadataFaults(status=503)
        await here.decide()
        assert await here.heard.until(all_drained, PATIENCE_SECONDS)


async def test_an_agent_that_is_killed_goes_on_with_the_same_notice(tmp_path: Path) -> None:
    """Killed after the notice and started again, it tells the outcome once."""
    async with ground(tmp_path) as here:
        node = here.fleet.nodes[NODES[0].instance_id]
        await here.decide()
        assert await here.heard.until(lambda now: bool(now.instances(EventType.NOTICE)), PATIENCE_SECONDS)
        await asyncio.to_thread(node.kill_agent)
        await asyncio.to_thread(node.start_agent)
        assert await here.heard.until(all_drained, PATIENCE_SECONDS)
        drained = [one for one in here.heard.events if one.type is EventType.DRAINED]
        assert len(drained) == len(NODES)
