"""A gRPC server on a TCP port over a test's own database, and callers with real tokens."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

import grpc
import psycopg
from google.protobuf.timestamp_pb2 import Timestamp
from grpc import StatusCode
from prometheus_client import CollectorRegistry

from api.grpc.deadline import bound_statements
from api.grpc.health import Health
from api.grpc.ports import Placing
from api.grpc.reporting import StoreReporting
from api.grpc.server import SERVICE, GrpcServer, Limits
from api.grpc.workroom import Work, here
from store.engine import Engine
from store.roles import TENANT_ROLE, require_role
from tests.activities.model_placing import ACME, MODEL, ServingEstate
from tests.api.sign_in.minting import claims, mint, verifier
from tests.estates import Clock
from wire.proto import control_pb2 as pb
from wire.proto.control_pb2_grpc import ComputePoolsStub

if TYPE_CHECKING:
    from wire.proto.control_pb2_grpc import ComputePoolsAsyncStub

STOP_SECONDS = 10.0
PATIENCE_SECONDS = 20.0
Metadata = tuple[tuple[str, str], ...]


@dataclass
class GrpcDoor:
    """The server, the pools behind it, and a channel to it."""

    server: GrpcServer
    serving: ServingEstate
    clock: Clock
    registry: CollectorRegistry
    channel: grpc.aio.Channel
    address: str

    @property
    def calls(self) -> ComputePoolsAsyncStub:
        return ComputePoolsStub(self.channel)

    def signed(self, tenant: str = ACME, **changed: Any) -> Metadata:
        """The metadata of a router of this tenant, unless something of its token is changed."""
        said = {"tenant_id": tenant, "scope": "factory.compute.read", "roles": ["Operator"]} | changed
        return (("authorization", f"Bearer {mint(claims(self.clock(), **said))}"),)

    async def place(
        self, request: pb.PlaceRequest | None = None, *, tenant: str = ACME, **options: Any
    ) -> pb.PlaceResponse:
        usual: dict[str, Any] = {"metadata": self.signed(tenant), "timeout": 20}
        return await self.calls.Place(request or asked(), **usual | options)

    async def report(
        self, reports: Sequence[pb.ReportUtilizationRequest], *, tenant: str = ACME
    ) -> pb.ReportUtilizationResponse:
        return await self.calls.ReportUtilization(
            iter_messages(reports), metadata=self.signed(tenant), timeout=20
        )

    def counted(self, method: str, code: StatusCode) -> float:
        labels = {"method": method, "code": code.name}
        return self.registry.get_sample_value("sco_grpc_requests_total", labels) or 0.0


async def until(holds: Callable[[], Awaitable[object]]) -> None:
    """Wait until something holds, for a bounded time."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            if await holds():
                return
            await asyncio.sleep(0.01)


async def iter_messages(messages: Sequence[Any]) -> AsyncIterator[Any]:
    for message in messages:
        yield message


def asked(**other: Any) -> pb.PlaceRequest:
    """A request that `ServingEstate.pool` fits, unless something of it is changed."""
    usual: dict[str, Any] = {
        "request_id": str(uuid4()),
        "deployment_id": "assistant",
        "model": MODEL,
        "vram_gb": 70,
        "boundary": pb.SECURITY_BOUNDARY_PRIVATE,
    }
    return pb.PlaceRequest(**usual | other)


def report(pool_id: str = "gpu-1", utilization: str = "0.5", **other: Any) -> pb.ReportUtilizationRequest:
    return pb.ReportUtilizationRequest(pool_id=pool_id, utilization=utilization, **other)


def stamp(clock: Clock, seconds: float = 0) -> Timestamp:
    made = Timestamp()
    made.FromMilliseconds(int((clock().timestamp() + seconds) * 1000))
    return made


@contextmanager
def tenant_login(dsn: str) -> Iterator[str]:
    """The address of the same database for a plain member of the tenants' role, as a process logs in."""
    with psycopg.connect(dsn, autocommit=True) as owner:
        owner.execute("DROP ROLE IF EXISTS grpc_test")
        owner.execute(f"CREATE ROLE grpc_test LOGIN PASSWORD 'grpc' IN ROLE {TENANT_ROLE}")
    parts = urlsplit(dsn)
    try:
        yield urlunsplit(parts._replace(netloc=f"grpc_test:grpc@{parts.hostname}:{parts.port}"))
    finally:
        with psycopg.connect(dsn, autocommit=True) as owner:
            owner.execute("DROP ROLE grpc_test")


@asynccontextmanager
async def grpc_door(
    owner: Engine,
    engine: Engine,
    clock: Clock,
    *,
    limits: Limits | None = None,
    placing: Placing | None = None,
    work: Work = here,
) -> AsyncIterator[GrpcDoor]:
    bound_statements(engine)
    serving = ServingEstate(owner, engine, clock)
    registry = CollectorRegistry()
    server = GrpcServer(
        placing=placing or serving.hand,
        reporting=StoreReporting(engine, lambda: serving.policy, clock),
        verifier=verifier(clock),
        health=Health(lambda: require_role(engine, TENANT_ROLE), (SERVICE,)),
        registry=registry,
        now=clock,
        limits=limits or Limits(),
        work=work,
    )
    port = await server.start("127.0.0.1:0", None)
    address = f"127.0.0.1:{port}"
    try:
        async with grpc.aio.insecure_channel(address) as channel:
            yield GrpcDoor(server, serving, clock, registry, channel, address)
    finally:
        await server.stop(STOP_SECONDS)
