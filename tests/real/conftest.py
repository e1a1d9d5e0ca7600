"""A real browser, its windows, and the real application for it to visit."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Generator
from dataclasses import dataclass
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Browser, async_playwright, expect

from tests.api.door import Door, door_on
from tests.api.serving import served
from tests.api.sign_in.sessions import sign_in_over
from tests.estates import Estate
from tests.real.visiting import (
    ARGUMENTS,
    PATIENCE_SECONDS,
    SCREENSHOTS,
    Visitor,
    browser_path,
    open_window,
)

Visit = Callable[..., Awaitable[Visitor]]
FAILED = pytest.StashKey[bool]()


@dataclass(frozen=True)
class Site:
    """The application at an address, and its front door for what a browser does not do."""

    address: str
    door: Door


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Remember that a test failed, for the picture of what it saw last."""
    report = yield
    if report.when == "call":
        item.stash[FAILED] = report.failed
    return report


@pytest_asyncio.fixture(scope="session")
async def browser() -> AsyncIterator[Browser]:
    expect.set_options(timeout=PATIENCE_SECONDS * 1000)
    async with async_playwright() as playwright:
        running = await playwright.chromium.launch(executable_path=browser_path(), args=ARGUMENTS)
        yield running
        await running.close()


@pytest_asyncio.fixture
async def visit(browser: Browser, request: pytest.FixtureRequest) -> AsyncIterator[Visit]:
    """Opens windows. In the end no page in them may have complained."""
    visitors: list[Visitor] = []

    async def new(address: str, **options: Any) -> Visitor:
        visitors.append(await open_window(browser, address, **options))
        return visitors[-1]

    yield new
    complaints = [told for visitor in visitors for told in visitor.complaints]
    wanted = bool(complaints) or request.node.stash.get(FAILED, True)
    name = re.sub(r"[^\w-]+", "_", request.node.name)
    for number, visitor in enumerate(visitors, start=1):
        await visitor.close(SCREENSHOTS / f"{name}-{number}.png" if wanted else None)
    assert complaints == []


@pytest_asyncio.fixture(scope="module")
async def site(shared_estate: Estate) -> AsyncIterator[Site]:
    """One region of pools and orders-daily on running instances, for tests that only read."""
    async with door_on(shared_estate, sign_in_over(shared_estate.clock)) as door:
        await door.open_estate()
        await door.placed()
        await door.placer.run()
        async with served(door.app) as address:
            yield Site(address, door)


@pytest_asyncio.fixture
async def own_site(estate: Estate) -> AsyncIterator[Site]:
    """The same pools without a claim, for one test that writes."""
    async with door_on(estate, sign_in_over(estate.clock)) as door:
        await door.open_estate()
        async with served(door.app) as address:
            yield Site(address, door)
