"""Stages for fake hands, and a world of real ones, on the session's stack."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from lab.stack import Stack
from tests.stack_fixtures import fresh_database
from tests.workflows.fake_hands import Stage, open_stage, own_server
from tests.world import World, open_world

LONG_HISTORY = {"limit.historyCount.suggestContinueAsNew": "20"}


@pytest_asyncio.fixture(scope="session")
async def stage(stack: Stack) -> Stage:
    return await open_stage(stack.temporal_address)


@pytest_asyncio.fixture(scope="module")
async def forgetful_stage() -> AsyncIterator[Stage]:
    """A stage whose server suggests to continue as new after twenty events."""
    async with own_server(LONG_HISTORY) as address:
        yield await open_stage(address)


@pytest_asyncio.fixture(scope="package")
async def world(
    stack: Stack, migrated: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[World]:
    """The product's workers, hands and workflows, with nothing faked but the cloud."""
    dsn = fresh_database(stack, "sco_world", template=migrated)
    async with open_world(stack, dsn, tmp_path_factory.mktemp("world")) as opened:
        yield opened
