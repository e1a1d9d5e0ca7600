"""Which bundle a node holds: what it says itself when it asks, beside what was issued to it."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from activities import bundle_reports
from tests.api.door import T1, Door
from tests.api.node_ways import OTHER, launched, registered
from tests.api.nodes_scene import SERVER, NodeClient
from wire.node_requests import Asked

MINUTE = 60


async def shown(door: Door, instance_id: str = SERVER) -> dict[str, Any]:
    items = (await door.get("/nodes")).json()["items"]
    return next(one for one in items if one["instanceId"] == instance_id)


def at(told: dict[str, Any]) -> datetime:
    return datetime.fromisoformat(told["bundleHeldReportedAt"])


async def change(door: Door, budget: int) -> None:
    """Another contract, and so another bundle for whoever asks next."""
    answer = await door.put("/contracts/orders-daily", T1 | {"drainBudgetSeconds": budget})
    assert answer.status_code == 200, answer.text


def late() -> float:
    (family,) = bundle_reports.LATE_REPORTS.collect()
    return next(one.value for one in family.samples if one.name.endswith("_total"))


async def test_a_node_is_listed_with_what_it_holds_beside_what_was_issued(door: Door) -> None:
    await launched(door, SERVER, OTHER)
    node = await registered(door)
    told = await shown(door)
    assert (told["bundleVersion"], told["bundleHeld"], told["bundleHeldReportedAt"]) == (2, None, None)
    await node.bundle(held=2)
    told = await shown(door)
    assert (told["bundleVersion"], told["bundleHeld"], at(told)) == (2, 2, door.estate.clock())
    await change(door, 60)
    assert (await node.bundle(held=2)).headers["etag"] == '"3"'
    told = await shown(door)
    assert (told["bundleVersion"], told["bundleHeld"]) == (3, 2)
    await node.bundle(held=3)
    assert (await shown(door))["bundleHeld"] == 3
    assert (await shown(door, OTHER))["bundleHeld"] is None


async def test_what_does_not_change_is_written_every_five_minutes_alone(door: Door) -> None:
    await launched(door)
    node = await registered(door)
    began = door.estate.clock()
    written = []
    for _ in range(12):
        await node.bundle(held=2)
        written.append((at(await shown(door)) - began).total_seconds() / MINUTE)
        door.estate.clock.move(MINUTE)
    assert written == [0] * 5 + [5] * 5 + [10] * 2


async def test_only_a_version_of_ours_is_a_report(door: Door) -> None:
    await launched(door)
    node = await registered(door)
    for tag in ('W/"2"', "2", "*", '"0"', '"-1"', '"two"', '"2", "3"', f'"{"9" * 40}"'):
        assert await asked(node, tag) == 200, tag
        assert (await shown(door))["bundleHeld"] is None, tag
    assert await asked(node, '"999999999999999"') == 200
    assert (await shown(door))["bundleHeld"] == 999_999_999_999_999


async def asked(node: NodeClient, tag: str) -> int:
    path = f"/nodes/{node.instance_id}/bundle"
    headers = node.signed(Asked("GET", path)) | {"If-None-Match": tag}
    return (await node.http.get(path, headers=headers)).status_code


async def test_a_node_that_does_not_take_what_was_issued_long_ago_is_counted(door: Door) -> None:
    await launched(door)
    node = await registered(door)
    await change(door, 60)
    before = late()
    for minutes in (0, 9, 1):
        door.estate.clock.move(minutes * MINUTE)
        await node.bundle(held=2)
    assert late() == before, "it is given ten minutes"
    door.estate.clock.move(MINUTE)
    await node.bundle(held=2)
    assert late() == before + 1
    await node.bundle(held=3)
    assert late() == before + 1
    await node.bundle(held=9)
    assert late() == before + 2, "it holds what we have never issued, and takes nothing from us"
    shown_as = door.registry.get_sample_value("sco_bundle_reports_late_total")
    assert shown_as == late()
