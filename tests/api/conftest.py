"""A front door for each test, over a database of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest_asyncio

from tests.api.door import Door, door_on
from tests.estates import Estate


@pytest_asyncio.fixture
async def door(estate: Estate) -> AsyncIterator[Door]:
    """A front door without any pool behind it."""
    async with door_on(estate) as own:
        yield own


@pytest_asyncio.fixture(scope="module")
async def read_door(shared_estate: Estate) -> AsyncIterator[Door]:
    """A front door with pools and a placed workload, for tests that only read."""
    async with door_on(shared_estate) as own:
        await own.open_estate()
        await own.placed()
        yield own
