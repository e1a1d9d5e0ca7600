"""Far more callers than are let in: each is answered or refused in good order, and the server lives on."""

from __future__ import annotations

import asyncio
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import grpc
import pytest
import pytest_asyncio
from grpc import StatusCode

from activities.model_placing import Placed
from api.grpc.server import Limits
from api.grpc.workroom import workroom
from domain.serving.placing import PlacementOutcome
from domain.serving.requirements import ModelRequirements
from lab.bench.grpc_client import Plan, Seen
from lab.issuer import IssuerHandle
from store.engine import Engine
from store.model_placements import StoredPlacement
from store.tables import PlacementState
from tests.activities.model_placing import PLATFORM, ServingEstate
from tests.api.grpc.door import GrpcDoor, asked, grpc_door, report, until
from tests.api.grpc.processes import ROOT, Running, serving
from tests.estates import Clock
from wire.proto import control_pb2 as pb
from wire.proto.control_pb2_grpc import ComputePoolsStub

# Placements that compute for so long, asked for far faster, until the library has no room for what waits.
SLOW_SECONDS = 0.03
OFFERED_PER_S = 300
OFFERED_FOR_SECONDS = 6.0
CALLERS = 300
CHANNELS = 6
ROUTERS = ("tenant-a-router", "tenant-b-router", "model-router")
IN_GOOD_ORDER = {StatusCode.OK, StatusCode.RESOURCE_EXHAUSTED, StatusCode.DEADLINE_EXCEEDED}
Signed = tuple[tuple[str, str], ...]


class SlowHand:
    """Places everything on one pool, and keeps its thread busy meanwhile."""

    async def place(self, tenant_id: str, wanted: ModelRequirements, *, placement_id: UUID) -> Placed:
        enough = time.perf_counter() + SLOW_SECONDS
        while time.perf_counter() < enough:
            pass
        return Placed(placed_on("gpu-1", tenant_id, wanted, placement_id))

    async def renew(self, tenant_id: str, placement_id: UUID) -> None:
        return None

    async def release(self, tenant_id: str, placement_id: UUID) -> None:
        return None


def placed_on(pool_id: str, tenant_id: str, wanted: ModelRequirements, placement_id: UUID) -> StoredPlacement:
    now = datetime.now(UTC)
    return StoredPlacement(
        tenant_id=tenant_id,
        placement_id=placement_id,
        deployment_id=wanted.deployment_id,
        run_id=None,
        model=wanted.model,
        requirements={},
        candidates={"form": 1, "weights": [], "kept": [], "excluded": {}},
        outcome=PlacementOutcome.PLACED,
        pool_tenant_id=tenant_id,
        pool_id=pool_id,
        vram_gb=wanted.vram_gb,
        warm=True,
        cold_start_seconds=0,
        state=PlacementState.HELD,
        decided_at=now,
        expires_at=now,
    )


async def offered(door: GrpcDoor) -> Seen:
    """What a client in another process saw that asks at a fixed rate, whatever comes of it."""
    ((_, bearer),) = door.signed()
    plan = Plan(
        address=door.address,
        router_token=bearer.removeprefix("Bearer "),
        agent_token="",
        pools=(),
        models=("llama3.3:70b",),
        vram_gb=70,
        report_seconds=0,
        seconds=OFFERED_FOR_SECONDS,
        per_second=OFFERED_PER_S,
    )
    client = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "lab.bench.grpc_client",
        cwd=ROOT,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    told, _ = await client.communicate(plan.model_dump_json().encode())
    return Seen.model_validate_json(told)


@pytest.fixture
def running(own_dsn: str, issuer: IssuerHandle) -> Iterator[Running]:
    with serving(SCO_DATABASE_URL=own_dsn, SCO_OIDC_ISSUER=issuer.url) as process:
        yield process


@pytest_asyncio.fixture
async def pools(engine: Engine) -> ServingEstate:
    """One pool for everybody."""
    estate = ServingEstate(engine, engine, Clock(datetime.now(UTC)))
    await estate.pool("shared", PLATFORM, security_boundary="shared", vram_gb=640, loaded="llama3.3:70b")
    return estate


def signed(issuer: IssuerHandle, name: str) -> Signed:
    return (("authorization", f"Bearer {issuer.issuer.token_for(name)}"),)


@asynccontextmanager
async def connected(running: Running) -> AsyncIterator[list[Any]]:
    """Callers over several connections."""
    options = [("grpc.use_local_subchannel_pool", 1)]
    channels = [grpc.aio.insecure_channel(running.address, options=options) for _ in range(CHANNELS)]
    try:
        yield [ComputePoolsStub(channel) for channel in channels]
    finally:
        await asyncio.gather(*(channel.close() for channel in channels))


def placed_by(calls: Any, metadata: Signed, seconds: float) -> Any:
    return calls.Place(asked(boundary=pb.SECURITY_BOUNDARY_SHARED), metadata=metadata, timeout=seconds)


async def storm(callers: list[Any], routers: list[Signed], seconds: float) -> Counter[StatusCode]:
    """Everybody at once; returns how the calls ended."""
    calls = [
        placed_by(callers[number % len(callers)], routers[number % len(routers)], seconds)
        for number in range(CALLERS)
    ]
    ended = Counter(await asyncio.gather(*(call.code() for call in calls)))
    assert set(ended) <= IN_GOOD_ORDER, ended
    return ended


async def recovered(calls: Any, router: Signed) -> None:
    """The server places again, once it has noticed whom nobody waits for any more."""

    async def placed() -> bool:
        call = placed_by(calls, router, 20)
        assert await call.code() in IN_GOOD_ORDER
        return bool(
            await call.code() is StatusCode.OK and (await call).outcome == pb.PLACEMENT_OUTCOME_PLACED
        )

    await until(placed)


async def test_a_storm_is_answered_in_good_order(
    running: Running, pools: ServingEstate, issuer: IssuerHandle
) -> None:
    routers = [signed(issuer, name) for name in ROUTERS]
    async with connected(running) as callers:
        stream = callers[0].ReportUtilization(metadata=signed(issuer, "pool-agent"))
        await stream.write(report("shared"))
        for seconds in (20.0, 0.3, 20.0):
            ended = await storm(callers, routers, seconds)
            assert ended[StatusCode.OK] < CALLERS, "a storm that fits is none"
            await stream.write(report("shared"))
            await recovered(callers[0], routers[0])
        await stream.done_writing()
        answer = await stream
    assert (answer.accepted, answer.refused) == (4, 0)
    await pools.memory_is_right()
    held = await pools.run("SELECT count(*) FROM model_placements WHERE state = 'held'")
    assert held == await pools.run("SELECT sum(holds) FROM cached_models")


async def test_one_tenants_storm_leaves_room_for_another(
    running: Running, pools: ServingEstate, issuer: IssuerHandle
) -> None:
    loud, quiet = (signed(issuer, name) for name in ROUTERS[:2])
    async with connected(running) as callers:
        storming = asyncio.ensure_future(storm(callers, [loud], 20))
        answers = [await placed_by(callers[0], quiet, 20) for _ in range(3)]
        assert {one.outcome for one in answers} == {pb.PLACEMENT_OUTCOME_PLACED}
        ended = await storming
    assert ended[StatusCode.RESOURCE_EXHAUSTED] > 0


async def test_what_is_beyond_is_refused_as_that_and_in_no_other_way(
    engine: Engine, tenant_engine: Engine, clock: Clock
) -> None:
    """A server that takes a fraction of what comes, for longer than the library has room for what waits."""
    limits = Limits(calls_at_once=2, calls_waiting=8)
    async with (
        workroom() as room,
        grpc_door(engine, tenant_engine, clock, limits=limits, placing=SlowHand(), work=room) as door,
    ):
        seen = await offered(door)
    assert set(seen.refused) == {StatusCode.RESOURCE_EXHAUSTED.name}
    assert seen.latencies
    refused = seen.refused[StatusCode.RESOURCE_EXHAUSTED.name]
    assert refused + len(seen.latencies) == OFFERED_PER_S * OFFERED_FOR_SECONDS
    assert door.counted("Place", StatusCode.RESOURCE_EXHAUSTED) == refused
