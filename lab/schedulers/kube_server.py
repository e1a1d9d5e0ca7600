"""Runs the stand-in for a Kubernetes API on a loopback port, in the event loop of its user."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Generator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import uvicorn

from lab.schedulers.kube import build_app
from lab.schedulers.kube_cluster import Cluster
from lab.stack.ports import LOOPBACK, listen_on

START_TRIES = 4000
TRY_SECONDS = 0.005
# Watches never end by themselves.
STOP_SECONDS = 0


class _Quiet(uvicorn.Server):
    """Leaves the signals of the process to whoever uses the stand-in."""

    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield


@asynccontextmanager
async def serve(cluster: Cluster, certificate: Path | None = None) -> AsyncIterator[str]:
    """The address of an API for this cluster, until the block ends.

    Over TLS with a `certificate`: a file that holds it and its key.
    """
    listening = listen_on(0)
    config = uvicorn.Config(
        build_app(cluster),
        log_level="critical",
        access_log=False,
        timeout_graceful_shutdown=STOP_SECONDS,
        ssl_certfile=certificate,
        ssl_keyfile=certificate,
    )
    server = _Quiet(config)
    running = asyncio.create_task(server.serve(sockets=[listening]))
    try:
        await _started(server)
        yield f"{'https' if certificate else 'http'}://{LOOPBACK}:{listening.getsockname()[1]}"
    finally:
        server.should_exit = True
        await running
        await cluster.close()


async def _started(server: uvicorn.Server) -> None:
    for _ in range(START_TRIES):
        if server.started:
            return
        await asyncio.sleep(TRY_SECONDS)
    raise RuntimeError("the stand-in for the Kubernetes API did not start")
