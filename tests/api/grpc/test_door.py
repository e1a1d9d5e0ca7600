"""What every call meets: deadlines, turns, limits, errors that nobody foresaw, and what is told of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from itertools import islice
from typing import Any
from uuid import UUID

import grpc
import pytest
import pytest_asyncio
from grpc import StatusCode
from structlog.testing import capture_logs

from api.grpc.server import Limits
from domain.serving.requirements import ModelRequirements
from store.engine import Engine, of_tenant
from store.model_placements import StoredPlacement
from tests.activities.model_placing import ACME
from tests.api.grpc.door import GrpcDoor, asked, grpc_door, until
from tests.api.grpc.test_place import refused
from tests.estates import Clock
from wire.proto import control_pb2 as pb

SLEEP = "SELECT pg_sleep(60)"
STILL_AT_IT = """
    SELECT 1 FROM pg_stat_activity WHERE query = :sleep AND state = 'active' AND datname = current_database()
"""


class Obstacle:
    """A placing hand that waits, in Postgres or for the test, or breaks; `inner` does the work else."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.inner: Any = None
        self.gate = asyncio.Event()
        self.gate.set()
        self.sleeps = False
        self.breaks: Exception | None = None
        self.began = 0

    async def place(self, tenant_id: str, wanted: ModelRequirements, *, placement_id: UUID) -> Any:
        self.began += 1
        if self.breaks:
            raise self.breaks
        if self.sleeps:
            async with of_tenant(self.engine, tenant_id).begin() as connection:
                await connection.exec_driver_sql(SLEEP)
        await self.gate.wait()
        return await self.inner.place(tenant_id, wanted, placement_id=placement_id)

    async def renew(self, tenant_id: str, placement_id: UUID) -> StoredPlacement | None:
        return None

    async def release(self, tenant_id: str, placement_id: UUID) -> StoredPlacement | None:
        return None


class HinderedDoor:
    def __init__(self, door: GrpcDoor, obstacle: Obstacle) -> None:
        self.door = door
        self.obstacle = obstacle


@pytest_asyncio.fixture
async def hindered(engine: Engine, tenant_engine: Engine, clock: Clock) -> AsyncIterator[HinderedDoor]:
    """A door with two turns, a queue of four and something in the way."""
    obstacle = Obstacle(tenant_engine)
    limits = Limits(calls_at_once=2, calls_waiting=4)
    async with grpc_door(engine, tenant_engine, clock, limits=limits, placing=obstacle) as door:
        obstacle.inner = door.serving.hand
        await door.serving.pool()
        yield HinderedDoor(door, obstacle)
        obstacle.gate.set()


async def test_a_deadline_ends_the_work_in_postgres_too(hindered: HinderedDoor) -> None:
    hindered.obstacle.sleeps = True
    door = hindered.door
    await refused(
        door.calls.Place(asked(), metadata=door.signed(), timeout=0.5), StatusCode.DEADLINE_EXCEEDED
    )

    async def nothing_sleeps() -> bool:
        return not await door.serving.run(STILL_AT_IT, sleep=SLEEP)

    await until(nothing_sleeps)
    hindered.obstacle.sleeps = False
    assert (await door.place()).outcome == pb.PLACEMENT_OUTCOME_PLACED


async def test_who_names_no_deadline_is_given_one(
    hindered: HinderedDoor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("api.grpc.calls.DEFAULT_SECONDS", 0.3)
    hindered.obstacle.sleeps = True
    text = await refused(
        hindered.door.calls.Place(asked(), metadata=hindered.door.signed()), StatusCode.DEADLINE_EXCEEDED
    )
    assert "nothing was kept" in text
    assert hindered.door.counted("Place", StatusCode.DEADLINE_EXCEEDED) == 1


async def test_a_far_deadline_is_cut(hindered: HinderedDoor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("api.grpc.calls.MOST_SECONDS", 0.3)
    hindered.obstacle.sleeps = True
    await refused(
        hindered.door.calls.Place(asked(), metadata=hindered.door.signed(), timeout=3600),
        StatusCode.DEADLINE_EXCEEDED,
    )


async def test_a_deadline_that_is_over_costs_no_work(
    hindered: HinderedDoor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("api.grpc.calls.Call.seconds_left", lambda call: 0.0)
    await refused(
        hindered.door.calls.Place(asked(), metadata=hindered.door.signed()), StatusCode.DEADLINE_EXCEEDED
    )
    assert hindered.obstacle.began == 0


async def test_a_deadline_runs_while_a_call_waits_for_its_turn(hindered: HinderedDoor) -> None:
    door, obstacle = hindered.door, hindered.obstacle
    obstacle.gate.clear()
    at_work = [asyncio.ensure_future(door.place()) for _ in range(2)]
    await began(obstacle, 2)
    late = door.calls.Place(asked(), metadata=door.signed(), timeout=0.3)
    await refused(late, StatusCode.DEADLINE_EXCEEDED)
    obstacle.gate.set()
    await asyncio.gather(*at_work)
    assert obstacle.began == 2


async def began(obstacle: Obstacle, count: int) -> None:
    async def enough() -> bool:
        return obstacle.began >= count

    await until(enough)


async def test_more_callers_than_are_let_in_are_refused_and_the_rest_is_served(
    hindered: HinderedDoor,
) -> None:
    door, obstacle = hindered.door, hindered.obstacle
    for _ in range(3):
        obstacle.gate.clear()
        calls = [
            door.calls.Place(asked(), metadata=door.signed("acme" if n % 2 else "globex"), timeout=20)
            for n in range(60)
        ]
        settled = [asyncio.ensure_future(ended(call)) for call in calls]
        first = [await one for one in islice(asyncio.as_completed(settled), 54)]
        assert set(first) == {StatusCode.RESOURCE_EXHAUSTED}
        obstacle.gate.set()
        codes = await asyncio.gather(*settled)
        assert codes.count(StatusCode.OK) == 6
        assert codes.count(StatusCode.RESOURCE_EXHAUSTED) == 54
        assert (await door.place()).outcome == pb.PLACEMENT_OUTCOME_PLACED
    await door.serving.memory_is_right()


async def ended(call: Any) -> StatusCode:
    code: StatusCode = await call.code()
    return code


async def test_nobody_is_asked_for_a_token_while_there_is_no_room(hindered: HinderedDoor) -> None:
    door, obstacle = hindered.door, hindered.obstacle
    unsigned = partial(door.calls.Place, asked(), timeout=20)
    await refused(unsigned(), StatusCode.UNAUTHENTICATED)
    obstacle.gate.clear()
    calls = [
        door.calls.Place(asked(), metadata=door.signed(tenant), timeout=20)
        for tenant in ("acme", "globex", "initech", "umbrella", "hooli", "stark")
    ]
    settled = [asyncio.ensure_future(ended(call)) for call in calls]

    async def full() -> bool:
        return await ended(unsigned()) is StatusCode.RESOURCE_EXHAUSTED

    await until(full)
    obstacle.gate.set()
    assert set(await asyncio.gather(*settled)) == {StatusCode.OK}
    await refused(unsigned(), StatusCode.UNAUTHENTICATED)


async def test_who_is_refused_is_told_when_to_come_again(hindered: HinderedDoor) -> None:
    door, obstacle = hindered.door, hindered.obstacle
    obstacle.gate.clear()
    calls = [door.calls.Place(asked(), metadata=door.signed(), timeout=20) for _ in range(10)]
    first = await next(asyncio.as_completed([refusal_of(call) for call in calls]))
    assert (first["retry-after"], first["grpc-retry-pushback-ms"]) == ("1", "1000")
    obstacle.gate.set()
    await asyncio.gather(*(ended(call) for call in calls))


async def refusal_of(call: Any) -> dict[str, Any]:
    return dict(await call.trailing_metadata() or ())


async def test_a_caller_that_gives_up_leaves_its_turn_to_others(hindered: HinderedDoor) -> None:
    door, obstacle = hindered.door, hindered.obstacle
    obstacle.gate.clear()
    calls = [door.calls.Place(asked(), metadata=door.signed(), timeout=20) for _ in range(4)]
    await began(obstacle, 2)
    for call in calls:
        call.cancel()
    await asyncio.gather(*(ended(call) for call in calls))
    obstacle.gate.set()
    answers = await asyncio.gather(*(door.place() for _ in range(2)))
    assert {one.outcome for one in answers} == {pb.PLACEMENT_OUTCOME_PLACED}


async def test_an_error_that_nobody_foresaw_tells_nothing_but_a_request_id(hindered: HinderedDoor) -> None:
    door = hindered.door
    hindered.obstacle.breaks = RuntimeError("the secret is 42")
    metadata = (*door.signed(), ("x-request-id", "router-7"))
    with capture_logs() as logs:
        call = door.calls.Place(asked(), metadata=metadata)
        text = await refused(call, StatusCode.INTERNAL)
    assert text == "the call failed; the service's log has it as request router-7"
    (line,) = [one for one in logs if one["event"] == "call_failed"]
    assert (line["request_id"], line["error"], line["log_level"]) == ("router-7", "RuntimeError", "error")
    assert any("place" in frame for frame in line["where"])
    assert "42" not in str(line)


async def test_every_answer_names_its_request(door: GrpcDoor) -> None:
    call = door.calls.Place(
        asked(), metadata=(*door.signed(), ("x-request-id", "a b\u00e9".encode("ascii", "ignore").decode()))
    )
    await call
    own = dict(await call.trailing_metadata() or ())["x-request-id"]
    assert len(str(own)) == 32
    call = door.calls.Place(asked(), metadata=(*door.signed(), ("x-request-id", "router-8")))
    await call
    assert dict(await call.trailing_metadata() or ())["x-request-id"] == "router-8"


async def test_a_database_that_is_away_is_told_as_such(hindered: HinderedDoor) -> None:
    hindered.obstacle.breaks = ConnectionRefusedError("127.0.0.1:5432")
    text = await refused(
        hindered.door.calls.Place(asked(), metadata=hindered.door.signed()), StatusCode.UNAVAILABLE
    )
    assert "5432" not in text


async def test_messages_that_are_too_large_are_refused(door: GrpcDoor) -> None:
    huge = asked(regions=["x" * 1000] * 1000)
    for compression in (grpc.Compression.NoCompression, grpc.Compression.Gzip):
        await refused(
            door.calls.Place(huge, metadata=door.signed(), compression=compression),
            StatusCode.RESOURCE_EXHAUSTED,
        )
    assert len((await door.place()).candidates) == 0


async def test_a_method_that_does_not_exist(door: GrpcDoor) -> None:
    unknown = door.channel.unary_unary(
        "/sco.compute.v1.ComputePools/Take", request_serializer=bytes, response_deserializer=bytes
    )
    await refused(unknown(b"", metadata=door.signed()), StatusCode.UNIMPLEMENTED)


async def test_calls_are_counted_and_timed(door: GrpcDoor) -> None:
    await door.place()
    assert door.counted("Place", StatusCode.OK) == 1
    seconds = door.registry.get_sample_value("sco_grpc_request_duration_seconds_count", {"method": "Place"})
    assert seconds == 1


async def test_a_tenant_is_named_in_the_log_and_a_token_never(door: GrpcDoor) -> None:
    signed = door.signed(ACME)
    with capture_logs() as logs:
        await refused(door.calls.Place(asked(vram_gb=0), metadata=signed), StatusCode.INVALID_ARGUMENT)
    (line,) = [one for one in logs if one["event"] == "call_failed"]
    assert (line["tenant"], line["code"], line["method"]) == (ACME, "INVALID_ARGUMENT", "Place")
    assert signed[0][1].split(".")[2] not in str(logs)
