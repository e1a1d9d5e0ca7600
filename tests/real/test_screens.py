"""The screens in a real browser: they render, can be walked through, filter, explain and stay harmless."""

from __future__ import annotations

import re
from typing import Any

import pytest
from playwright.async_api import Locator, Page, expect

from tests.api.door import ORDERS
from tests.api.test_pools import FACTS, POOLS
from tests.api.test_screens import HOSTILE, WHY
from tests.real.conftest import Site, Visit
from tests.real.visiting import DESKTOP, MAX_PRESSES, PHONE, browser_path

pytestmark = pytest.mark.real

SCREENS = {
    "/": "Overview",
    "/ui/pools": "Pools",
    "/ui/pools/eu-north-h1-gp-m": "eu-north-h1-gp-m active",
    "/ui/regions": "Regions",
    "/ui/workloads": "Workloads",
    "/ui/workloads/orders-daily": "orders-daily",
    WHY: "Why these pools?",
    f"{WHY}?replay=true": "Why these pools?",
    "/ui/pools?state=asleep": "A value was refused",
    "/ui/pools/nobody": "No such pool",
}
REFUSED = {"/ui/pools?state=asleep": 422, "/ui/pools/nobody": 404}
WINDOWS: dict[str, dict[str, Any]] = {
    "desktop": DESKTOP,
    "dark": DESKTOP | {"color_scheme": "dark"},
    "phone": PHONE,
    "dark phone": PHONE | {"color_scheme": "dark"},
}
LIGHT = ("rgb(255, 255, 255)", "rgb(26, 33, 41)")
DARK = ("rgb(18, 23, 29)", "rgb(232, 237, 242)")


def row(page: Page, name: str) -> Locator:
    """The row of a table that is about `name` and nothing longer."""
    return page.get_by_role("row").filter(has=page.get_by_role("rowheader", name=name, exact=True))


@pytest.mark.parametrize("window", WINDOWS)
async def test_every_screen_renders_and_fits(visit: Visit, site: Site, window: str) -> None:
    visitor = await visit(site.address, **WINDOWS[window])
    paper, ink = DARK if "dark" in window else LIGHT
    width = WINDOWS[window]["viewport"]["width"]
    body = visitor.page.locator("body")
    for path, heading in SCREENS.items():
        await visitor.open(path, REFUSED.get(path, 200))
        await expect(visitor.page.get_by_role("heading", level=1)).to_contain_text(heading)
        await expect(body).to_have_css("background-color", paper)
        await expect(body).to_have_css("color", ink)
        assert await visitor.page.evaluate("document.documentElement.scrollWidth") <= width, path


async def test_bars_and_tables_have_a_size(visit: Visit, site: Site) -> None:
    for window in (DESKTOP, PHONE):
        visitor = await visit(site.address, **window)
        await visitor.open("/ui/workloads/orders-daily")
        bars = await visitor.page.locator("svg.bar").all()
        assert len(bars) > 5
        for bar in bars:
            box = await bar.bounding_box()
            assert box is not None
            assert box["width"] >= 90
            assert box["height"] >= 10


async def test_a_table_wider_than_a_phone_is_scrolled_by_keyboard(visit: Visit, site: Site) -> None:
    visitor = await visit(site.address, **PHONE)
    await visitor.open("/ui/workloads")
    region = visitor.page.get_by_role("region", name="Workloads")
    await region.focus()
    for _ in range(MAX_PRESSES):
        await visitor.page.keyboard.press("ArrowRight")
        if await region.evaluate("one => one.scrollLeft > 0"):
            return
    pytest.fail(f"the table does not scroll after {MAX_PRESSES} presses of the arrow key")


async def test_links_lead_from_the_overview_to_one_pool_and_back(visit: Visit, site: Site) -> None:
    visitor = await visit(site.address)
    page = visitor.page
    await visitor.open("/")
    await page.get_by_role("link", name="reclaimable").click()
    await expect(page.get_by_text("1 to 100 of 144")).to_be_visible()
    screens_nav = page.get_by_role("navigation", name="Screens")
    await screens_nav.get_by_role("link", name="Workloads").click()
    await page.get_by_role("link", name="orders-daily").click()
    await page.get_by_role("link", name="Why these pools?").click()
    await page.get_by_role("region", name="Candidates").get_by_role("link").first.click()
    await expect(page).to_have_url(re.compile(r"/ui/pools/eu-north-h\d-[\w-]+$"))
    await expect(page.get_by_role("heading", name="Last score")).to_be_visible()
    await page.go_back()
    await expect(page.get_by_role("heading", level=1)).to_have_text("Why these pools?")
    await expect(screens_nav.locator("[aria-current=page]")).to_have_text("Workloads")


async def test_a_pool_is_found_by_keyboard_alone(visit: Visit, site: Site) -> None:
    visitor = await visit(site.address)
    page = visitor.page
    await visitor.open("/")
    skip = page.get_by_role("link", name="Skip to content")
    await visitor.tab_to(skip)
    await expect(skip).to_be_in_viewport()
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("main")).to_be_focused()
    await visitor.open("/")
    pools = page.get_by_role("link", name="Pools", exact=True)
    await visitor.tab_to(pools)
    await expect(pools).to_have_css("outline-style", "solid")
    await page.keyboard.press("Enter")
    await expect(page).to_have_url(f"{site.address}/ui/pools")
    await visitor.tab_to(page.get_by_role("searchbox"))
    await page.keyboard.type("h1-gp-m")
    await page.keyboard.press("Enter")
    await expect(page.get_by_text("1 to 1 of 1")).to_be_visible()
    await visitor.tab_to(page.get_by_role("link", name="eu-north-h1-gp-m"))
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("heading", level=1)).to_have_text("eu-north-h1-gp-m active")


async def test_pools_are_filtered_and_paged(visit: Visit, site: Site) -> None:
    visitor = await visit(site.address)
    page = visitor.page
    await visitor.open("/ui/pools")
    await page.locator("summary", has_text="More filters").click()
    await page.get_by_label("Hall").select_option("eu-north-h2")
    await page.get_by_label("Purchase model").select_option("committed")
    await page.get_by_role("button", name="Filter").click()
    await expect(page.get_by_text("1 to 9 of 9")).to_be_visible()
    assert await page.get_by_role("rowheader").all_inner_texts() == [
        f"eu-north-h2-{family}-l-committed"
        for family in ("ca", "cm", "g1", "g2", "ga", "gp", "hn", "mm", "st")
    ]
    await expect(page.get_by_label("Hall")).to_have_value("eu-north-h2")
    await page.get_by_role("link", name="Clear").click()
    await expect(page.get_by_text("1 to 100 of 180")).to_be_visible()
    await page.get_by_role("link", name="Next").click()
    await expect(page.get_by_text("101 to 180 of 180")).to_be_visible()
    await page.get_by_role("searchbox").fill("nothing like it")
    await page.get_by_role("button", name="Filter").click()
    await expect(page.get_by_text("No pool fits these filters.")).to_be_visible()


async def candidates(site: Site) -> list[dict[str, Any]]:
    answer = await site.door.get("/placements/orders-daily/explanation")
    found: list[dict[str, Any]] = answer.json()["candidates"]
    return found


async def test_why_finds_a_chosen_and_a_refused_pool(visit: Visit, site: Site) -> None:
    every = await candidates(site)
    chosen = next(one for one in every if one["kept"])
    refused = next(one for one in every if one["reason"] == "arch")
    visitor = await visit(site.address)
    page = visitor.page
    await visitor.open("/ui/workloads/orders-daily")
    await page.get_by_role("link", name="Why these pools?").click()
    for one, word in ((chosen, "kept"), (refused, "arch")):
        await page.get_by_label("Pool or group").fill(one["poolId"])
        await page.get_by_role("button", name="Show").click()
        told = row(page, one["poolId"])
        await expect(told).to_be_visible()
        await expect(told.get_by_text(word, exact=True)).to_be_visible()
        await expect(told.get_by_text(one["text"], exact=True)).to_be_visible()


async def test_why_is_filtered_by_decision_and_by_reason(visit: Visit, site: Site) -> None:
    every = await candidates(site)
    kept = [one["poolId"] for one in every if one["kept"]]
    other_arch = sum(one["reason"] == "arch" for one in every)
    visitor = await visit(site.address)
    page = visitor.page
    await visitor.open(WHY)
    await page.locator("select[name=show]").select_option("kept")
    await page.get_by_role("button", name="Show").click()
    await expect(page.get_by_text(f"1 to {len(kept)} of {len(kept)}")).to_be_visible()
    assert await page.get_by_role("rowheader").all_inner_texts() == kept
    await page.get_by_role("link", name="Clear").click()
    await page.get_by_role("link", name=f"{other_arch} arch").click()
    await expect(page.get_by_text(f"1 to {other_arch} of {other_arch}")).to_be_visible()


async def test_deciding_again_shows_the_same(visit: Visit, site: Site) -> None:
    visitor = await visit(site.address)
    await visitor.open(WHY)
    await visitor.page.get_by_role("button", name="Decide again and compare").click()
    told = visitor.page.get_by_role("status", name="Result of deciding again")
    await expect(told).to_have_text(
        "Decided again from the stored inputs: the same. Every part came out as it was stored."
    )


async def test_hostile_names_are_text(visit: Visit, own_site: Site) -> None:
    door = own_site.door
    await door.post(POOLS, FACTS | {"poolId": "hostile", "flavor": HOSTILE})
    await door.put("/workloads/orders-daily", ORDERS | {"ownerTeam": HOSTILE})
    await door.placed()
    visitor = await visit(own_site.address)
    page = visitor.page
    for path in ("/ui/workloads", "/ui/workloads/orders-daily", "/ui/pools/hostile"):
        await visitor.open(path)
        await expect(page.get_by_text(HOSTILE, exact=True)).to_be_visible()
        assert await page.locator("script, img, iframe").count() == 0
    await visitor.open("/ui/pools")
    await page.get_by_role("searchbox").fill(HOSTILE)
    await page.get_by_role("button", name="Filter").click()
    await expect(page.get_by_role("searchbox")).to_have_value(HOSTILE)
    await expect(row(page, "hostile")).to_be_visible()
    assert await page.locator("script, img, iframe").count() == 0


def test_without_a_browser_the_tests_fail_and_say_how_to_get_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(AssertionError, match=r"run tests/real/install\.sh"):
        browser_path()
