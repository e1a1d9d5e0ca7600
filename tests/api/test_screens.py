"""The screens: the same data as the API, usable by everyone, and safe to look at."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import quote

import pytest

from api import app
from tests.api.door import ORDERS, T1, Door
from tests.api.html_reader import Reader, read
from tests.api.test_pools import FACTS, POOLS

WHY = "/ui/placements/orders-daily/why"
PAGES = (
    "/",
    "/ui/pools",
    "/ui/pools/eu-north-h1-gp-m",
    "/ui/workloads",
    "/ui/workloads/orders-daily",
    "/ui/regions",
    "/ui/audits",
    WHY,
    f"{WHY}?replay=true",
    "/ui/pools/nobody",
    "/ui/pools?state=asleep",
)
HOSTILE = "\"><script>alert('x')</script><img src=x onerror=alert(1)>{{7*7}}"


async def shown(door: Door, path: str, status: int = 200) -> Reader:
    answer = await door.get(path)
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    return read(answer.text)


@pytest.mark.parametrize("path", PAGES)
async def test_a_page_is_well_formed_and_labelled(read_door: Door, path: str) -> None:
    page = read((await read_door.get(path)).text)
    assert page.all("html")[0].attributes["lang"] == "en"
    assert len(page.all("h1")) == len(page.all("main")) == len(page.all("title")) == 1
    assert any(link.attributes.get("href") == "#main" for link in page.all("a"))
    for field in page.all("input") + page.all("select"):
        assert "label" in field.inside or field.attributes.get("type") == "hidden", field
    for heading in page.all("th"):
        assert heading.attributes["scope"] in ("col", "row")
    for picture in page.all("svg"):
        assert picture.attributes["aria-label"]
    ids = [one.attributes["id"] for one in page.elements if "id" in one.attributes]
    assert len(ids) == len(set(ids))
    named = {one.attributes.get("aria-labelledby") for one in page.elements} - {None}
    assert named <= set(ids)


@pytest.mark.parametrize("path", PAGES)
async def test_a_page_needs_nothing_from_elsewhere_and_runs_nothing(read_door: Door, path: str) -> None:
    answer = await read_door.get(path)
    page = read(answer.text)
    assert page.all("script") == []
    for one in page.elements:
        assert not [name for name in one.attributes if name == "style" or name.startswith("on")]
        for name in ("src", "href", "action"):
            target = one.attributes.get(name) or ""
            is_workflow = target.startswith("http://localhost:8233/")
            assert is_workflow or not re.match(r"[a-z]+:|//", target), target
    assert "script-src" not in answer.headers["content-security-policy"]
    assert "default-src 'none'" in answer.headers["content-security-policy"]


async def test_links_of_the_screens_lead_somewhere(read_door: Door) -> None:
    seen: set[str] = set()
    for path in PAGES[:7]:
        page = read((await read_door.get(path)).text)
        base = path.partition("?")[0]
        links = [one.attributes["href"] or "" for one in page.all("a") + page.all("link")]
        seen |= {base + link if link.startswith("?") else link for link in links if link[:1] in "/?"}
    chosen = sorted(seen, key=lambda link: (link.count("/ui/pools/"), link))[:60]
    assert len(chosen) > 20
    for link in chosen:
        assert (await read_door.get(link)).status_code == 200, link


async def test_the_overview_counts_and_names_what_falls_short(door: Door) -> None:
    empty = await shown(door, "/")
    assert "No workload yet" in empty.text
    await door.open_estate(free=0)
    await door.placed(42)
    door.starter.down = True
    page = await shown(door, "/")
    assert "144" in page.text
    assert "Temporal cannot be reached" in page.text
    assert "orders-daily data-platform 42" in page.text


async def test_pools_are_filtered_as_asked(read_door: Door) -> None:
    async def listed(query: str) -> list[str]:
        page = await shown(read_door, f"/ui/pools?{query}")
        return [row.text for row in page.all("th") if row.attributes["scope"] == "row"]

    assert len(await listed("")) == 100
    assert len(await listed("page=2")) == 80
    assert len(await listed("hall=eu-north-h2&model=committed&search=")) == 9
    assert await listed("search=EU-NORTH-H1-GP-M") == ["eu-north-h1-gp-m"]
    assert await listed("search=nothing+like+it") == []
    assert len(await listed("unknown=field&family=st")) == 20


async def test_a_pool_is_shown_with_its_score(read_door: Door) -> None:
    page = await shown(read_door, "/ui/pools/eu-north-h1-gp-m")
    assert "Correlation groupeu-north-h1-a1 (by aggregate)" in page.text
    assert "Historyknown" in page.text
    missing = await shown(read_door, "/ui/pools/nobody", 404)
    assert "No such pool" in missing.text
    refused = await shown(read_door, "/ui/pools?state=asleep", 422)
    assert "state: asleep. Allowed is 'draft', 'active', 'draining' or 'retired'." in refused.text
    assert "`errors`" not in refused.text


async def test_a_workload_is_shown_against_its_caps(read_door: Door) -> None:
    page = await shown(read_door, "/ui/workloads/orders-daily")
    api = (await read_door.get("/workloads/orders-daily")).json()
    assert "42 units: 168 vCPU, 672 GiB, 0 GPUs" in page.text
    assert "floor 13, pool 6, group 12" in page.text
    assert "drains within 115 s; an advisory notice lets the work run" in page.text
    assert "declare finalWriteSeconds" in page.text
    bars = [bar.attributes["aria-label"] for bar in page.all("svg")]
    for group in api["byGroup"]:
        assert f"{group['units']} of 12 units" in bars
    for row in api["fleet"]:
        assert row["poolId"] in page.text
    assert not [bar for bar in page.all("svg") if "over" in (bar.attributes["class"] or "").split()]


async def test_a_workload_says_how_its_work_ends(door: Door) -> None:
    await door.open_estate()
    said = {"drainOnAdvisory": True, "drainBudgetSeconds": 90, "finalWriteSeconds": 40, "restart": "requeue"}
    await door.put("/contracts/orders-daily", T1 | said)
    page = await shown(door, "/ui/workloads/orders-daily")
    assert "Contractorders-daily, tier T1" in page.text
    assert "drains within 90 s, on an advisory notice too" in page.text
    assert "Checkpointsperiodic and final, the final write within 40 s" in page.text
    assert "Restartrequeue" in page.text
    assert "finalWriteSeconds" not in page.text


async def test_why_tells_every_candidate_and_filters_them(read_door: Door) -> None:
    async def candidates(query: str) -> list[str]:
        page = await shown(read_door, f"{WHY}?{query}")
        return [row.text for row in page.all("th") if row.attributes["scope"] == "row"]

    api = (await read_door.get("/placements/orders-daily/explanation")).json()["candidates"]
    kept = [one["poolId"] for one in api if one["kept"]]
    assert await candidates("show=kept") == kept
    assert (await candidates(""))[: len(kept)] == kept
    assert await candidates("") + await candidates("page=2") == [one["poolId"] for one in api]
    assert len(await candidates("reason=gpu")) == sum(one["reason"] == "gpu" for one in api)
    assert await candidates("search=h1-ga-m&generation=1&show=excluded") == ["eu-north-h1-ga-m"]


async def test_deciding_again_is_shown(door: Door) -> None:
    await door.open_estate()
    await door.placed(42)
    same = await shown(door, f"{WHY}?replay=true")
    assert "the same. Every part came out as it was stored." in same.text
    await door.estate.rows("UPDATE plan_generations SET cost_per_hour = 1")
    differs = await shown(door, f"{WHY}?replay=true")
    assert "1 difference." in differs.text
    assert "generation.cost_per_hour" in differs.text


async def test_hostile_names_stay_text(door: Door) -> None:
    await door.open_estate()
    await door.post(POOLS, FACTS | {"poolId": "hostile", "flavor": HOSTILE})
    await door.put("/workloads/orders-daily", ORDERS | {"ownerTeam": HOSTILE})
    await door.placed(42)
    await door.estate.rows("UPDATE placement_decisions SET outcome = 'shortfall'")
    hostile_query = quote(HOSTILE)
    for path in (
        "/",
        "/ui/pools/hostile",
        f"/ui/pools?search={hostile_query}",
        f"/ui/pools?state={hostile_query}",
        f"/ui/pools/{hostile_query}",
        "/ui/workloads",
        "/ui/workloads/orders-daily",
        f"{WHY}?search={hostile_query}&replay=true",
        f"{WHY}?reason={hostile_query}",
        f"/ui/{hostile_query}",
    ):
        text = (await door.get(path)).text
        assert "<script" not in text.lower(), path
        assert "<img" not in text.lower(), path
        read(text)
    assert HOSTILE in (await shown(door, "/ui/workloads/orders-daily")).text
    assert HOSTILE in (await shown(door, "/ui/pools/hostile")).text


async def test_style_is_served_with_its_type(read_door: Door) -> None:
    style = await read_door.get("/static/sco.css")
    assert (style.status_code, style.headers["content-type"]) == (200, "text/css; charset=utf-8")
    assert "url(" not in style.text
    assert "@import" not in style.text
    assert (await read_door.get("/static/../app.py")).status_code == 404
    assert (await read_door.get("/static/%2e%2e/pages.py")).status_code == 404


def schemes() -> list[dict[str, str]]:
    """The named colours of the light and of the dark scheme."""
    style = (Path(app.STATIC) / "sco.css").read_text()
    light, dark = style.split("@media (prefers-color-scheme: dark)")
    named = [dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{6})", part)) for part in (light, dark)]
    assert named[0].keys() == named[1].keys()
    return named


def luminance(colour: str) -> float:
    channels = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [one / 12.92 if one <= 0.04045 else ((one + 0.055) / 1.055) ** 2.4 for one in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


TEXT_ON = [
    *((text, back) for text in ("ink", "quiet", "link") for back in ("paper", "panel")),
    *((f"{tone}", f"{tone}-back") for tone in ("good", "bad", "busy")),
    *(("ink", f"{tone}-back") for tone in ("good", "bad", "busy")),
    *(("link", f"{tone}-back") for tone in ("good", "bad", "busy")),
    ("paper", "link"),
]


@pytest.mark.parametrize(("text", "back"), TEXT_ON)
def test_text_can_be_read_in_both_schemes(text: str, back: str) -> None:
    for scheme in schemes():
        assert contrast(scheme[text], scheme[back]) >= 4.5


@pytest.mark.parametrize("back", ["paper", "panel"])
def test_bars_and_fields_can_be_seen_in_both_schemes(back: str) -> None:
    for scheme in schemes():
        for part in ("bar", "bad", "quiet"):
            assert contrast(scheme[part], scheme[back]) >= 3
