"""Whether the service serves, as `grpc.health.v1` tells it: Postgres answers, and as the right role."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import structlog
from grpc_health.v1 import health_pb2
from grpc_health.v1.health import aio
from sqlalchemy.exc import SQLAlchemyError

from store.roles import WrongRole

LOOK_EVERY_SECONDS = 2.0
LOOK_SECONDS = 2.0
SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
# The empty name stands for the server as a whole.
WHOLE_SERVER = ""
log = structlog.get_logger("grpc")


class Health:
    """Looks every few seconds, with `look`: it returns where all is well and raises what is wrong."""

    def __init__(self, look: Callable[[], Awaitable[None]], services: Sequence[str]) -> None:
        self._look = look
        self._services = (WHOLE_SERVER, *services)
        self._told: int | None = None
        self.servicer = aio.HealthServicer()

    async def run(self) -> None:
        """Look until cancelled. Nothing serves before the first look."""
        while True:
            await self.look()
            await asyncio.sleep(LOOK_EVERY_SECONDS)

    async def look(self) -> None:
        """Look once and tell it."""
        try:
            async with asyncio.timeout(LOOK_SECONDS):
                await self._look()
        except (SQLAlchemyError, OSError, WrongRole) as error:
            await self._tell(NOT_SERVING, type(error).__name__)
        else:
            await self._tell(SERVING, None)

    async def stop(self) -> None:
        """Say for the rest of the process's time that nothing is served."""
        await self.servicer.enter_graceful_shutdown()

    async def _tell(
        self, status: health_pb2.HealthCheckResponse.ServingStatus.ValueType, why: str | None
    ) -> None:
        if status == self._told:
            return
        self._told = status
        for service in self._services:
            await self.servicer.set(service, status)
        log.log(30 if why else 20, "health", serving=why is None, error=why)
