"""The screens of nodes and drains in a real browser: found from the bar, filtered, and told on a phone."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import expect

from tests.api.door import door_on
from tests.api.serving import served
from tests.api.sign_in.sessions import sign_in_over
from tests.api.test_drains import fill
from tests.estates import Estate
from tests.real.conftest import Site, Visit
from tests.real.visiting import DESKTOP, PHONE

pytestmark = pytest.mark.real

WINDOWS: dict[str, dict[str, Any]] = {
    "desktop": DESKTOP,
    "phone": PHONE,
    "dark phone": PHONE | {"color_scheme": "dark"},
}


@pytest_asyncio.fixture(scope="module")
async def history_site(shared_estate: Estate) -> AsyncIterator[Site]:
    """Five nodes with one life each, for tests that only read."""
    async with door_on(shared_estate, sign_in_over(shared_estate.clock)) as door:
        await fill(door)
        async with served(door.app) as address:
            yield Site(address, door)


@pytest.mark.parametrize("window", WINDOWS)
async def test_the_screens_of_drains_render_and_fit(visit: Visit, history_site: Site, window: str) -> None:
    visitor = await visit(history_site.address, **WINDOWS[window])
    width = WINDOWS[window]["viewport"]["width"]
    for path, heading in {
        "/ui/nodes": "Nodes",
        "/ui/drains": "Drains",
        "/ui/drains/n1": "n1 drained",
        "/ui/drains/n2": "n2 overrun",
        "/ui/drains/n3": "n3 no notice",
        "/ui/drains/n4": "n4 open",
    }.items():
        await visitor.open(path)
        await expect(visitor.page.get_by_role("heading", level=1)).to_have_text(heading)
        assert await visitor.page.evaluate("document.documentElement.scrollWidth") <= width, path


async def test_one_drain_is_found_and_told_second_by_second_on_a_phone(
    visit: Visit, history_site: Site
) -> None:
    visitor = await visit(history_site.address, **PHONE)
    page = visitor.page
    await visitor.open("/")
    screens = page.get_by_role("navigation", name="Screens")
    await screens.get_by_role("link", name="Drains", exact=True).tap()
    await page.get_by_label("Outcome").select_option("drained")
    await page.get_by_role("button", name="Filter").tap()
    await expect(page.get_by_role("rowheader")).to_have_text(["n1", "n1"])
    await page.get_by_role("rowheader").first.get_by_role("link").tap()
    await expect(page.get_by_text("with 83.1 s to spare")).to_be_visible()
    steps = page.get_by_role("region", name="Second by second").get_by_role("listitem")
    await expect(steps).to_have_count(5)
    await expect(steps.nth(1)).to_contain_text("T+0.12")
    await expect(steps.nth(1)).to_contain_text("The work was told to end by slurm")
    for step in await steps.all():
        box = await step.bounding_box()
        assert box is not None
        assert box["x"] + box["width"] <= PHONE["viewport"]["width"]
    await expect(screens.locator("[aria-current=page]")).to_have_text("Drains")
    await page.get_by_role("region", name="Other drains of this node").get_by_role("link").tap()
    await expect(page.get_by_text("a drill took the node back")).to_be_visible()


async def test_a_node_that_drains_is_found_and_followed_to_its_drain(
    visit: Visit, history_site: Site
) -> None:
    visitor = await visit(history_site.address)
    page = visitor.page
    await visitor.open("/")
    screens = page.get_by_role("navigation", name="Screens")
    await screens.get_by_role("link", name="Nodes", exact=True).click()
    await expect(page.get_by_role("rowheader")).to_have_text(["n1", "n2", "n3", "n4", "n5"])
    await page.get_by_label("Draining").select_option("yes")
    await page.get_by_role("button", name="Filter").click()
    await expect(page.get_by_role("rowheader")).to_have_text(["n4"])
    await page.get_by_role("link", name="open", exact=True).click()
    await expect(page.get_by_role("heading", level=1)).to_have_text("n4 open")


async def test_the_bar_has_room_for_every_screen(visit: Visit, history_site: Site) -> None:
    visitor = await visit(history_site.address)
    await visitor.open("/")
    links = visitor.page.get_by_role("navigation", name="Screens").get_by_role("link")
    tops = {box["y"] for link in await links.all() if (box := await link.bounding_box())}
    assert len(tops) == 1


async def test_what_is_not_known_stands_below_the_story(visit: Visit, history_site: Site) -> None:
    visitor = await visit(history_site.address)
    await visitor.open("/ui/drains/n4")
    unknown = visitor.page.get_by_role("region", name="What is not known")
    await expect(unknown).to_contain_text("Nothing was heard after T+0.12")
