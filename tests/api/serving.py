"""An application on a loopback port, served from the loop of the test that uses it."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import uvicorn
from starlette.types import ASGIApp
from structlog.testing import capture_logs

STOP_SECONDS = 30


@asynccontextmanager
async def served(app: ASGIApp) -> AsyncIterator[str]:
    """Serves on a free port until the end of the block; yields its address."""
    server = uvicorn.Server(uvicorn.Config(app, log_config=None, lifespan="off"))
    listening = socket.create_server(("127.0.0.1", 0))
    # Not set by asyncio on a socket that it is handed: the end of every answer would wait 40 ms.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    serving = asyncio.create_task(server.serve([listening]))
    try:
        with capture_logs():
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        server.should_exit = True
        async with asyncio.timeout(STOP_SECONDS):
            await serving
