"""Hands of serving pools that only say what they would have found."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from temporalio import activity
from temporalio.client import WorkflowHandle

from activities.collecting_calls import COLLECT, Collected, CollectRequest
from activities.probing_calls import PROBE_POOLS, Probed, ProbeRequest
from tests.workflows.fake_hands import Stage
from workers.assemble import make_worker
from workflows.collector import Collector
from workflows.pool_health import PoolHealth

STALE = tuple(f"platform/gpu-{number}" for number in range(1, 8))


class ServingHands:
    """What is found, and how often a hand fails before."""

    def __init__(self) -> None:
        self.collected = Collected(stale=STALE, fresh=("acme/gpu-1",), learned=2, expired=3, hours=40)
        self.probed = Probed(probed=42, failing=2, not_asked=1, degraded=("acme/gpu-1",), healed=STALE[:1])
        self.failing = 0
        self.calls = 0

    @activity.defn(name=COLLECT)
    async def collect(self, request: CollectRequest) -> Collected:
        self._called(request)
        return self.collected

    @activity.defn(name=PROBE_POOLS)
    async def probe_pools(self, request: ProbeRequest) -> Probed:
        self._called(request)
        return self.probed

    def _called(self, request: object) -> None:
        del request
        self.calls += 1
        if self.failing:
            self.failing -= 1
            raise ConnectionError("the database is away")


@asynccontextmanager
async def seeing_to_pools(stage: Stage, hands: ServingHands, queue: str) -> AsyncIterator[None]:
    """A worker with these hands, each workflow in the strict sandbox."""
    worker = make_worker(
        stage.client,
        queue,
        stage.settings,
        slots=5,
        workflows=[Collector, PoolHealth],
        activities=[hands.collect, hands.probe_pools],
    )
    async with worker:
        yield


async def run_once(stage: Stage, run: Any, request: Any, queue: str) -> WorkflowHandle[Any, Any]:
    """One run of a workflow on a queue of its own, whatever its end."""
    return await stage.client.start_workflow(run, request, id=queue, task_queue=queue)
