"""A person signs in with a real browser: to the issuer, back to the page that was wanted, and out again."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime

import pytest
import pytest_asyncio
from playwright.async_api import expect

from lab.issuer import IssuerHandle
from tests.api.door import door_on
from tests.api.serving import served
from tests.api.sign_in.sessions import sign_in_at
from tests.estates import Estate
from tests.real.conftest import Site, Visit
from tests.real.test_screens import WINDOWS

pytestmark = pytest.mark.real


@pytest.fixture
def issuer() -> Iterator[IssuerHandle]:
    with IssuerHandle.start_in_thread() as running:
        yield running


@pytest_asyncio.fixture
async def signed_site(estate: Estate, issuer: IssuerHandle) -> AsyncIterator[Site]:
    """A site at which people sign in with a running issuer, whose clock is the real one."""
    sign_in = sign_in_at(issuer, lambda: datetime.now(UTC))
    async with door_on(estate, sign_in) as door, served(door.app) as address:
        yield Site(address, door)


@pytest.mark.parametrize("window", WINDOWS)
async def test_a_person_signs_in_and_out(
    visit: Visit, signed_site: Site, issuer: IssuerHandle, window: str
) -> None:
    visitor = await visit(signed_site.address, also=(issuer.url,), signed_in=False, **WINDOWS[window])
    page = visitor.page
    await visitor.open("/ui/workloads?page=1")
    assert page.url.startswith(issuer.url)
    await expect(page.get_by_role("heading", level=1)).to_have_text("Who do you want to be?")
    await page.get_by_role("button", name="tara").click()
    await expect(page).to_have_url(f"{signed_site.address}/ui/workloads?page=1")
    await expect(page.get_by_role("banner")).to_contain_text("tara of tenant-a")
    await page.wait_for_load_state()
    width = WINDOWS[window]["viewport"]["width"]
    assert await page.evaluate("document.documentElement.scrollWidth") <= width

    out = page.get_by_role("button", name="Sign out")
    await visitor.tab_to(out)
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("heading", level=1)).to_have_text("You are signed out")
    await expect(page.get_by_role("button", name="Sign out")).to_have_count(0)
    await page.wait_for_load_state()
    await visitor.open("/ui/workloads")
    assert page.url.startswith(issuer.url)


async def test_what_a_script_on_a_page_could_read_holds_no_session(
    visit: Visit, signed_site: Site, issuer: IssuerHandle
) -> None:
    visitor = await visit(signed_site.address, also=(issuer.url,), signed_in=False)
    await visitor.open("/")
    await visitor.page.get_by_role("button", name="ada").click()
    await expect(visitor.page.get_by_role("banner")).to_contain_text("ada of platform")
    await visitor.page.wait_for_load_state()
    assert await visitor.page.evaluate("document.cookie") == ""
