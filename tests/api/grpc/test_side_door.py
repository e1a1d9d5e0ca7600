"""Health and reflection: what callers without a token learn, and how little they can take up."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest
import pytest_asyncio
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from grpc import StatusCode
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from sqlalchemy.exc import OperationalError

from api.grpc.health import Health
from api.grpc.server import SERVICE, Limits
from store.engine import Engine
from store.roles import TENANT_ROLE, require_role
from tests.api.grpc.door import GrpcDoor, grpc_door, iter_messages, tenant_login
from tests.api.grpc.test_place import refused
from tests.database import opened
from tests.estates import Clock

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


def health_of(door: GrpcDoor) -> Any:
    return health_pb2_grpc.HealthStub(door.channel)


async def check(door: GrpcDoor, service: str = "") -> int:
    answer = await health_of(door).Check(health_pb2.HealthCheckRequest(service=service), timeout=20)
    return int(answer.status)


@pytest_asyncio.fixture
async def login(dsn: str) -> AsyncIterator[Engine]:
    """An engine that logs in as a plain member of the tenants' role, as the process does."""
    with tenant_login(dsn) as own:
        async with opened(own, role=TENANT_ROLE) as engine:
            yield engine


async def test_it_serves_when_postgres_answers_as_the_right_role(
    engine: Engine, login: Engine, clock: Clock
) -> None:
    async with grpc_door(engine, login, clock) as door:
        for service in ("", SERVICE):
            assert await check(door, service) == SERVING
        await refused(
            health_of(door).Check(health_pb2.HealthCheckRequest(service="another")), StatusCode.NOT_FOUND
        )


async def test_it_does_not_serve_as_a_role_that_sees_everybodys_rows(door: GrpcDoor) -> None:
    """The engine of this door logs in as the superuser."""
    assert await check(door) == NOT_SERVING


async def test_watchers_are_told_when_postgres_goes_and_comes(
    engine: Engine, login: Engine, clock: Clock
) -> None:
    async with grpc_door(engine, login, clock) as door:
        health = door.server.health
        watch = health_of(door).Watch(health_pb2.HealthCheckRequest(service=SERVICE), timeout=20)
        assert (await watch.read()).status == SERVING

        async def away() -> None:
            raise OperationalError("SELECT 1", {}, ConnectionRefusedError())

        health._look = away
        await health.look()
        assert (await watch.read()).status == NOT_SERVING
        health._look = lambda: require_role(login, TENANT_ROLE)
        await health.look()
        assert (await watch.read()).status == SERVING
        await health.stop()
        assert (await watch.read()).status == NOT_SERVING
        watch.cancel()


async def test_a_look_that_hangs_is_no_health(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("api.grpc.health.LOOK_SECONDS", 0.05)
    health = Health(asyncio.Event().wait, (SERVICE,))  # type: ignore[arg-type]
    await health.look()
    request = health_pb2.HealthCheckRequest()
    assert (await health.servicer.Check(request, None)).status == NOT_SERVING


async def reflected(door: GrpcDoor, **asked: Any) -> Any:
    stub: Any = reflection_pb2_grpc.ServerReflectionStub(door.channel)
    request = reflection_pb2.ServerReflectionRequest(**asked)
    async for answer in stub.ServerReflectionInfo(iter_messages([request]), timeout=20):
        return answer
    raise AssertionError("no answer")


async def test_the_service_describes_itself(door: GrpcDoor) -> None:
    listed = await reflected(door, list_services="")
    assert {one.name for one in listed.list_services_response.service} == {
        SERVICE,
        "grpc.health.v1.Health",
        "grpc.reflection.v1alpha.ServerReflection",
    }
    found = await reflected(door, file_containing_symbol=SERVICE)
    described = FileDescriptorProto.FromString(found.file_descriptor_response.file_descriptor_proto[0])
    (service,) = described.service
    assert {one.name for one in service.method} == {
        "Place",
        "Renew",
        "Release",
        "ReportEndpoint",
        "ReportUtilization",
    }


async def test_callers_without_a_token_take_up_little(
    engine: Engine, tenant_engine: Engine, clock: Clock
) -> None:
    async with grpc_door(engine, tenant_engine, clock, limits=Limits(side_calls=4)) as door:
        watches = [health_of(door).Watch(health_pb2.HealthCheckRequest()) for _ in range(2)]
        for watch in watches:
            await watch.read()
        late = health_of(door).Watch(health_pb2.HealthCheckRequest())
        with pytest.raises(grpc.aio.AioRpcError) as error:
            async for _ in late:
                pass
        assert error.value.code() is StatusCode.RESOURCE_EXHAUSTED
        await door.place()
        for watch in watches:
            watch.cancel()
