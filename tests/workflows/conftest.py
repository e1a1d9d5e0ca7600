"""Stages: on the session's Temporal server, and on one that finds histories long early."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest_asyncio

from lab.stack import Stack
from tests.workflows.fake_hands import Stage, open_stage, own_server

LONG_HISTORY = {"limit.historyCount.suggestContinueAsNew": "20"}


@pytest_asyncio.fixture(scope="session")
async def stage(stack: Stack) -> Stage:
    return await open_stage(stack.temporal_address)


@pytest_asyncio.fixture(scope="module")
async def forgetful_stage() -> AsyncIterator[Stage]:
    """A stage whose server suggests to continue as new after twenty events."""
    async with own_server(LONG_HISTORY) as address:
        yield await open_stage(address)
