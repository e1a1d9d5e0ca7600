"""Running the cloud: in a thread for tests, or as a process for the embedded stack."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

import orjson
import uvicorn

from lab.cloud.admin_client import AdminClient
from lab.cloud.cloud import Cloud
from lab.cloud.estate import REGIONS
from lab.cloud.identity import (
    APPLICATION_CREDENTIAL_ID,
    DOMAIN_ID,
    PROJECT_ID,
    PROJECT_NAME,
    USER_NAME,
    Secrets,
)
from lab.cloud.notifications import Herald
from lab.cloud.settings import CloudSettings
from lab.cloud.snapshot import load, save, write_private
from lab.cloud.web.app import build_app
from lab.cloud.web.wire import Wire
from lab.stack.ports import listen_on

if TYPE_CHECKING:
    from openstack.connection import Connection

T = TypeVar("T")
LOOPBACK = "127.0.0.1"
CREDENTIALS_FILE = "cloud.json"
START_SECONDS = 20.0
STOP_SECONDS = 5


@dataclass(frozen=True, slots=True)
class Credentials:
    """How the orchestrator signs in. Secrets stay out of `repr`."""

    auth_url: str
    username: str
    password: str
    project_name: str
    project_id: str
    domain_id: str
    application_credential_id: str
    application_credential_secret: str
    regions: tuple[str, ...]

    def __repr__(self) -> str:
        return f"Credentials(auth_url={self.auth_url!r}, username={self.username!r}, hidden)"

    def password_auth(self) -> dict[str, str]:
        """The `auth` of openstacksdk for signing in with the password."""
        return {
            "auth_url": self.auth_url,
            "username": self.username,
            "password": self.password,
            "project_name": self.project_name,
            "user_domain_id": self.domain_id,
            "project_domain_id": self.domain_id,
        }

    def application_credential_auth(self) -> dict[str, str]:
        """The `auth` for `auth_type="v3applicationcredential"`."""
        return {
            "auth_url": self.auth_url,
            "application_credential_id": self.application_credential_id,
            "application_credential_secret": self.application_credential_secret,
        }


class RunningCloud:
    """A cloud bound to a loopback port, ready to serve. The port is known before it serves."""

    def __init__(self, settings: CloudSettings) -> None:
        state = load(settings.data_dir) if settings.data_dir is not None else None
        self.cloud = Cloud(settings, state)
        self.herald = Herald(self.cloud, settings.nats_url) if settings.nats_url is not None else None
        self._socket = listen_on(settings.port)
        self.base_url = f"http://{LOOPBACK}:{self._socket.getsockname()[1]}"
        self.wire = Wire(build_app(self.cloud, self.base_url, self._remember, self.herald), self.cloud)
        config = uvicorn.Config(
            self.wire,
            log_level="warning",
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=STOP_SECONDS,
        )
        self.server = uvicorn.Server(config)
        if settings.data_dir is not None:
            content = credentials_file(self.base_url, self.cloud.secrets)
            write_private(settings.data_dir / CREDENTIALS_FILE, content)

    async def serve(self) -> None:
        telling = asyncio.create_task(self.herald.run()) if self.herald is not None else None
        try:
            await self.server.serve(sockets=[self._socket])
        finally:
            if telling is not None:
                telling.cancel()

    def _remember(self) -> None:
        if self.cloud.settings.data_dir is not None:
            save(self.cloud.state(), self.cloud.settings.data_dir)


class CloudHandle:
    """A cloud running in a thread of this process. Use it as a context manager, or `stop` it."""

    def __init__(self, running: RunningCloud) -> None:
        self._running = running
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._run, name="lab-cloud", daemon=True)
        self.base_url = running.base_url
        self.auth_url = f"{running.base_url}/identity/v3"
        self.credentials = credentials(running.base_url, running.cloud.secrets)
        self.admin = AdminClient(running.base_url, running.cloud.secrets.admin_token)

    @classmethod
    def start_in_thread(cls, settings: CloudSettings | None = None) -> CloudHandle:
        """Start a cloud and wait until it serves; RuntimeError when it does not come up."""
        handle = cls(RunningCloud(settings or CloudSettings()))
        handle._thread.start()
        deadline = time.monotonic() + START_SECONDS
        while not handle._running.server.started:
            if not handle._thread.is_alive() or time.monotonic() > deadline:
                raise RuntimeError(f"the cloud at {handle.base_url} did not start")
            time.sleep(0.005)
        return handle

    def connect(self, region: str = REGIONS[0], **options: Any) -> Connection:
        """An openstacksdk connection to one region, signed in with the password."""
        import openstack  # noqa: PLC0415 - loading the SDK takes longer than starting the cloud

        return openstack.connect(
            load_yaml_config=False,
            load_envvars=False,
            auth=self.credentials.password_auth(),
            region_name=region,
            **options,
        )

    @property
    def wire(self) -> Wire:
        """What may be armed against requests on their way; change it inside `call`."""
        return self._running.wire

    def call(self, act: Callable[[Cloud], T]) -> T:
        """Run `act` on the cloud between two requests; for looking inside, not for the product."""
        assert self._loop is not None, "the cloud is not running"

        async def run() -> T:
            self._running.cloud.settle()
            return act(self._running.cloud)

        return asyncio.run_coroutine_threadsafe(run(), self._loop).result(START_SECONDS)

    def stop(self) -> None:
        """Stop serving, save the state when there is a data folder, and wait for the thread."""
        self.admin.close()
        self._running.server.should_exit = True
        self._thread.join(START_SECONDS)

    def __enter__(self) -> CloudHandle:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _run(self) -> None:
        async def main() -> None:
            self._loop = asyncio.get_running_loop()
            await self._running.serve()

        asyncio.run(main())


def credentials(base_url: str, own: Secrets) -> Credentials:
    return Credentials(
        auth_url=f"{base_url}/identity/v3",
        username=USER_NAME,
        password=own.password,
        project_name=PROJECT_NAME,
        project_id=PROJECT_ID,
        domain_id=DOMAIN_ID,
        application_credential_id=APPLICATION_CREDENTIAL_ID,
        application_credential_secret=own.application_credential_secret,
        regions=REGIONS,
    )


def credentials_file(base_url: str, own: Secrets) -> bytes:
    """`cloud.json`: what openstacksdk reads as a clouds file, and the address of the admin API."""
    known = credentials(base_url, own)
    content = {
        "base_url": base_url,
        "admin": {"url": f"{base_url}/admin", "token": own.admin_token},
        "clouds": {
            "sco": {"auth": known.password_auth(), "regions": list(REGIONS)},
            "sco-app": {
                "auth_type": "v3applicationcredential",
                "auth": known.application_credential_auth(),
                "regions": list(REGIONS),
            },
        },
    }
    return orjson.dumps(content, option=orjson.OPT_INDENT_2)
