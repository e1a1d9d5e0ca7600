"""An estate to decide on, for tests that each bring a workload of their own."""

from __future__ import annotations

import pytest_asyncio

from tests.activities.deciding import Placer, halls
from tests.estates import Estate


@pytest_asyncio.fixture(scope="module")
async def opened(shared_estate: Estate) -> Placer:
    """Two regions of eight equal pools with room for everyone."""
    await shared_estate.open([*halls(), *halls(region="eu-west")], free=1000)
    return Placer(shared_estate)
