"""The screens of model serving: pools with their history, and placements that explain themselves."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest
import pytest_asyncio

from tests.activities.model_placing import ACME, MODEL, PLATFORM
from tests.api.door import Door, door_on
from tests.api.html_reader import Reader, read
from tests.api.serving_scene import BUSY, PLACE, Scene
from tests.api.test_screens import HOSTILE, TEXT_ON, contrast, schemes, shown
from tests.estates import Estate

ACME_ADMIN: dict[str, Any] = {"tenant_id": ACME}
OBSERVER: dict[str, Any] = {"roles": ["Observer"], "scope": "factory.compute.read"}
FORM = {"Content-Type": "application/x-www-form-urlencoded"}


@pytest_asyncio.fixture
async def scene(door: Door) -> Scene:
    """Serving pools of the test's own, for tests that write."""
    own = Scene(door)
    await own.open()
    return own


@pytest_asyncio.fixture(scope="module")
async def read_scene(shared_estate: Estate) -> AsyncIterator[Scene]:
    """The same for tests that only read, with one pool that has a past."""
    async with door_on(shared_estate) as door:
        own = Scene(door)
        await own.open()
        await own.live()
        yield own


async def seen_by(client: httpx2.AsyncClient, path: str, status: int = 200) -> Reader:
    answer = await client.get(path)
    assert answer.status_code == status, answer.text
    return read(answer.text)


def row(page: Reader, name: str) -> str:
    """The text of the row of a table that is about `name`."""
    found = [" ".join(one.text.split()) for one in page.all("tr")]
    rows = [text for text in found if text.split(" ")[0] == name]
    assert len(rows) == 1, found
    return rows[0]


def listed(page: Reader) -> list[str]:
    return [one.text for one in page.all("th") if one.attributes["scope"] == "row"]


async def test_a_serving_pool_is_shown_with_its_use_health_and_memory(read_scene: Scene) -> None:
    page = await shown(read_scene.door, "/ui/pools")
    busy = row(page, BUSY)
    for part in ("active", "healthy", "14 s ago", "62.0 %, 3 waiting", "70 of 160 GB, 1 model", "dgx class"):
        assert part in busy, part
    assert "degraded" in row(page, "gpu-down")
    assert "stale for 3 min" in row(page, "gpu-stale")
    assert "own shared" in row(page, "gpu-shared")
    bars = [bar.attributes["aria-label"] for bar in page.all("svg")]
    assert "70 of 160 GB, 1 model" in bars


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("health=degraded", ["gpu-down"]),
        ("reports=stale", ["gpu-stale"]),
        ("kind=dgx_class", [BUSY, "gpu-new"]),
        ("boundary=shared", ["gpu-shared"]),
        ("region=eu-south", ["gpu-south"]),
        ("owner=shared", []),
        ("state=draining", []),
    ],
)
async def test_pools_are_filtered_by_what_a_router_asks_for(
    read_scene: Scene, query: str, names: list[str]
) -> None:
    page = await shown(read_scene.door, f"/ui/pools?{query}")
    assert listed(page) == names
    if not names:
        assert "No pool fits these filters. Clear them to see all 7." in page.text


async def test_a_pool_tells_its_history(read_scene: Scene) -> None:
    page = await shown(read_scene.door, "/ui/pools/gpu-new")
    told = [one.text for one in page.all("span") if one.attributes.get("class") == "told"]
    assert told == [
        "draft → active, by ada",
        "changed: USD per hour 0.350000 → 2.500000, by ada",
        "registered as draft, by ada",
    ]
    loads = [" ".join(one.text.split()) for one in page.all("tr") if MODEL in one.text]
    assert sorted(loads) == [
        f"{MODEL} failed - a placement 70 GB 5 min ago the endpoint answered 500",
        f"{MODEL} loaded 38.25 s a placement 70 GB 5 min ago -",
    ]
    assert "2030-01-01 1.0 2.500000 USD" in page.text
    assert "2029-12-31 0.5 1.250000 USD" in page.text
    api = (await read_scene.door.get("/factory/compute-pools/gpu-new/history")).json()
    assert [one["text"] for one in api["events"]] == told
    assert {one["outcome"] for one in api["loads"]} == {"loaded", "failed"}
    assert [one["seconds"] for one in api["usage"]] == [3600, 1800]


async def test_a_pool_shows_the_models_on_it_and_what_is_wrong(read_scene: Scene) -> None:
    busy = await shown(read_scene.door, f"/ui/pools/{BUSY}")
    assert f"{MODEL} loaded 70 GB 0 0 s ago 0 s ago -" in busy.text
    assert "62.0 % in use" in busy.text
    assert "40 s, as registered" in busy.text
    down = await shown(read_scene.door, "/ui/pools/gpu-down")
    assert "Its endpoint is degraded for 10 min: it did not answer within 5 s" in down.text
    assert "No model is on it." in down.text


async def test_another_tenant_sees_of_a_shared_pool_what_it_may_and_of_others_nothing(
    scene: Scene,
) -> None:
    async with scene.door.as_(**ACME_ADMIN) as acme:
        assert listed(await seen_by(acme, "/ui/pools")) == ["gpu-shared", "gpu-theirs"]
        assert listed(await seen_by(acme, "/ui/pools?owner=shared")) == ["gpu-shared"]
        page = await seen_by(acme, f"/ui/pools/gpu-shared?tenantId={PLATFORM}")
        assert "This pool belongs to platform and is shared with you." in page.text
        assert "What happened" not in page.text
        assert [one.attributes["action"] for one in page.all("form")] == ["/sign-out"]
        await seen_by(acme, f"/ui/pools/{BUSY}?tenantId={PLATFORM}", 404)
        history = await acme.get(f"/factory/compute-pools/gpu-shared/history?tenantId={PLATFORM}")
        assert history.json() == {"models": [], "loads": [], "requests": [], "events": [], "usage": []}
    async with scene.door.as_(tenant_id="beta") as beta:
        placed = await scene.place()
        await seen_by(beta, f"/ui/model-placements/{placed['placementId']}", 404)
        page = await seen_by(beta, "/ui/model-placements")
        assert "No model was placed yet." in page.text
        for path in ("/ui/pools", "/ui/model-placements", f"/ui/pools/gpu-shared?tenantId={PLATFORM}"):
            text = (await beta.get(path)).text
            assert BUSY not in text, path
            assert MODEL not in text, path


async def test_an_observer_is_offered_nothing_and_may_do_nothing(scene: Scene) -> None:
    async with scene.door.as_(**OBSERVER) as observer:
        page = await seen_by(observer, f"/ui/pools/{BUSY}")
        assert [one.attributes["action"] for one in page.all("form")] == ["/sign-out"]
        refused = await observer.post(f"/ui/pools/{BUSY}/drain", content="version=1", headers=FORM)
        assert refused.status_code == 403
    assert await scene.door.estate.value("SELECT state FROM pools WHERE pool_id = :p", p=BUSY) == "active"


def offered(page: Reader) -> list[str]:
    actions = [one.attributes["action"] or "" for one in page.all("form") if "action" in one.attributes]
    return [action.rpartition("/")[2] for action in actions if action.startswith("/ui/pools/gpu")]


async def step(scene: Scene, name: str, version: str) -> httpx2.Response:
    body = f"version={version}"
    return await scene.door.http.post(f"/ui/pools/gpu-small/{name}", content=body, headers=FORM)


async def test_an_administrator_takes_a_pool_through_its_life(scene: Scene) -> None:
    where = "/ui/pools/gpu-small"
    for name, after in (
        ("drain", ["resume", "retire"]),
        ("resume", ["drain"]),
        ("drain", ["resume", "retire"]),
    ):
        page = await shown(scene.door, where)
        assert name in offered(page)
        version = page.all("input")[0].attributes["value"] or ""
        answer = await step(scene, name, version)
        assert (answer.status_code, answer.headers["location"]) == (303, where)
        assert [one for one in offered(await shown(scene.door, where)) if one != "warm"] == after
    assert scene.door.starter.drains == [(PLATFORM, "gpu-small")] * 2


async def test_a_step_for_another_version_is_refused_on_the_page_of_the_pool(scene: Scene) -> None:
    answer = await step(scene, "drain", "7")
    assert answer.status_code == 412
    page = read(answer.text)
    (alert,) = [one for one in page.all("div") if one.attributes.get("role") == "alert"]
    assert "is at version 1, not 7" in alert.text
    assert "drain" in offered(page)
    assert (await step(scene, "drain", "")).status_code == 428
    assert (await step(scene, "drain", HOSTILE)).status_code == 412
    assert (await step(scene, "vanish", "1")).status_code == 422


async def test_a_form_of_another_site_changes_nothing(scene: Scene) -> None:
    headers = FORM | {"Origin": "https://evil.example"}
    answer = await scene.door.http.post(f"/ui/pools/{BUSY}/drain", content="version=1", headers=headers)
    assert answer.status_code == 403


async def test_placements_are_listed_and_filtered(scene: Scene) -> None:
    warm = await scene.place()
    await scene.place(model="qwen3:32b", vramGb=40, deploymentId="batch")
    await scene.place(vramGb=9000)
    door = scene.door
    page = await shown(door, "/ui/model-placements")
    assert len(listed(page)) == 3
    assert "warm" in page.text
    assert "cold, about 40 s" in page.text
    for query, count in (
        ("outcome=no_capacity", 1),
        ("deploymentId=batch", 1),
        (f"model={MODEL}", 2),
        ("state=held&outcome=placed", 2),
        (f"poolId={warm['chosenPoolId']}&state=", 2),
        ("outcome=policy_denied", 0),
    ):
        page = await shown(door, f"/ui/model-placements?{query}")
        assert len(listed(page)) == count, query
    assert "No placement fits these filters." in page.text
    await shown(door, "/ui/model-placements?outcome=perhaps", 422)
    await shown(door, "/ui/model-placements?after=nonsense", 422)


async def test_older_placements_are_a_page_away(scene: Scene) -> None:
    for _ in range(101):
        await scene.place(vramGb=9000)
        scene.door.estate.clock.move(0.5)
    first = await shown(scene.door, "/ui/model-placements?outcome=no_capacity")
    (older,) = [one.attributes["href"] or "" for one in first.all("a") if one.text == "Older"]
    second = await shown(scene.door, f"/ui/model-placements{older}")
    assert (len(listed(first)), len(listed(second))) == (100, 1)
    assert [one.attributes["href"] for one in second.all("a") if one.text == "Newest"] == [
        "?outcome=no_capacity"
    ]


async def test_a_placement_explains_itself(scene: Scene) -> None:
    placed = await scene.place()
    where = f"/ui/model-placements/{placed['placementId']}"
    page = await shown(scene.door, where)
    assert placed["text"] in page.text
    assert f"{BUSY} is the only pool that may run the model" in page.text
    for name in ("warm", "price", "utilization", "latency"):
        value = float(placed["candidates"][0]["parts"][name])
        assert f"{value:.3f}" in row(page, name)
    for counted in placed["countsByReason"]:
        assert f"{counted['pools']} {counted['reason']}: {counted['text']}" in page.text
    candidates = [one.text for one in page.all("th") if one.attributes["scope"] == "row"][4:]
    assert candidates == [one["poolId"] for one in placed["candidates"]]
    memory = await shown(scene.door, f"{where}?reason=memory")
    assert listed(memory)[4:] == ["gpu-small"]
    assert listed(await shown(scene.door, f"{where}?search=SOUTH"))[4:] == ["gpu-south"]


async def test_a_placement_tells_what_came_of_it(scene: Scene) -> None:
    placed = await scene.place(model="qwen3:32b", vramGb=40)
    where = f"/ui/model-placements/{placed['placementId']}"
    page = await shown(scene.door, where)
    assert "Ends unless renewed" in page.text
    assert "in 10 min" in page.text
    assert placed["temporalUrl"] in [one.attributes["href"] for one in page.all("a")]
    scene.door.estate.clock.move(30)
    await scene.door.post(f"{PLACE}/{placed['placementId']}/release")
    page = await shown(scene.door, where)
    assert "given back" in page.text
    assert "(0 s ago)" in page.text
    pool = await shown(scene.door, f"/ui/pools/{BUSY}")
    assert "qwen3" not in pool.text


async def test_without_a_pool_every_one_has_its_reason(scene: Scene) -> None:
    placed = await scene.place(vramGb=9000, regions=["eu-north", "eu-south"])
    page = await shown(scene.door, f"/ui/model-placements/{placed['placementId']}")
    assert "Why none" in page.text
    assert "What happened then" not in page.text
    assert len(listed(page)) == len(placed["candidates"])


async def test_a_decision_about_a_claim_is_shown_where_those_are(door: Door) -> None:
    await door.open_estate()
    decided = await door.placed(42)
    answer = await door.get(f"/ui/model-placements/{decided.decision_id}")
    assert answer.headers["location"] == "/ui/placements/orders-daily/why?generation=1"


async def test_without_pools_the_screens_say_what_to_do(door: Door) -> None:
    assert "No pool yet. Register one" in (await shown(door, "/ui/pools")).text
    assert "No model was placed yet." in (await shown(door, "/ui/model-placements")).text


async def test_what_others_named_stays_text(scene: Scene) -> None:
    await scene.judge(BUSY, health="degraded", health_problem=HOSTILE)
    await scene.load(BUSY, "failed", problem=HOSTILE)
    answer = await scene.door.get(f"/ui/pools/{BUSY}")
    assert "<script" not in answer.text
    assert read(answer.text).text.count("alert('x')") == 2


def test_what_is_wrong_can_be_read_in_both_schemes() -> None:
    for scheme in schemes():
        for text, back in (("bad", "paper"), ("paper", "bad")):
            assert (text, back) not in TEXT_ON
            assert contrast(scheme[text], scheme[back]) >= 4.5


def test_every_cell_of_a_card_has_the_name_of_its_column() -> None:
    """A table that is cards on a phone loses its head there, so each cell brings its name along."""
    from api.web.render import _TEMPLATES

    for template in ("pools", "pool", "placements", "placement"):
        text = (_TEMPLATES / f"{template}.html").read_text()
        for table in re.findall(r'<div class="scroll cards".*?</div>', text, re.DOTALL):
            body = table.partition("<tbody>")[2]
            for cell in re.findall(r"<td[^>]*>", body):
                assert "data-label=" in cell or "colspan=" in cell, (template, cell)
