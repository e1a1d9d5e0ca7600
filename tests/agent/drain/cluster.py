"""A cluster to drain a node of: the stand-in for its API, drivers that talk to it, and a deadline by hand."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from agent.drain.kube_api import KubeAccess, KubeApi
from agent.drain.kubernetes import KubernetesDriver
from lab.schedulers.kube_cluster import Cluster
from lab.schedulers.kube_server import serve
from wire.bundle import DrainOrders, DrainPath

OWNER = "sco-notice-1"
NODE = "n1"
NOW = datetime(2026, 11, 3, 9, 0, tzinfo=UTC)
UNTIL = NOW + timedelta(minutes=5)
PATIENCE_SECONDS = 20.0
# A second of grace passes this much faster in the stand-in's kubelets.
SCALE = 0.002


def orders(budget: int = 115, path: DrainPath = DrainPath.KUBERNETES) -> DrainOrders:
    return DrainOrders(path=path, budget_seconds=budget)


@dataclass
class Deadline:
    """Seconds left, as a test sets them."""

    seconds: float = 119.0

    def remaining_seconds(self) -> float:
        return self.seconds


@dataclass
class Clock:
    """A steady clock that a test moves."""

    seconds: float = 0.0

    def __call__(self) -> float:
        return self.seconds


@dataclass
class Drain:
    """One driver on a cluster, with what a test turns by hand."""

    cluster: Cluster
    driver: KubernetesDriver
    api: KubeApi
    address: str
    deadline: Deadline = field(default_factory=Deadline)
    clock: Clock = field(default_factory=Clock)
    processes: dict[str, tuple[int, ...]] = field(default_factory=dict)

    async def signal(self, budget: int = 115) -> None:
        await self.driver.signal(orders(budget), self.deadline)

    async def left(self) -> list[str]:
        return [work.name for work in await self.driver.left()]

    def asked(self, verb: str | None = None) -> list[tuple[str, str, int]]:
        """What was taken by the API, sorted: verb, pod, grace."""
        return sorted(one for one in self.cluster.asked if verb in (None, one[0]))

    async def wait_until(self, holds: Callable[[], bool]) -> None:
        """Ask what is left, as an executor does, until something holds."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not holds():
                await self.left()
                await asyncio.sleep(0.01)

    async def wait_drained(self) -> None:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while await self.left():
                self.clock.seconds += 1
                await asyncio.sleep(0.01)

    def taints(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.cluster.store.find("nodes", ("", NODE))["spec"].get("taints", [])
        return found

    def annotations(self) -> dict[str, str]:
        found: dict[str, str] = self.cluster.store.find("nodes", ("", NODE))["metadata"]["annotations"]
        return found


@asynccontextmanager
async def draining(
    driver: type[KubernetesDriver] = KubernetesDriver,
    *,
    token_file: Path | None = None,
    call_seconds: float = 5.0,
    **options: Any,
) -> AsyncIterator[Drain]:
    """An empty cluster with two nodes, and a driver for the first."""
    cluster = Cluster(SCALE)
    cluster.add_node(NODE)
    cluster.add_node("n2")
    async with serve(cluster) as address:
        api = KubeApi(KubeAccess(address, token_file), call_seconds)
        clock, processes = Clock(), dict[str, tuple[int, ...]]()
        made = driver(api, NODE, now=lambda: NOW, clock=clock, processes=lambda: processes, **options)
        drain = Drain(cluster, made, api, address, clock=clock, processes=processes)
        try:
            yield drain
        finally:
            await made.finish(orders())
            await api.close()
