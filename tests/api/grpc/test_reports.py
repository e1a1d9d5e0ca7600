"""Streams of reports: what they write, what they refuse, and who ends them."""

from __future__ import annotations

import asyncio
from decimal import Decimal
from typing import Any

import grpc
import pytest
from google.protobuf.timestamp_pb2 import Timestamp
from grpc import StatusCode

from activities.reporting import Accepted, report_utilization
from api.grpc.server import Limits
from store.engine import Engine
from tests.activities.model_placing import ACME, MODEL, PLATFORM
from tests.api.grpc.door import GrpcDoor, asked, grpc_door, iter_messages, report, stamp, until
from tests.api.grpc.test_place import refused
from tests.estates import Clock
from wire.proto import control_pb2 as pb

READ = "SELECT utilization, queue_depth, reported_at FROM pool_capacity WHERE tenant_id = :t AND pool_id = :p"


async def written(door: GrpcDoor, pool_id: str = "gpu-1", tenant_id: str = ACME) -> tuple[Any, ...]:
    (row,) = await door.serving.run(READ, t=tenant_id, p=pool_id)
    return tuple(row)


def reasons(answer: pb.ReportUtilizationResponse) -> dict[str, int]:
    return {one.reason: one.count for one in answer.reasons}


async def test_reports_are_written_and_counted(door: GrpcDoor) -> None:
    for pool_id in ("gpu-1", "gpu-2"):
        await door.serving.pool(pool_id, reported=False)
    answer = await door.report(
        [report("gpu-1", "0.25", queue_depth=3), report("gpu-2", "1"), report("gpu-1", "0.75")]
    )
    assert (answer.accepted, answer.refused, answer.ended_by) == (3, 0, pb.STREAM_END_CALLER)
    assert await written(door) == (Decimal("0.25"), 3, door.clock())
    assert await written(door, "gpu-2") == (Decimal(1), 0, door.clock())


async def test_a_pool_takes_placements_from_its_first_report_on(door: GrpcDoor) -> None:
    await door.serving.pool(reported=False)
    assert (await door.place()).outcome == pb.PLACEMENT_OUTCOME_NO_CAPACITY
    await door.report([report()])
    assert (await door.place()).outcome == pb.PLACEMENT_OUTCOME_PLACED


async def test_listed_models_are_recorded(door: GrpcDoor) -> None:
    await door.serving.pool()
    listed = pb.LoadedModel(model=MODEL, vram_gb=70, last_used_at=stamp(door.clock, -60))
    door.clock.move(10)
    await door.report([report(models=[listed])])
    rows = await door.serving.run("SELECT model, vram_gb FROM cached_models")
    assert rows == [(MODEL, 70)]


@pytest.mark.parametrize(
    ("bad", "reason", "told"),
    [
        (report("gpu-9"), "unknown_pool", "gpu-9"),
        (report("GPU"), "invalid_argument", "pool_id is GPU"),
        (report(""), "invalid_argument", "pool_id is missing"),
        (report("a\x00b"), "invalid_argument", "pool_id"),
        (
            report(utilization="1.1"),
            "invalid_argument",
            "utilization is 1.1; allowed is",
        ),
        (report(utilization="NaN"), "invalid_argument", "utilization is 'NaN'"),
        (report(utilization=""), "invalid_argument", "utilization is ''"),
        (report(queue_depth=-1), "invalid_argument", "queue_depth is -1"),
        (report(models=[pb.LoadedModel(model="a b", vram_gb=1)]), "invalid_argument", "models.0.model"),
        (report(models=[pb.LoadedModel(model="a", vram_gb=0)]), "invalid_argument", "models.0.vram_gb is 0"),
        (report(models=[pb.LoadedModel(model="a", vram_gb=1)] * 2), "invalid_argument", "more than once"),
        (report(reported_at=Timestamp(seconds=2**60)), "invalid_argument", "reported_at"),
        (report(reported_at=Timestamp(seconds=5, nanos=-7)), "invalid_argument", "reported_at"),
        (report(reported_at=Timestamp(seconds=2**33)), "future", "ahead of our clock"),
    ],
    ids=str,
)
async def test_a_bad_report_ends_nothing_and_is_told(
    door: GrpcDoor, bad: pb.ReportUtilizationRequest, reason: str, told: str
) -> None:
    await door.serving.pool(reported=False)
    answer = await door.report([bad, report(), bad])
    assert (answer.accepted, answer.refused) == (1, 2)
    assert reasons(answer) == {reason: 2}
    assert told in answer.reasons[0].text
    assert (await written(door))[2] == door.clock()


async def test_bytes_that_are_no_report_end_nothing(door: GrpcDoor) -> None:
    await door.serving.pool(reported=False)
    raw = door.channel.stream_unary(
        "/sco.compute.v1.ComputePools/ReportUtilization",
        request_serializer=bytes,
        response_deserializer=pb.ReportUtilizationResponse.FromString,
    )
    messages = [b"\xff\xff", report().SerializeToString(), b"\x0a\x02\xff\xfe"]
    answer = await raw(iter_messages(messages), metadata=door.signed(), timeout=20)
    assert (answer.accepted, reasons(answer)) == (1, {"invalid_argument": 2})


async def test_another_tenants_pool_cannot_be_reported(door: GrpcDoor) -> None:
    await door.serving.pool("theirs", "globex", reported=False)
    await door.serving.pool("shared", PLATFORM, security_boundary="shared", reported=False)
    answer = await door.report([report("theirs"), report("shared"), report("nobodys")])
    assert reasons(answer) == {"unknown_pool": 3}
    assert await written(door, "theirs", "globex") == (Decimal(0), 0, None)
    assert await written(door, "shared", PLATFORM) == (Decimal(0), 0, None)


async def test_reports_of_many_streams_go_together(door: GrpcDoor, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []

    async def counted(engine: Engine, tenant_id: str, reports: Any, *given: Any, **named: Any) -> Accepted:
        sizes.append(len(reports))
        return await report_utilization(engine, tenant_id, reports, *given, **named)

    monkeypatch.setattr("api.grpc.reporting.report_utilization", counted)
    for number in range(20):
        await door.serving.pool(f"gpu-{number}", reported=False)
    answers = await asyncio.gather(*(door.report([report(f"gpu-{number}")]) for number in range(20)))
    assert sum(one.accepted for one in answers) == 20
    assert len(sizes) < 10


async def open_stream(door: GrpcDoor, **changed: Any) -> Any:
    """A stream with one report in it that stays open."""
    await door.serving.pool(reported=False)
    call = door.calls.ReportUtilization(metadata=door.signed(**changed))
    await call.write(report())

    async def arrived() -> bool:
        return (await written(door))[2] is not None

    await until(arrived)
    return call


async def test_reports_are_written_while_the_stream_is_open(door: GrpcDoor) -> None:
    call = await open_stream(door)
    door.clock.move(10)
    await call.write(report(utilization="0.9"))

    async def newer() -> bool:
        return bool((await written(door))[0] == Decimal("0.9"))

    await until(newer)
    await call.done_writing()
    assert (await call).accepted == 2


async def test_a_stream_ends_with_the_callers_token(door: GrpcDoor) -> None:
    call = await open_stream(door, exp=int(door.clock().timestamp()) + 100)
    door.clock.move(101)
    await call.write(report())
    answer = await call
    assert answer.ended_by == pb.STREAM_END_TOKEN_EXPIRED
    assert answer.accepted >= 1


async def test_a_silent_stream_is_ended(engine: Engine, tenant_engine: Engine, clock: Clock) -> None:
    limits = Limits(idle_seconds=0.4)
    async with grpc_door(engine, tenant_engine, clock, limits=limits) as door:
        answer = await (await open_stream(door))
    assert (answer.accepted, answer.ended_by) == (1, pb.STREAM_END_IDLE)


async def test_a_server_that_stops_answers_its_streams(
    engine: Engine, tenant_engine: Engine, clock: Clock
) -> None:
    async with grpc_door(engine, tenant_engine, clock) as door:
        call = await open_stream(door)
        await door.server.stop(10)
        answer = await call
    assert (answer.accepted, answer.ended_by) == (1, pb.STREAM_END_SERVER_STOPS)


async def test_a_caller_that_vanishes_ends_its_own_stream_only(door: GrpcDoor) -> None:
    vanishing = await open_stream(door)
    other = door.calls.ReportUtilization(metadata=door.signed())
    await other.write(report())
    vanishing.cancel()

    async def gone() -> bool:
        return door.counted("ReportUtilization", StatusCode.CANCELLED) == 1

    await until(gone)
    await other.write(report())
    await other.done_writing()
    assert (await other).accepted == 2


async def test_a_store_that_is_away_refuses_reports_and_ends_nothing(
    door: GrpcDoor, monkeypatch: pytest.MonkeyPatch
) -> None:
    call = await open_stream(door)

    async def away(*given: Any, **named: Any) -> None:
        raise ConnectionRefusedError

    with monkeypatch.context() as broken:
        broken.setattr("api.grpc.reporting.report_utilization", away)
        await call.write(report())

        async def told() -> bool:
            labels = {"reason": "unavailable"}
            return door.registry.get_sample_value("sco_grpc_reports_refused_total", labels) == 1

        await until(told)
    door.clock.move(5)
    await call.write(report(utilization="0.8"))
    await call.done_writing()
    answer = await call
    assert (answer.accepted, reasons(answer)) == (2, {"unavailable": 1})
    assert (await written(door))[0] == Decimal("0.8")


async def test_open_streams_are_bounded(engine: Engine, tenant_engine: Engine, clock: Clock) -> None:
    async with grpc_door(engine, tenant_engine, clock, limits=Limits(streams=2)) as door:
        first = await open_stream(door)
        second = door.calls.ReportUtilization(metadata=door.signed())
        assert "through one stream" in await refused(second, StatusCode.RESOURCE_EXHAUSTED)
        assert (await door.place(asked())).outcome == pb.PLACEMENT_OUTCOME_PLACED
        await first.done_writing()
        assert (await first).accepted == 1
        assert (await door.report([report()])).accepted == 1


async def test_a_reported_endpoint_keeps_the_callers_placements_away(door: GrpcDoor) -> None:
    await door.serving.pool("shared", PLATFORM, security_boundary="shared")
    down = pb.ReportEndpointRequest(
        pool=pb.Pool(tenant_id=PLATFORM, pool_id="shared"), problem="connection refused\n\x00" + "x" * 999
    )
    options: dict[str, Any] = {"metadata": door.signed(), "timeout": 20}
    first = await door.calls.ReportEndpoint(down, **options)
    again = await door.calls.ReportEndpoint(down, **options)
    assert (first.kept, again.kept) == (True, False)
    assert first.avoided_seconds == door.serving.policy.health.report_hold_seconds
    (row,) = await door.serving.run(
        "SELECT tenant_id, pool_tenant_id, pool_id, problem FROM endpoint_reports"
    )
    assert row[:3] == (ACME, PLATFORM, "shared")
    assert row[3].startswith("connection refused\\u000a\\u0000xxx")


async def test_only_a_pool_that_a_tenant_sees_can_be_reported_down(door: GrpcDoor) -> None:
    await door.serving.pool("theirs", "globex")
    await door.serving.pool("hidden", PLATFORM, security_boundary="private")
    told = set()
    for tenant_id, pool_id in (("globex", "theirs"), (PLATFORM, "hidden"), ("globex", "nothing")):
        down = pb.ReportEndpointRequest(pool=pb.Pool(tenant_id=tenant_id, pool_id=pool_id), problem="down")
        text = await refused(door.calls.ReportEndpoint(down, metadata=door.signed()), StatusCode.NOT_FOUND)
        told.add(text.replace(pool_id, "").replace(tenant_id, ""))
    assert len(told) == 1
    assert await door.serving.run("SELECT 1 FROM endpoint_reports") == []


@pytest.mark.parametrize(
    ("pool", "problem"),
    [
        (pb.Pool(pool_id=""), "down"),
        (pb.Pool(pool_id="A"), "down"),
        (pb.Pool(tenant_id="\x00", pool_id="gpu-1"), "down"),
        (pb.Pool(pool_id="gpu-1"), " \n"),
    ],
    ids=str,
)
async def test_a_wrong_report_of_an_endpoint_is_told(door: GrpcDoor, pool: pb.Pool, problem: str) -> None:
    call = door.calls.ReportEndpoint(
        pb.ReportEndpointRequest(pool=pool, problem=problem), metadata=door.signed()
    )
    assert "allowed" in await refused(call, StatusCode.INVALID_ARGUMENT)


async def test_a_stream_may_have_a_deadline(door: GrpcDoor) -> None:
    await door.serving.pool(reported=False)
    call = door.calls.ReportUtilization(metadata=door.signed(), timeout=3)
    await call.write(report())
    with pytest.raises(grpc.aio.AioRpcError) as error:
        await call
    assert error.value.code() is StatusCode.DEADLINE_EXCEEDED
    assert (await written(door))[2] == door.clock()
