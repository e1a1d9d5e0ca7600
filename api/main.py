"""The front door as a process: `sco-api`, or `python -m api.main`."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, contextmanager, suppress
from datetime import UTC, datetime, timedelta

import structlog
import uvicorn
import uvloop
from prometheus_client import CollectorRegistry, start_http_server
from sqlalchemy.exc import SQLAlchemyError
from temporalio.client import Client
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.service import RPCError

from activities.bundle_key_choice import bundle_keys_of
from activities.logs import configure_logs
from activities.node_settings import read_node_settings
from activities.policy_file import PolicyFile
from activities.secrets.openbao import OpenBaoSecrets
from activities.secrets.settings import read_secrets_settings
from activities.starting import answer_help, refusals_told, settings_of
from api.app import create_app
from api.deps import Deps
from api.node_plane import NodePlane, node_plane
from api.overload import Limits
from api.settings import ApiSettings
from api.sign_in.keys import IssuerKeys
from api.sign_in.setup import SignIn, screens_of
from api.sign_in.tokens import TokenVerifier
from api.temporal_starter import TemporalStarter
from store.engine import Engine, create_engine
from store.roles import TENANT_ROLE, WrongRole, require_role

CHECK_TIMEOUT = timedelta(seconds=2)
# A last resort: uvicorn answers 503 to whoever comes above it. Idle connections count as well.
MAX_CONNECTIONS = 10_000
STOP_SECONDS = 20
ROLE_SECONDS = 2.0
LOOPBACK = "127.0.0.1"
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)
log = structlog.get_logger("api")


def main() -> None:
    """Serve until a signal. Ends with 2 and a sentence per setting that is wrong."""
    answer_help("sco-api", "The front door: REST and the screens.", ApiSettings)
    settings = settings_of("sco-api", ApiSettings)
    configure_logs()
    with refusals_told("sco-api"):
        uvloop.run(serve(settings))


async def serve(settings: ApiSettings) -> None:
    """Serve one process. It starts whether or not Temporal and the database are there yet."""
    client = await Client.connect(
        settings.temporal_address,
        namespace=settings.temporal_namespace,
        data_converter=pydantic_data_converter,
        lazy=True,
    )
    engine = create_engine(
        settings.database_url.get_secret_value(), pool_size=settings.database_connections, role=TENANT_ROLE
    )
    registry = CollectorRegistry()
    secrets = None
    if settings.secrets_file is not None:
        secrets = OpenBaoSecrets(read_secrets_settings(settings.secrets_file), now=_now)
    deps = Deps(
        engine=engine,
        starter=TemporalStarter(client),
        temporal_reachable=reachability(client),
        now=_now,
        policy_in_force=PolicyFile(settings.policy_file, registry),
        workflow_pages=settings.workflow_pages,
        secrets=secrets,
        nodes=_nodes(settings, engine),
    )
    config = uvicorn.Config(
        create_app(deps, sign_in_of(settings), registry, _limits(settings)),
        host=settings.api_host,
        port=settings.api_port,
        log_config=None,
        access_log=False,
        server_header=False,
        limit_concurrency=MAX_CONNECTIONS,
        timeout_graceful_shutdown=STOP_SECONDS,
        lifespan="on",
    )
    server = _Server(config)
    async with AsyncExitStack() as opened:
        opened.push_async_callback(engine.dispose)
        if secrets is not None:
            opened.callback(secrets.close)
        watching = asyncio.create_task(_watch_role(engine, server))
        opened.push_async_callback(_ended, watching)
        await asyncio.wait({watching}, timeout=ROLE_SECONDS)
        if watching.done():
            watching.result()
        if settings.api_metrics_port:
            exposed, _ = start_http_server(settings.api_metrics_port, LOOPBACK, registry)
            opened.callback(exposed.shutdown)
        log.info("serving", host=settings.api_host, port=settings.api_port)
        await server.serve()


async def _watch_role(engine: Engine, server: _Server) -> None:
    """Until it is known: a login that row-level security does not bind ends the process."""
    while True:
        try:
            await require_role(engine, TENANT_ROLE)
            return
        except (SQLAlchemyError, OSError):
            await asyncio.sleep(ROLE_SECONDS)
        except WrongRole:
            server.should_exit = True
            raise


async def _ended(watching: asyncio.Task[None]) -> None:
    watching.cancel()
    with suppress(asyncio.CancelledError):
        await watching


def sign_in_of(settings: ApiSettings) -> SignIn:
    """Who is let in. Keys are read when the first token comes, so that the issuer may start later."""
    trust = settings.trust
    keys = IssuerKeys(trust.issuer)
    screens = None
    if settings.oidc_client_id is not None and settings.session_key is not None:
        screens = screens_of(
            trust,
            keys,
            client_id=settings.oidc_client_id,
            client_secret=settings.oidc_client_secret,
            session_key=settings.session_key,
            now=_now,
        )
    return SignIn(TokenVerifier(trust, keys, _now), screens, settings.names)


def _nodes(settings: ApiSettings, engine: Engine) -> NodePlane | None:
    """What nodes are served with; None for a server without a node file."""
    if settings.node_file is None:
        return None
    told = read_node_settings(settings.node_file)
    return node_plane(engine, told, bundle_keys_of(told, now=_now), now=_now)


def _limits(settings: ApiSettings) -> Limits:
    """As many requests at once as there are connections, but one: for who asks whether we are ready."""
    return Limits(at_once=2 * settings.database_connections - 1)


def _now() -> datetime:
    return datetime.now(UTC)


class _Server(uvicorn.Server):
    """Ends in good order on a signal, and lets the process end with 0 after it."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        for number in STOP_SIGNALS:
            loop.add_signal_handler(number, self.handle_exit, number, None)
        try:
            yield
        finally:
            for number in STOP_SIGNALS:
                loop.remove_signal_handler(number)


def reachability(client: Client) -> Callable[[], Awaitable[bool]]:
    """Whether Temporal answers within `CHECK_TIMEOUT`."""

    async def reachable() -> bool:
        try:
            async with asyncio.timeout(CHECK_TIMEOUT.total_seconds()):
                return await client.service_client.check_health(timeout=CHECK_TIMEOUT)
        except (RPCError, RuntimeError, OSError, TimeoutError):
            return False

    return reachable


if __name__ == "__main__":
    main()
