"""A gRPC door for each test, over a database of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio

from lab.issuer import IssuerHandle
from store.engine import Engine
from tests.api.grpc.door import GrpcDoor, grpc_door, tenant_login
from tests.estates import Clock


@pytest_asyncio.fixture
async def door(engine: Engine, tenant_engine: Engine, clock: Clock) -> AsyncIterator[GrpcDoor]:
    """A door with no pool behind it."""
    async with grpc_door(engine, tenant_engine, clock) as own:
        yield own


@pytest.fixture
def issuer() -> Iterator[IssuerHandle]:
    """An issuer whose keys a process can read."""
    with IssuerHandle.start_in_thread() as running:
        yield running


@pytest.fixture
def own_dsn(dsn: str) -> Iterator[str]:
    """The address of the test's database for a login that a process may have."""
    with tenant_login(dsn) as own:
        yield own
