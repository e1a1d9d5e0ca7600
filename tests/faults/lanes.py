"""One lane of the matrix for all tests of a module."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest_asyncio

from lab.chaos.lane import Lane


@pytest_asyncio.fixture(scope="module")
async def lane(shared_dsn: str) -> AsyncIterator[Lane]:
    """A cloud and the module's database."""
    own = await Lane.open(shared_dsn)
    try:
        yield own
    finally:
        await own.close()
