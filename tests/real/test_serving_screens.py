"""The screens of model serving in a real browser: read, walked through by keyboard, and used on a phone."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Page, expect

from tests.activities.model_placing import MODEL
from tests.api.door import door_on
from tests.api.serving import served
from tests.api.serving_scene import BUSY, Scene
from tests.api.sign_in.sessions import COOKIE, session_until, sign_in_over
from tests.estates import Estate
from tests.real.conftest import Visit
from tests.real.test_screens import DARK, LIGHT, WINDOWS, row
from tests.real.visiting import FAR_AWAY, PHONE

pytestmark = pytest.mark.real

PROFILE = {"models": [{"model": MODEL, "vramGb": 70}], "copies": 9, "pools": {"regions": ["eu-north"]}}


@dataclass(frozen=True)
class Serving:
    """A site with serving pools, a placement of each kind, and a warm profile."""

    address: str
    scene: Scene
    placed: dict[str, Any]
    refused: dict[str, Any]

    @property
    def screens(self) -> dict[str, str]:
        return {
            "/ui/pools": "Pools",
            "/ui/pools/gpu-new": "gpu-new active health unknown",
            f"/ui/pools/{BUSY}": f"{BUSY} active healthy",
            "/ui/pools/gpu-down": "gpu-down active degraded",
            "/ui/model-placements": "Model placements",
            f"/ui/model-placements/{self.placed['placementId']}": f"Placement of {MODEL} placed held",
            f"/ui/model-placements/{self.refused['placementId']}": f"Placement of {MODEL} no capacity",
            "/ui/warm-profiles": "Warm profiles",
            "/ui/warm-profiles/always": "always in force",
            "/ui/warm-profiles/_new": "New warm profile",
        }


async def serving_on(estate: Estate) -> AsyncIterator[Serving]:
    async with door_on(estate, sign_in_over(estate.clock)) as door:
        scene = Scene(door)
        await scene.open()
        await scene.live()
        placed, refused = await scene.place(), await scene.place(vramGb=9000)
        assert (await door.put("/factory/warm-profiles/always", PROFILE)).status_code == 201
        async with served(door.app) as address:
            yield Serving(address, scene, placed, refused)


@pytest_asyncio.fixture(scope="module")
async def serving(shared_estate: Estate) -> AsyncIterator[Serving]:
    """For tests that only read."""
    async for site in serving_on(shared_estate):
        yield site


@pytest_asyncio.fixture
async def own_serving(estate: Estate) -> AsyncIterator[Serving]:
    """For one test that writes."""
    async for site in serving_on(estate):
        yield site


async def width_of(page: Page) -> int:
    return int(await page.evaluate("document.documentElement.scrollWidth"))


@pytest.mark.parametrize("window", WINDOWS)
async def test_every_serving_screen_renders_and_fits(visit: Visit, serving: Serving, window: str) -> None:
    visitor = await visit(serving.address, **WINDOWS[window])
    paper, ink = DARK if "dark" in window else LIGHT
    body = visitor.page.locator("body")
    for path, heading in serving.screens.items():
        await visitor.open(path)
        title = visitor.page.get_by_role("heading", level=1)
        assert " ".join((await title.inner_text()).split()) == heading
        await expect(body).to_have_css("background-color", paper)
        await expect(body).to_have_css("color", ink)
        for details in await visitor.page.locator("details").all():
            await details.evaluate("one => one.open = true")
        assert await width_of(visitor.page) <= WINDOWS[window]["viewport"]["width"], path


async def test_on_a_phone_every_pool_is_a_card_with_named_values(visit: Visit, serving: Serving) -> None:
    visitor = await visit(serving.address, **PHONE)
    page = visitor.page
    await visitor.open("/ui/pools")
    card = row(page, BUSY)
    cells = [cell for cell in await card.get_by_role("cell").all() if await cell.is_visible()]
    tops = [await cell.evaluate("one => one.getBoundingClientRect().top") for cell in cells]
    assert len(cells) > 6
    assert tops == sorted(set(tops))
    for cell in cells:
        named = await cell.evaluate("one => getComputedStyle(one, '::before').content")
        assert named == f'"{await cell.get_attribute("data-label")}"'
    bar = card.get_by_role("img", name="70 of 160 GB")
    box = await bar.bounding_box()
    assert box is not None
    assert box["width"] >= 90
    region = page.get_by_role("region", name="Pools")
    assert await region.evaluate("one => one.scrollWidth <= one.clientWidth")
    await expect(row(page, "gpu-stale")).to_contain_text("stale for 3 min")


async def test_a_placement_is_followed_from_the_list_to_the_reason_of_one_pool(
    visit: Visit, serving: Serving
) -> None:
    visitor = await visit(serving.address)
    page = visitor.page
    await visitor.open("/")
    await page.get_by_role("link", name="Model placements").click()
    await page.get_by_label("Outcome").select_option("placed")
    await page.get_by_role("button", name="Filter").click()
    await page.get_by_role("region", name="Model placements").get_by_role("link").first.click()
    await expect(page.get_by_text(f"{BUSY} is the only pool that may run the model")).to_be_visible()
    await page.get_by_role("link", name="1 memory").click()
    await expect(page).to_have_url(re.compile(r"\?reason=memory#h-all$"))
    candidates = page.get_by_role("region", name="Candidates")
    await expect(candidates.get_by_role("rowheader")).to_have_text(["gpu-small"])
    await expect(candidates).to_contain_text("it has less accelerator memory in all than the model needs")
    await candidates.get_by_role("link", name="gpu-small").click()
    await expect(page.get_by_role("heading", level=1)).to_contain_text("gpu-small")


async def test_a_pool_is_drained_and_resumed_by_keyboard_alone(visit: Visit, own_serving: Serving) -> None:
    visitor = await visit(own_serving.address)
    page = visitor.page
    await visitor.open("/ui/pools/gpu-small")
    ask = page.get_by_role("button", name="Drain gpu-small")
    await expect(ask).to_be_hidden()
    await visitor.tab_to(page.locator("summary", has_text="Drain"))
    await page.keyboard.press("Enter")
    await visitor.tab_to(ask)
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("heading", level=1)).to_contain_text("draining")
    await expect(page.get_by_role("heading", name="Its drain")).to_be_visible()
    await expect(page.get_by_text("active → draining")).to_be_visible()
    await visitor.tab_to(page.get_by_role("button", name="Resume"))
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("heading", level=1)).to_contain_text("active")
    assert len(own_serving.scene.door.starter.drains) == 1


async def test_a_page_that_is_older_than_its_pool_is_told_so(visit: Visit, own_serving: Serving) -> None:
    visitor = await visit(own_serving.address)
    page = visitor.page
    await visitor.open("/ui/pools/gpu-small")
    changed = {"pricePerHourUsd": "0.41"}
    answer = await own_serving.scene.door.patch(
        "/factory/compute-pools/gpu-small", changed, headers={"If-Match": "*"}
    )
    assert answer.status_code == 200
    await page.locator("summary", has_text="Drain").click()
    visitor.expect_refusal("/ui/pools/gpu-small/drain")
    await page.get_by_role("button", name="Drain gpu-small").click()
    await expect(page.get_by_role("alert")).to_contain_text("is at version 2, not 1")
    await page.locator("summary", has_text="Drain").click()
    await page.get_by_role("button", name="Drain gpu-small").click()
    await expect(page.get_by_role("heading", level=1)).to_contain_text("draining")


@pytest.mark.parametrize("window", ["desktop", "phone"])
async def test_a_warm_profile_is_made_and_a_mistake_is_found_and_mended(
    visit: Visit, own_serving: Serving, window: str
) -> None:
    visitor = await visit(own_serving.address, **WINDOWS[window])
    page = visitor.page
    await visitor.open("/ui/warm-profiles")
    await page.get_by_role("link", name="New warm profile").click()
    await page.get_by_label("Name").fill("evening")
    await page.get_by_label("Model 1").fill("qwen3:8b")
    memory = page.get_by_label("Memory 1, GB")
    await memory.fill("eight")
    await page.get_by_role("group", name="Regions").get_by_label("eu-north").check()
    await page.get_by_label("From, window 1").fill("18:00")
    await page.get_by_label("Until, window 1").fill("23:00")
    await page.get_by_role("group", name="Days, window 1").get_by_label("friday").check()
    visitor.expect_refusal("/ui/warm-profiles")
    await page.get_by_role("button", name="Create").click()

    alert = page.get_by_role("alert")
    await expect(alert).to_contain_text("nothing was done")
    assert await width_of(page) <= WINDOWS[window]["viewport"]["width"]
    await alert.get_by_role("link", name="eight is refused").click()
    await expect(memory).to_be_focused()
    await expect(memory).to_have_value("eight")
    await expect(memory).to_have_attribute("aria-invalid", "true")
    await expect(memory).to_have_accessible_description(re.compile("eight is refused"))
    await expect(page.get_by_label("Name")).to_have_value("evening")
    await expect(page.get_by_label("From, window 1")).to_have_value("18:00")
    await expect(page.get_by_role("group", name="Days, window 1").get_by_label("friday")).to_be_checked()
    await memory.fill("8")
    await memory.press("Enter")

    await expect(page).to_have_url(f"{own_serving.address}/ui/warm-profiles/evening")
    await expect(page.get_by_text("none of its windows is open")).to_be_visible()
    await page.get_by_role("navigation", name="Screens").get_by_role("link", name="Warm profiles").click()
    await expect(row(page, "evening")).to_contain_text("18:00 to 23:00 UTC on friday")
    await page.get_by_role("link", name="evening").click()
    await page.locator("summary", has_text="Remove").click()
    await page.get_by_role("button", name="Remove evening").click()
    await expect(page).to_have_url(f"{own_serving.address}/ui/warm-profiles")
    await expect(row(page, "evening")).to_have_count(0)


async def test_a_model_is_asked_for_on_the_page_of_its_pool(visit: Visit, own_serving: Serving) -> None:
    visitor = await visit(own_serving.address)
    page = visitor.page
    await visitor.open("/ui/pools/gpu-small")
    await page.locator("summary", has_text="Warm a model").click()
    await page.get_by_label("Model", exact=True).fill("qwen3:80b")
    await page.get_by_label("Memory, GB").fill("80")
    visitor.expect_refusal("/ui/pools/gpu-small/warm")
    await page.get_by_role("button", name="Load it").click()
    await expect(page.get_by_role("alert")).to_contain_text("allowed is at most 24")
    await expect(page.get_by_label("Model", exact=True)).to_have_value("qwen3:80b")
    await page.get_by_label("Model", exact=True).fill("qwen3:8b")
    await page.get_by_label("Memory, GB").fill("8")
    await page.get_by_role("button", name="Load it").click()
    await expect(row(page, "qwen3:8b")).to_contain_text("requested")


async def test_an_observer_has_nothing_to_press(visit: Visit, serving: Serving) -> None:
    visitor = await visit(serving.address)
    observer = session_until(FAR_AWAY, sub="olga", roles=["Observer"], scopes=["factory.compute.read"])
    await visitor.page.context.add_cookies([{"name": COOKIE, "value": observer, "url": serving.address}])
    for path in serving.screens:
        await visitor.open(path)
        await expect(visitor.page.get_by_role("banner")).to_contain_text("olga")
        buttons = await visitor.page.get_by_role("button").all_inner_texts()
        assert set(buttons) <= {"Sign out", "Filter", "Show"}, path
        assert await visitor.page.locator("form[method=post]").count() == 1, path
