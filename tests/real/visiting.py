"""A person in front of a real browser, who notices what a page must never do."""

from __future__ import annotations

import asyncio
import shutil
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from playwright.async_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Dialog,
    Error,
    Locator,
    Page,
    Request,
)

from tests.api.sign_in.sessions import COOKIE, session_until

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    # Whatever a page or the browser asks for elsewhere is not even looked up.
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
)
DESKTOP: dict[str, Any] = {"viewport": {"width": 1280, "height": 900}}
PHONE: dict[str, Any] = {"viewport": {"width": 390, "height": 844}, "is_mobile": True, "has_touch": True}
PATIENCE_SECONDS = 15
LOOK_AGAIN_SECONDS = 0.3
MAX_PRESSES = 40
FAR_AWAY = datetime(2100, 1, 1, tzinfo=UTC)
SCREENSHOTS = Path(__file__).parents[2] / "build" / "screenshots"


def browser_path() -> str:
    """The browser that is installed; without one the tests fail, since they cannot tell anything."""
    found = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    assert found, f"none of {', '.join(BROWSERS)} is installed: run tests/real/install.sh as root"
    return found


class Visitor:
    """One window on one site. `complaints` holds errors, dialogs, and requests to hosts but `hosts`."""

    def __init__(self, context: BrowserContext, page: Page, address: str, hosts: frozenset[str]) -> None:
        self.page = page
        self.complaints: list[str] = []
        self._context = context
        self._address = address
        self._hosts = hosts
        self._refused: set[str] = set()
        page.on("console", self._hear)
        page.on("pageerror", self._fail)
        page.on("request", self._see_request)
        page.on("dialog", self._close)

    async def open(self, path: str, status: int = 200) -> None:
        """Go to a page, which is answered with `status`."""
        url = self._address + path
        if status >= 400:
            self._refused.add(url)
        answer = await self.page.goto(url)
        assert answer is not None
        assert answer.status == status, f"{url} was answered {answer.status}"

    def expect_refusal(self, path: str) -> None:
        """What is sent to this path next is refused, which a browser reports on its console."""
        self._refused.add(self._address + path)

    async def until(self, wanted: Locator, what: str, seconds: float) -> None:
        """Load the page again and again until it shows what is wanted."""
        deadline = time.monotonic() + seconds
        while not await wanted.is_visible():
            seen = await self.page.locator("main").inner_text()
            assert time.monotonic() < deadline, f"not within {seconds:g} s: {what}. The page shows:\n{seen}"
            await asyncio.sleep(LOOK_AGAIN_SECONDS)
            await self.page.reload()

    async def tab_to(self, wanted: Locator) -> None:
        """Press Tab until the element has the focus."""
        for _ in range(MAX_PRESSES):
            await self.page.keyboard.press("Tab")
            if await wanted.evaluate("one => one === document.activeElement"):
                return
        raise AssertionError(f"{wanted} is not reached within {MAX_PRESSES} presses of Tab")

    async def close(self, screenshot: Path | None) -> None:
        """Close the window, with a picture of all of its page where one is wanted."""
        if screenshot is not None:
            screenshot.parent.mkdir(parents=True, exist_ok=True)
            await self.page.screenshot(path=screenshot, full_page=True)
        await self._context.close()

    def _hear(self, message: ConsoleMessage) -> None:
        told_of_refusal = message.location.get("url") in self._refused
        if message.type in ("error", "warning") and not told_of_refusal:
            self.complaints.append(f"console {message.type}: {message.text}")

    def _fail(self, error: Error) -> None:
        self.complaints.append(f"error on the page: {error}")

    def _see_request(self, request: Request) -> None:
        parts = urlsplit(request.url)
        if parts.scheme != "data" and parts.netloc not in self._hosts:
            self.complaints.append(f"request to another host: {request.url}")

    async def _close(self, dialog: Dialog) -> None:
        self.complaints.append(f"dialog: {dialog.message}")
        await dialog.dismiss()


async def open_window(
    browser: Browser,
    address: str,
    *,
    also: tuple[str, ...] = (),
    signed_in: bool = True,
    **options: Any,
) -> Visitor:
    """A fresh window without history or cache; `also` are addresses that its pages may lead to.

    Whoever sits there is ada, and has signed in already where the site's sessions are sealed with the
    key of the tests.
    """
    context = await browser.new_context(**(DESKTOP | options))
    if signed_in:
        await context.add_cookies([{"name": COOKIE, "value": session_until(FAR_AWAY), "url": address}])
    context.set_default_timeout(PATIENCE_SECONDS * 1000)
    hosts = frozenset(urlsplit(one).netloc for one in (address, *also))
    return Visitor(context, await context.new_page(), address, hosts)
