"""The client process of the gRPC bench: a router that places, and agents of pools that report meanwhile.

It is told what to do as JSON on standard input, and prints what it saw as JSON.
"""

from __future__ import annotations

import asyncio
import random
import sys
import time
from collections.abc import AsyncIterator, Callable
from uuid import uuid4

import grpc
import uvloop

from domain.model import Frozen
from wire.proto import control_pb2 as pb
from wire.proto.control_pb2_grpc import ComputePoolsStub

GIVE_UP_SECONDS = 30.0
SEED = 7


class Plan(Frozen):
    """What to do: place at a fixed rate (open loop), or as fast as `in_flight` callers are answered.

    `report_seconds` is the time between two reports of a pool, each on a stream of its own.
    """

    address: str
    router_token: str
    agent_token: str
    pools: tuple[str, ...]
    models: tuple[str, ...]
    vram_gb: int
    report_seconds: float
    seconds: float
    per_second: float | None = None
    in_flight: int = 16


class Seen(Frozen):
    """What came of it: seconds of each call that was answered, refusals by status, and reports."""

    latencies: tuple[float, ...]
    refused: dict[str, int]
    seconds: float
    reports_accepted: int
    reports_refused: int


class Router:
    """Places models and measures."""

    def __init__(self, channel: grpc.aio.Channel, plan: Plan) -> None:
        self._calls = ComputePoolsStub(channel)
        self._plan = plan
        self._signed = (("authorization", f"Bearer {plan.router_token}"),)
        self._rng = random.Random(SEED)
        self.latencies: list[float] = []
        self.refused: dict[str, int] = {}

    async def place(self) -> None:
        request = pb.PlaceRequest(
            request_id=str(uuid4()),
            deployment_id="bench",
            model=self._rng.choice(self._plan.models),
            vram_gb=self._plan.vram_gb,
            boundary=pb.SECURITY_BOUNDARY_SHARED,
        )
        began = time.perf_counter()
        try:
            answer = await self._calls.Place(request, metadata=self._signed, timeout=GIVE_UP_SECONDS)
        except grpc.aio.AioRpcError as error:
            name = error.code().name
            self.refused[name] = self.refused.get(name, 0) + 1
            return
        self.latencies.append(time.perf_counter() - began)
        if answer.outcome != pb.PLACEMENT_OUTCOME_PLACED:
            raise RuntimeError(f"not placed: {answer.text}")

    async def open_loop(self, per_second: float) -> None:
        """Place at a fixed rate whether or not earlier calls were answered."""
        began = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            for number in range(int(per_second * self._plan.seconds)):
                await asyncio.sleep(max(0.0, began + number / per_second - time.perf_counter()))
                group.create_task(self.place())

    async def closed_loop(self) -> None:
        """Keep so many calls open until the time is over."""
        until = time.perf_counter() + self._plan.seconds

        async def lane() -> None:
            while time.perf_counter() < until:
                await self.place()

        await asyncio.gather(*(lane() for _ in range(self._plan.in_flight)))


async def run(plan: Plan) -> Seen:
    stop = asyncio.Event()
    async with grpc.aio.insecure_channel(plan.address) as channel, asyncio.TaskGroup() as agents:
        streams = [agents.create_task(_agent(channel, plan, pool_id, stop)) for pool_id in plan.pools]
        # Until every pool has reported, placements would measure fewer candidates.
        await asyncio.sleep(plan.report_seconds)
        router = Router(channel, plan)
        began = time.perf_counter()
        await (router.closed_loop() if plan.per_second is None else router.open_loop(plan.per_second))
        seconds = time.perf_counter() - began
        stop.set()
        answers = await asyncio.gather(*streams)
    return Seen(
        latencies=tuple(router.latencies),
        refused=router.refused,
        seconds=seconds,
        reports_accepted=sum(one.accepted for one in answers),
        reports_refused=sum(one.refused for one in answers),
    )


async def _agent(
    channel: grpc.aio.Channel, plan: Plan, pool_id: str, stop: asyncio.Event
) -> pb.ReportUtilizationResponse:
    """Report one pool until told to stop; agents start at different moments, as they do in life."""
    rng = random.Random(f"{SEED}/{pool_id}")
    signed = (("authorization", f"Bearer {plan.agent_token}"),)
    await _pause(stop, rng.uniform(0, plan.report_seconds))
    reports = _reports(plan, pool_id, stop, rng.random)
    return await ComputePoolsStub(channel).ReportUtilization(reports, metadata=signed)


async def _reports(
    plan: Plan, pool_id: str, stop: asyncio.Event, share: Callable[[], float]
) -> AsyncIterator[pb.ReportUtilizationRequest]:
    while not stop.is_set():
        yield pb.ReportUtilizationRequest(pool_id=pool_id, utilization=f"{share():.4f}", queue_depth=1)
        await _pause(stop, plan.report_seconds)


async def _pause(stop: asyncio.Event, seconds: float) -> None:
    try:
        await asyncio.wait_for(stop.wait(), seconds)
    except TimeoutError:
        return


if __name__ == "__main__":
    print(uvloop.run(run(Plan.model_validate_json(sys.stdin.read()))).model_dump_json())
