"""The server put together: what it serves, behind which door, and within which limits."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import grpc
from grpc.aio import Server
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection
from prometheus_client import CollectorRegistry

from api.grpc.admission import Admission, Places
from api.grpc.batches import Batches
from api.grpc.door import Door, Rooms
from api.grpc.health import Health
from api.grpc.observe import GrpcMetrics
from api.grpc.ports import Placing, Reporting, Verifier
from api.grpc.reports import IDLE_SECONDS, Streams
from api.grpc.service import NEEDS, ComputePools
from api.grpc.sign_in import Callers
from api.grpc.workroom import Work, here
from api.sign_in.guard import SignInMetrics
from domain.serving.utilization import UtilizationReport
from wire.proto import control_pb2 as pb
from wire.proto import control_pb2_grpc as rpc

KIB = 1024
SERVICE: str = pb.DESCRIPTOR.services_by_name["ComputePools"].full_name
# The largest message is a report with every model that a pool may list.
OPTIONS: tuple[tuple[str, Any], ...] = (
    ("grpc.max_receive_message_length", 256 * KIB),
    # A token may have 8 KiB.
    ("grpc.max_metadata_size", 16 * KIB),
    ("grpc.absolute_max_metadata_size", 20 * KIB),
    ("grpc.max_concurrent_streams", 1000),
    # Who has gone without a word is noticed, and who pings all the time is sent away.
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
    ("grpc.http2.max_ping_strikes", 2),
    ("grpc.max_connection_idle_ms", 600_000),
    # Two servers on one port would each get half of the calls without anybody having asked for it.
    ("grpc.so_reuseport", 0),
)


@dataclass(frozen=True, slots=True)
class Limits:
    """How much is taken on at once. Calls beyond `most_calls` are refused before anything of them is read."""

    calls_at_once: int = 8
    calls_waiting: int = 64
    streams: int = 1000
    side_calls: int = 32
    most_calls: int = 2000
    idle_seconds: float = IDLE_SECONDS


@dataclass
class GrpcServer:
    """One server: `start` binds it, `stop` ends it in good order. Both once."""

    placing: Placing
    reporting: Reporting
    verifier: Verifier
    health: Health
    registry: CollectorRegistry
    now: Callable[[], datetime]
    limits: Limits = field(default_factory=Limits)
    work: Work = here

    async def start(self, address: str, credentials: grpc.ServerCredentials | None) -> int:
        """Serve at `host:port`; returns the port. Raises RuntimeError where the address is taken."""
        metrics = GrpcMetrics(self.registry)
        self._stopping = asyncio.Event()
        batches: Batches[UtilizationReport] = Batches(
            lambda tenant_id, reports: self.work(self.reporting.utilization(tenant_id, reports))
        )
        streams = Streams(batches, metrics, self.now, self._stopping, self.limits.idle_seconds)
        self._server = self._made(metrics)
        # The door gives methods a `Call` where the library's servicers have a context.
        service: Any = ComputePools(self.placing, self.reporting, streams)
        rpc.add_ComputePoolsServicer_to_server(service, self._server)
        health_pb2_grpc.add_HealthServicer_to_server(self.health.servicer, self._server)
        names = (SERVICE, health_pb2.DESCRIPTOR.services_by_name["Health"].full_name, reflection.SERVICE_NAME)
        reflection.enable_server_reflection(names, self._server)
        if credentials is None:
            port = self._server.add_insecure_port(address)
        else:
            port = self._server.add_secure_port(address, credentials)
        await self.health.look()
        await self._server.start()
        return port

    async def stop(self, grace_seconds: float) -> None:
        """Take nothing new, answer the streams with what was accepted, and let calls end in this time."""
        await self.health.stop()
        self._stopping.set()
        await self._server.stop(grace_seconds)

    def _made(self, metrics: GrpcMetrics) -> Server:
        limits = self.limits
        rooms = Rooms(
            admission=Admission(limits.calls_at_once, limits.calls_waiting),
            streams=Places(limits.streams),
            side_calls=Places(limits.side_calls),
        )
        needs = {f"/{SERVICE}/{method}": need for method, need in NEEDS.items()}
        callers = Callers(self.verifier, SignInMetrics(self.registry))
        return grpc.aio.server(
            interceptors=(Door(needs, callers, rooms, metrics, self.work),),
            options=OPTIONS,
            maximum_concurrent_rpcs=limits.most_calls,
        )
