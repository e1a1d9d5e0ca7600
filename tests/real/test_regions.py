"""The screen of the regions in a real browser: everything that can be wrong at once, on every window."""

from __future__ import annotations

import asyncio
from decimal import Decimal

import pytest
from playwright.async_api import expect

from domain.circuit import WELL
from store import quota_holds
from store.budget import BudgetStore
from tests.api.test_regions import LEVELS, LONG, SCREEN, Regions
from tests.estates import REGION, TENANT
from tests.real.conftest import Site, Visit
from tests.real.test_screens import DARK, LIGHT, WINDOWS

pytestmark = pytest.mark.real


async def make_unwell(regions: Regions) -> None:
    estate = regions.door.estate
    await asyncio.to_thread(regions.budgets.report_answer, REGION, WELL, pause_seconds=900)
    await regions.fail(5)
    await regions.quota(*LEVELS)
    async with estate.engine.begin() as connection:
        problem = "Quota exceeded for cores: Requested 8, but already used 396 of 400 cores"
        await quota_holds.hold(connection, TENANT, REGION, problem, estate.clock())
    await regions.licence("read_only", seconds=None, problem="HTTP 503, nothing more was said " * 3)
    await regions.drift("lost", "slot-1", "slot-2")
    await regions.lease("gp-l-in-eu-north-h1", problem="it could not be renewed: no host is free then")


async def test_an_unwell_region_is_told_in_words_and_fits_every_window(
    visit: Visit, own_site: Site, dsn: str
) -> None:
    budgets = BudgetStore(dsn, tenant_id=TENANT, terms=LONG)
    for region in (REGION, "eu-west"):
        await asyncio.to_thread(budgets.set_budget, region, burst=40, refill_per_second=Decimal(20))
    await make_unwell(Regions(own_site.door, budgets))
    budgets.close()
    for window, options in WINDOWS.items():
        visitor = await visit(own_site.address, **options)
        page = visitor.page
        await visitor.open("/")
        await page.get_by_role("navigation", name="Screens").get_by_role("link", name="Regions").click()
        await expect(page).to_have_url(own_site.address + SCREEN)
        north = page.get_by_role("heading", level=2).filter(has_text=REGION)
        for word in ("circuit open", "paused", "quota hold"):
            await expect(north).to_contain_text(word)
        for told in ("5 calls failed in a row", "asked every caller to wait", "2 lost", "no host is free"):
            await expect(page.get_by_text(told)).to_be_visible()
        paper = (DARK if "dark" in window else LIGHT)[0]
        await expect(page.locator("body")).to_have_css("background-color", paper)
        width = options["viewport"]["width"]
        assert await page.evaluate("document.documentElement.scrollWidth") <= width, window
