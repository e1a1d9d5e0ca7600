"""Far more callers than are let in: each is answered or refused in good order, and the server lives on."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import grpc
import pytest
import pytest_asyncio
from grpc import StatusCode

from lab.issuer import IssuerHandle
from store.engine import Engine
from tests.activities.model_placing import PLATFORM, ServingEstate
from tests.api.grpc.door import asked, report, until
from tests.api.grpc.processes import Running, serving
from tests.estates import Clock
from wire.proto import control_pb2 as pb
from wire.proto.control_pb2_grpc import ComputePoolsStub

CALLERS = 300
CHANNELS = 6
ROUTERS = ("tenant-a-router", "tenant-b-router", "model-router")
IN_GOOD_ORDER = {StatusCode.OK, StatusCode.RESOURCE_EXHAUSTED, StatusCode.DEADLINE_EXCEEDED}
Signed = tuple[tuple[str, str], ...]


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
    yield [ComputePoolsStub(channel) for channel in channels]
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
