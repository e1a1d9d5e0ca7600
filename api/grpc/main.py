"""The gRPC door as a process: `sco-grpc`, or `python -m api.grpc.main`.

It is a process of its own because somebody's request waits for a placement: the REST API may have megabytes
of a claim to read, and whatever else is in its process then waits for the interpreter.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from contextlib import AsyncExitStack, suppress
from datetime import UTC, datetime

import structlog
import uvloop
from prometheus_client import REGISTRY, start_http_server
from sqlalchemy.exc import SQLAlchemyError
from temporalio.client import Client
from temporalio.contrib.pydantic import pydantic_data_converter

from activities.logs import configure_logs
from activities.model_placement_start import ModelPlacementStarter
from activities.model_placing import ModelPlacing
from activities.policy_file import PolicyFile
from activities.secrets.openbao import OpenBaoSecrets
from activities.secrets.settings import read_secrets_settings
from activities.starting import answer_help, refusals_told, settings_of
from api.grpc.deadline import bound_statements
from api.grpc.health import Health
from api.grpc.reporting import StoreReporting
from api.grpc.server import SERVICE, GrpcServer
from api.grpc.settings import GrpcSettings, TlsRefused
from api.grpc.workroom import Workroom, workroom
from api.sign_in.setup import verifier_of
from store.engine import Engine, create_engine
from store.roles import TENANT_ROLE, require_role

LOOPBACK = "127.0.0.1"
STOP_SECONDS = 20.0
LOOK_AGAIN_SECONDS = 1.0
log = structlog.get_logger("grpc")


def main() -> int:
    """Entry of `sco-grpc`: 0 when told to stop, 1 without an address, 2 for wrong settings or login."""
    answer_help("sco-grpc", "The gRPC door: placements of models and reports of pools.", GrpcSettings)
    configure_logs()
    settings = settings_of("sco-grpc", GrpcSettings)
    try:
        with refusals_told("sco-grpc", {TlsRefused: "SCO_GRPC_TLS_CERT"}):
            uvloop.run(_until_signal(settings))
    except (OSError, RuntimeError) as error:
        print(f"sco-grpc: it cannot listen on {settings.address}: {error}", file=sys.stderr)
        return 1
    return 0


async def _until_signal(settings: GrpcSettings) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    await serve(settings, stop)


async def serve(settings: GrpcSettings, stop: asyncio.Event) -> None:
    """Serve from when Postgres answers until `stop` is set; calls at work then get a grace period."""
    credentials = settings.credentials()
    policy = PolicyFile(settings.policy_file, REGISTRY)
    engine = create_engine(
        settings.database_url.get_secret_value(), pool_size=settings.database_connections, role=TENANT_ROLE
    )
    bound_statements(engine)
    async with AsyncExitStack() as opened:
        room = await opened.enter_async_context(workroom())
        opened.push_async_callback(lambda: room(engine.dispose()))
        placing = ModelPlacing(
            engine,
            policy=policy,
            now=_now,
            secrets=_secrets(settings, opened),
            starter=ModelPlacementStarter(await room(_temporal(settings))),
        )
        opened.push_async_callback(lambda: room(placing.settle()))
        if settings.grpc_metrics_port:
            exposed, _ = start_http_server(settings.grpc_metrics_port, LOOPBACK, REGISTRY)
            opened.callback(exposed.shutdown)
        if not await _database_answers(engine, stop, room):
            return
        health = Health(lambda: room(require_role(engine, TENANT_ROLE)), (SERVICE,))
        server = GrpcServer(
            placing=placing,
            reporting=StoreReporting(engine, policy, _now),
            verifier=verifier_of(settings.trust, _now),
            health=health,
            registry=REGISTRY,
            now=_now,
            work=room,
        )
        port = await server.start(settings.address, credentials)
        log.info("serving", host=settings.grpc_host, port=port, tls=credentials is not None)
        looking = asyncio.create_task(health.run())
        await stop.wait()
        looking.cancel()
        await server.stop(STOP_SECONDS)
        log.info("stopped")


async def _temporal(settings: GrpcSettings) -> Client:
    """A client that connects when it is first needed: placements go on while Temporal is away."""
    return await Client.connect(
        settings.temporal_address,
        namespace=settings.temporal_namespace,
        data_converter=pydantic_data_converter,
        lazy=True,
    )


def _secrets(settings: GrpcSettings, opened: AsyncExitStack) -> OpenBaoSecrets | None:
    if settings.secrets_file is None:
        return None
    secrets = OpenBaoSecrets(read_secrets_settings(settings.secrets_file), now=_now)
    opened.callback(secrets.close)
    return secrets


async def _database_answers(engine: Engine, stop: asyncio.Event, room: Workroom) -> bool:
    """Wait for Postgres, however long it is away; False where the process is to stop before."""
    while not stop.is_set():
        try:
            await room(require_role(engine, TENANT_ROLE))
            return True
        except (SQLAlchemyError, OSError) as error:
            log.warning("database_unreachable", error=type(error).__name__)
        with suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), LOOK_AGAIN_SECONDS)
    return False


def _now() -> datetime:
    return datetime.now(UTC)


if __name__ == "__main__":
    sys.exit(main())
