"""The screens of warm keeping: profiles made, changed and removed by form, and models asked for."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

import httpx2
import pytest
import pytest_asyncio

from tests.activities.model_placing import ACME, MODEL
from tests.api.door import Door
from tests.api.html_reader import Element, Reader, read
from tests.api.serving_scene import BUSY, Scene
from tests.api.test_screens import HOSTILE, shown
from tests.api.test_serving_screens import FORM, OBSERVER, listed, row, seen_by

API = "/factory/warm-profiles"
UI = "/ui/warm-profiles"
Fields = list[tuple[str, str]]
FILLED: Fields = [
    ("profileId", "evening"),
    ("model-0", MODEL),
    ("vramGb-0", "70"),
    ("model-1", "qwen3:8b"),
    ("vramGb-1", "8"),
    ("copies", "2"),
    ("regions", "eu-north"),
    ("kinds", "dgx_class"),
    ("kinds", "private_cloud"),
    ("start-0", "18:00"),
    ("until-0", "23:30"),
    ("days-0", "friday"),
    ("enabled", "yes"),
]


@pytest_asyncio.fixture
async def scene(door: Door) -> Scene:
    own = Scene(door)
    await own.open()
    return own


async def send(client: httpx2.AsyncClient, path: str, fields: Fields) -> httpx2.Response:
    return await client.post(path, content=urlencode(fields), headers=FORM)


def changed(fields: Fields, **other: str) -> Fields:
    """The fields with some values replaced, and added where they are new; `_` stands for `-`."""
    wanted = {name.replace("_", "-"): value for name, value in other.items()}
    kept = [(name, wanted.pop(name, value)) for name, value in fields]
    return kept + list(wanted.items())


def filled(page: Reader) -> Fields:
    """What a browser would send of the form of a profile, as it stands there."""
    inputs = [one for one in page.all("input") if "details" not in one.inside]
    return [
        (one.attributes["name"] or "", one.attributes.get("value") or "")
        for one in inputs
        if one.attributes.get("type") != "checkbox" or "checked" in one.attributes
    ]


def of_name(page: Reader, name: str) -> Element:
    (found,) = [one for one in page.all("input") if one.attributes.get("name") == name]
    return found


async def test_a_profile_is_made_with_the_form(scene: Scene) -> None:
    door = scene.door
    empty = await shown(door, UI)
    assert "No warm profile yet" in empty.text
    await shown(door, f"{UI}/_new")
    answer = await send(door.http, UI, FILLED)
    assert (answer.status_code, answer.headers["location"]) == (303, f"{UI}/evening"), answer.text
    told = (await door.get(f"{API}/evening")).json()
    assert [(one["model"], one["vramGb"]) for one in told["models"]] == [(MODEL, 70), ("qwen3:8b", 8)]
    assert (told["copies"], told["enabled"], told["version"]) == (2, True, 1)
    assert told["pools"]["kinds"] == ["dgx_class", "private_cloud"]
    assert told["windows"] == [{"days": ["friday"], "start": "18:00:00", "until": "23:30:00"}]
    (text,) = [row(await shown(door, UI), "evening")]
    for part in ("not now", MODEL, "eu-north, dgx class or private cloud", "18:00 to 23:30 UTC on friday"):
        assert part in text, part


async def test_a_form_that_nobody_touched_changes_nothing(scene: Scene) -> None:
    await send(scene.door.http, UI, FILLED)
    page = await shown(scene.door, f"{UI}/evening")
    answer = await send(scene.door.http, f"{UI}/evening", filled(page))
    assert answer.status_code == 303, answer.text
    assert (await scene.door.get(f"{API}/evening")).json()["version"] == 1


async def test_a_profile_is_changed_and_removed(scene: Scene) -> None:
    door = scene.door
    await send(door.http, UI, FILLED)
    sent = changed(filled(await shown(door, f"{UI}/evening")), copies="3", poolIds=f"{BUSY}, gpu-small")
    assert (await send(door.http, f"{UI}/evening", sent)).status_code == 303
    told = (await door.get(f"{API}/evening")).json()
    assert (told["copies"], told["version"], told["pools"]["poolIds"]) == (3, 2, [BUSY, "gpu-small"])
    removed = await send(door.http, f"{UI}/evening/remove", [("version", "2")])
    assert (removed.status_code, removed.headers["location"]) == (303, UI)
    await shown(door, f"{UI}/evening", 404)


@pytest.mark.parametrize(
    ("wrong", "field", "says"),
    [
        ({"vramGb_1": "many"}, "vramGb-1", "many is refused"),
        ({"vramGb_0": ""}, "vramGb-0", "a value is needed"),
        ({"model_1": HOSTILE}, "model-1", "is refused"),
        ({"copies": "0"}, "copies", "0 is refused: allowed is a number of at least 1"),
        ({"poolIds": "gpu-1 GPU_2"}, "poolIds", "GPU_2 is refused"),
        ({"profileId": "Evening!"}, "profileId", "Evening! is refused"),
        ({"profileId": ""}, "profileId", "nothing is refused"),
        ({"until_0": ""}, "until-0", "a value is needed"),
    ],
)
async def test_what_is_wrong_stands_at_its_field_and_what_was_typed_stays(
    scene: Scene, wrong: dict[str, str], field: str, says: str
) -> None:
    answer = await send(scene.door.http, UI, changed(FILLED, **wrong))
    assert answer.status_code == 422
    page = read(answer.text)
    marked = [one.attributes["name"] for one in page.all("input") if "aria-invalid" in one.attributes]
    assert marked == [field]
    at_field = of_name(page, field)
    described = (at_field.attributes["aria-describedby"] or "").split()[-1]
    (told,) = [one.text for one in page.all("p") if one.attributes.get("id") == described]
    assert says in told
    assert at_field.attributes["value"] == next(iter(wrong.values()))
    assert f"#{at_field.attributes['id']}" in [one.attributes["href"] for one in page.all("a")]
    assert [(name, value) for name, value in filled(page) if value and name != field] == [
        (name, value) for name, value in sorted_as(page, changed(FILLED, **wrong)) if value and name != field
    ]
    assert await scene.door.estate.value("SELECT count(*) FROM warm_profiles") == 0


def sorted_as(page: Reader, fields: Fields) -> Fields:
    """Fields in the order in which the page has them."""
    order = [one.attributes.get("name") for one in page.all("input")]
    return sorted(fields, key=lambda one: order.index(one[0]))


async def test_a_model_named_twice_is_refused_above_the_form(scene: Scene) -> None:
    answer = await send(scene.door.http, UI, changed(FILLED, model_1=MODEL))
    page = read(answer.text)
    assert answer.status_code == 422
    assert "more than once" in page.text
    assert of_name(page, "model-1").attributes["value"] == MODEL


async def test_a_name_that_is_taken_is_refused_and_the_other_profile_stays(scene: Scene) -> None:
    await send(scene.door.http, UI, FILLED)
    answer = await send(scene.door.http, UI, changed(FILLED, copies="9"))
    page = read(answer.text)
    assert answer.status_code == 412
    assert "there is a warm profile 'evening' already" in page.text
    assert of_name(page, "copies").attributes["value"] == "9"
    assert (await scene.door.get(f"{API}/evening")).json()["copies"] == 2


async def test_who_comes_second_is_told_and_may_save_again(scene: Scene) -> None:
    door = scene.door
    await send(door.http, UI, FILLED)
    first = filled(await shown(door, f"{UI}/evening"))
    assert (await send(door.http, f"{UI}/evening", changed(first, copies="3"))).status_code == 303
    answer = await send(door.http, f"{UI}/evening", changed(first, copies="4"))
    page = read(answer.text)
    assert answer.status_code == 412
    assert "it is at version 2, the form was made of version 1" in page.text
    assert of_name(page, "copies").attributes["value"] == "4"
    versions = [one.attributes["value"] for one in page.all("input") if one.attributes["name"] == "version"]
    assert versions == ["2", "2"]
    assert (
        await send(door.http, f"{UI}/evening", changed(first, copies="4", version="2"))
    ).status_code == 303
    refused = await send(door.http, f"{UI}/evening/remove", [("version", "1")])
    assert refused.status_code == 412
    assert (await door.get(f"{API}/evening")).json()["copies"] == 4


async def test_a_profile_says_which_pools_hold_its_models(scene: Scene) -> None:
    body = {"models": [{"model": MODEL, "vramGb": 70}], "copies": 9, "pools": {"regions": ["eu-north"]}}
    assert (await scene.door.put(f"{API}/always", body)).status_code == 201
    kept = (await scene.door.get(f"{API}/always")).json()["kept"][0]
    text = row(await shown(scene.door, f"{UI}/always"), MODEL)
    assert "1 of 9" in text
    assert f"{BUSY} warm" in text
    for pool in set(kept["pools"]) - {BUSY}:
        assert f"{pool} missing" in text
    assert f"{9 - len(kept['pools'])} copies find no pool" in text
    await scene.place(model="qwen3:32b", vramGb=40)
    await scene.door.put(f"{API}/other", body | {"models": [{"model": "qwen3:32b", "vramGb": 40}]})
    assert " promised" in row(await shown(scene.door, f"{UI}/other"), "qwen3:32b")


async def test_what_is_off_or_not_now_keeps_nothing(scene: Scene) -> None:
    await send(scene.door.http, UI, FILLED)
    assert "none of its windows is open" in (await shown(scene.door, f"{UI}/evening")).text
    off = [one for one in FILLED if one[0] != "enabled"]
    await send(scene.door.http, UI, changed(off, profileId="off"))
    assert "it is switched off" in (await shown(scene.door, f"{UI}/off")).text


async def test_an_observer_reads_profiles_and_changes_none(scene: Scene) -> None:
    await send(scene.door.http, UI, FILLED)
    async with scene.door.as_(**OBSERVER) as observer:
        for path in (UI, f"{UI}/evening", f"{UI}/_new"):
            page = await seen_by(observer, path)
            assert [one.attributes["action"] for one in page.all("form")] == ["/sign-out"], path
        assert MODEL in (await seen_by(observer, f"{UI}/evening")).text
        for path in (UI, f"{UI}/evening", f"{UI}/evening/remove", f"/ui/pools/{BUSY}/warm"):
            assert (await send(observer, path, FILLED)).status_code == 403, path
    async with scene.door.as_(tenant_id=ACME) as acme:
        assert "No warm profile yet" in (await seen_by(acme, UI)).text
        await seen_by(acme, f"{UI}/evening", 404)
        assert (await send(acme, f"{UI}/evening/remove", [("version", "1")])).status_code == 404
    assert listed(await shown(scene.door, UI)) == ["evening"]


async def warm(scene: Scene, pool_id: str = "gpu-small", **typed: str) -> httpx2.Response:
    return await send(scene.door.http, f"/ui/pools/{pool_id}/warm", list(typed.items()))


async def test_a_model_is_asked_for_on_the_page_of_its_pool(scene: Scene) -> None:
    answer = await warm(scene, model="qwen3:8b", vramGb="8")
    assert (answer.status_code, answer.headers["location"]) == (303, "/ui/pools/gpu-small#h-warm")
    page = await shown(scene.door, "/ui/pools/gpu-small")
    assert row(page, "qwen3:8b") == "qwen3:8b requested 8 GB ada 0 s ago not yet -"
    history = (await scene.door.get("/factory/compute-pools/gpu-small/history")).json()
    assert [(one["model"], one["status"]) for one in history["requests"]] == [("qwen3:8b", "requested")]


@pytest.mark.parametrize(
    ("typed", "status", "says"),
    [
        ({"model": "qwen3:8b", "vramGb": "eight"}, 422, "eight is refused"),
        ({"model": "", "vramGb": "8"}, 422, "a value is needed"),
        ({"model": "qwen3:80b", "vramGb": "80"}, 422, "all that 'gpu-small' has"),
    ],
)
async def test_a_model_that_cannot_be_asked_for_is_refused_at_the_form(
    scene: Scene, typed: dict[str, str], status: int, says: str
) -> None:
    answer = await warm(scene, **typed)
    page = read(answer.text)
    assert (answer.status_code, says in page.text) == (status, True), page.text
    for name, value in typed.items():
        assert of_name(page, name).attributes["value"] == value
    assert await scene.door.estate.value("SELECT count(*) FROM warm_requests") == 0


async def test_what_a_person_typed_stays_text(scene: Scene) -> None:
    hostile: dict[str, Any] = {"model_0": HOSTILE, "poolIds": HOSTILE, "copies": HOSTILE, "regions": HOSTILE}
    for answer in (
        await send(scene.door.http, UI, changed(FILLED, **hostile)),
        await warm(scene, model=HOSTILE, vramGb=HOSTILE),
    ):
        assert "<script" not in answer.text
        assert "<img" not in answer.text
        assert HOSTILE in [one.attributes.get("value") for one in read(answer.text).all("input")]
