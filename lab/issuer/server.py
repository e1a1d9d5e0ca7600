"""Running the issuer: as a process beside a laboratory, or in a thread of a test."""

from __future__ import annotations

import asyncio
import logging
import signal
import threading
import time
from ipaddress import ip_address
from pathlib import Path
from types import TracebackType

import uvicorn

from lab.issuer.app import WARNING, build_app
from lab.issuer.issuer import AUDIENCE, Issuer
from lab.stack.ports import listen_on

LOOPBACK = "127.0.0.1"
START_SECONDS = 20.0
STOP_SECONDS = 5
log = logging.getLogger("lab.issuer")


class RunningIssuer:
    """An issuer bound to a loopback port, ready to serve; ValueError for any other address."""

    def __init__(
        self, port: int, data_dir: Path | None = None, *, host: str = LOOPBACK, audience: str = AUDIENCE
    ) -> None:
        if not ip_address(host).is_loopback:
            raise ValueError(
                f"{host} is no loopback address: whoever reaches this issuer can be anybody, so it serves"
                f" this machine alone; use {LOOPBACK}"
            )
        if data_dir is not None:
            data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._socket = listen_on(port, host)
        url = f"http://{host}:{self._socket.getsockname()[1]}"
        self.issuer = Issuer(url, data_dir, audience=audience)
        config = uvicorn.Config(
            build_app(self.issuer),
            log_level="warning",
            access_log=False,
            server_header=False,
            lifespan="off",
            timeout_graceful_shutdown=STOP_SECONDS,
        )
        self.server = uvicorn.Server(config)

    async def serve(self) -> None:
        """Serve until told to stop. SIGHUP rotates the keys where the loop may have signal handlers."""
        log.warning("%s %s", WARNING, self.issuer.url)
        if threading.current_thread() is threading.main_thread():
            asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, self.issuer.keyring.rotate)
        await self.server.serve(sockets=[self._socket])


class IssuerHandle:
    """An issuer in a thread of this process. Use it as a context manager, or `stop` it."""

    def __init__(self, running: RunningIssuer) -> None:
        self._running = running
        self._thread = threading.Thread(
            target=lambda: asyncio.run(running.serve()), name="lab-issuer", daemon=True
        )
        self.issuer = running.issuer
        self.url = running.issuer.url

    @classmethod
    def start_in_thread(cls, data_dir: Path | None = None, *, port: int = 0) -> IssuerHandle:
        """Start an issuer and wait until it serves; RuntimeError when it does not come up."""
        handle = cls(RunningIssuer(port, data_dir))
        handle._thread.start()
        deadline = time.monotonic() + START_SECONDS
        while not handle._running.server.started:
            if not handle._thread.is_alive() or time.monotonic() > deadline:
                raise RuntimeError(f"the issuer at {handle.url} did not start")
            time.sleep(0.005)
        return handle

    def stop(self) -> None:
        self._running.server.should_exit = True
        self._thread.join(START_SECONDS)

    def __enter__(self) -> IssuerHandle:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
