"""Running a model server: in a thread for tests, or as a process for the laboratory."""

from __future__ import annotations

import asyncio
import ssl
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, TypeVar

import uvicorn

from lab.models.memory import Memory, ModelSettings
from lab.models.web import build_app
from lab.stack.ports import listen_on

T = TypeVar("T")
LOOPBACK = "127.0.0.1"
START_SECONDS = 20.0
STOP_SECONDS = 1


class Certificate(NamedTuple):
    """Files with a server's certificate and its key."""

    certificate: Path
    key: Path


class RunningModels:
    """A model server bound to a loopback port, which is known before it serves."""

    def __init__(self, settings: ModelSettings, certificate: Certificate | None = None) -> None:
        self.memory = Memory(settings)
        self._socket = listen_on(settings.port)
        self.port: int = self._socket.getsockname()[1]
        self.base_url = f"{'http' if certificate is None else 'https'}://{LOOPBACK}:{self.port}"
        config = uvicorn.Config(
            build_app(self.memory),
            log_level="warning",
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=STOP_SECONDS,
            ssl_certfile=None if certificate is None else certificate.certificate,
            ssl_keyfile=None if certificate is None else certificate.key,
            ssl_version=ssl.PROTOCOL_TLS_SERVER,
        )
        self.server = uvicorn.Server(config)

    async def serve(self) -> None:
        await self.server.serve(sockets=[self._socket])


class ModelsHandle:
    """A model server in a thread of this process. Use it as a context manager, or `stop` it."""

    def __init__(self, settings: ModelSettings, certificate: Certificate | None = None) -> None:
        self._running = RunningModels(settings, certificate)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._run, name="lab-models", daemon=True)
        self.port = self._running.port
        self.base_url = self._running.base_url

    def start(self) -> ModelsHandle:
        """Serve; RuntimeError when that does not begin."""
        self._thread.start()
        deadline = time.monotonic() + START_SECONDS
        while not self._running.server.started:
            if not self._thread.is_alive() or time.monotonic() > deadline:
                raise RuntimeError(f"the model server at {self.base_url} did not start")
            time.sleep(0.005)
        return self

    def call(self, act: Callable[[Memory], T]) -> T:
        """Run `act` on the memory between two requests."""
        assert self._loop is not None, "the model server is not running"

        async def run() -> T:
            return act(self._running.memory)

        return asyncio.run_coroutine_threadsafe(run(), self._loop).result(START_SECONDS)

    def stop(self) -> None:
        self._running.server.should_exit = True
        self._thread.join(START_SECONDS)

    def __enter__(self) -> ModelsHandle:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _run(self) -> None:
        async def main() -> None:
            self._loop = asyncio.get_running_loop()
            await self._running.serve()

        asyncio.run(main())
