"""A gRPC door for each test, over a database of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest_asyncio

from store.engine import Engine
from tests.api.grpc.door import GrpcDoor, grpc_door
from tests.estates import Clock


@pytest_asyncio.fixture
async def door(engine: Engine, tenant_engine: Engine, clock: Clock) -> AsyncIterator[GrpcDoor]:
    """A door with no pool behind it."""
    async with grpc_door(engine, tenant_engine, clock) as own:
        yield own
