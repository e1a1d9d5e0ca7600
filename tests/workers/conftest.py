"""The outbox pump and the intake of notifications on servers that a test may kill."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio

from lab.stack import Stack
from store.engine import Engine
from tests.estates import Estate
from tests.stack_fixtures import new_folder
from tests.workers.event_post import EventPost
from tests.workers.post_office import PostOffice, temporal
from workers import notification_intake, outbox_pump, stream_reading


@pytest.fixture(scope="module")
def own_stack() -> Iterator[Stack]:
    """Servers of one module, which its tests may kill and empty."""
    folder = new_folder()
    own = Stack.start(folder / "lab")
    yield own
    own.stop()
    shutil.rmtree(folder)


@pytest_asyncio.fixture
async def office(
    estate: Estate, own_stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[PostOffice]:
    """A stream and an intake that loses no time."""
    monkeypatch.setattr(stream_reading, "WAIT_SECONDS", 0.2)
    monkeypatch.setattr(stream_reading, "TROUBLE_SECONDS", 0.1)
    monkeypatch.setattr(notification_intake, "ACK_WAIT_SECONDS", 2.0)
    opened = PostOffice(estate, own_stack.nats_url, await temporal(own_stack.temporal_address))
    yield opened
    await opened.forget_stream()


@pytest_asyncio.fixture
async def post(
    service_engine: Engine, own_stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[EventPost]:
    """An outbox and pumps that lose no time, with the rights of a worker."""
    monkeypatch.setattr(outbox_pump, "IDLE_SECONDS", 0.02)
    monkeypatch.setattr(outbox_pump, "TROUBLE_SECONDS", 0.1)
    monkeypatch.setattr(outbox_pump, "PUBLISH_TIMEOUT_SECONDS", 1.0)
    opened = EventPost(service_engine, own_stack.nats_url)
    yield opened
    await opened.forget_stream()
