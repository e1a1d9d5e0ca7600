"""Nodes and drains over the API and on the screens: lists, filters, pages, and one drain explained."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest
import pytest_asyncio

from domain.cause import Cause
from domain.lifecycle import EventType
from tests.api.door import Door, door_on, problem
from tests.api.test_screens import HOSTILE, shown
from tests.domain.drains import AT, happened, honest, notice
from tests.estates import Estate
from tests.store.histories import keep, lose, own

T = EventType


async def fill(door: Door) -> Door:
    """n1 drained, and before that in a drill; n2 overran, n3 was gone without notice, n4 drains, n5 lives."""
    engine = door.estate.engine
    await own(engine, "n1", "n2", "n3", "n4", "n5", tenant="platform")
    await keep(engine, "n1", [*honest(1), *honest(2, starts=-7200, cause=Cause.DRILL, first=20)])
    overrun = happened(T.OVERRUN, 118, 9, seconds_to_spare=2.0, seconds_since_notice=118.0)
    await keep(engine, "n2", [*honest()[:2], overrun])
    await lose(engine, "n3", cause=Cause.UNKNOWN)
    await keep(engine, "n4", honest()[:2])
    await keep(engine, "n5", [happened(T.READY, 0, 1, of=None)])
    return door


@pytest_asyncio.fixture(scope="module")
async def history(shared_estate: Estate) -> AsyncIterator[Door]:
    """For tests that only read."""
    async with door_on(shared_estate) as door:
        yield await fill(door)


@pytest_asyncio.fixture
async def own_history(door: Door) -> Door:
    return await fill(door)


async def listed(door: Door, path: str = "/drains", **query: Any) -> list[str]:
    answer = await door.get(path, **query)
    assert answer.status_code == 200, answer.text
    return [one["instanceId"] for one in answer.json()["items"]]


async def test_drains_are_listed_newest_first_and_filtered(history: Door) -> None:
    assert await listed(history) == ["n4", "n3", "n2", "n1", "n1"]
    assert await listed(history, outcome="overrun") == ["n2"]
    assert await listed(history, outcome="open") == ["n4"]
    assert await listed(history, cause="drill") == ["n1"]
    assert await listed(history, cause="unknown") == ["n3"]
    assert await listed(history, instanceId="n1") == ["n1", "n1"]
    assert await listed(history, hall="eu-north-h1", since="2030-01-31T23:00:00Z") == ["n4", "n3", "n2", "n1"]
    assert await listed(history, hall="eu-north-h2") == []


async def test_drains_come_a_page_at_a_time(history: Door) -> None:
    seen: list[str] = []
    token: str | None = None
    for _ in range(9):
        query = {"pageSize": 2} | ({"pageToken": token} if token else {})
        page = (await history.get("/drains", **query)).json()
        seen += [f"{one['instanceId']} {one['drainId']}" for one in page["items"]]
        token = page["nextPageToken"]
        if token is None:
            break
    assert len(seen) == len(set(seen)) == 5
    first = (await history.get("/drains", pageSize=1)).json()["nextPageToken"]
    problem(await history.get("/drains", pageToken=first, outcome="open"), 422, "bad_page_token")


@pytest.mark.parametrize(
    ("query", "told"),
    [
        ({"outcome": "asleep"}, "outcome"),
        ({"cause": "weather"}, "cause"),
        ({"since": "yesterday"}, "2030-01-31T12:00:00Z"),
        ({"since": "2030-01-31T12:00:00"}, "moment with its zone"),
        ({"since": "0"}, "moment with its zone"),
        ({"instanceId": "a/b"}, "instanceId"),
        ({"state": "open"}, "state"),
    ],
)
async def test_a_wrong_filter_is_refused_with_what_is_allowed(
    history: Door, query: dict[str, str], told: str
) -> None:
    document = problem(await history.get("/drains", **query), 422, "invalid_request")
    assert told in document["detail"]


async def test_a_drain_is_explained_second_by_second(history: Door) -> None:
    told = (await history.get("/drains/n1")).json()
    assert (told["outcome"], told["cause"], told["countsInLedger"]) == ("drained", "reclaim", True)
    assert told["secondsToSpare"] == 83.1
    assert told["signalledAfterSeconds"] == 0.12
    assert [(line["seconds"], line["type"]) for line in told["lines"]] == [
        (0.0, "notice"),
        (0.12, "signalled"),
        (35.0, "checkpointed"),
        (36.8, "work_ended"),
        (36.9, "drained"),
    ]
    assert told["fault"] == "nobody"
    assert told["gaps"] == []
    drill = (await history.get("/drains/n1", drainId=str(notice(2)))).json()
    assert (drill["cause"], drill["noticeAt"]) == ("drill", "2030-01-31T21:59:30Z")


@pytest.mark.parametrize(
    ("node", "fault", "gap"),
    [("n2", "workload", "Events 3 to 8"), ("n3", "unknown", None), ("n4", "unknown", "Nothing was heard")],
)
async def test_every_outcome_says_whose_fault_it_was(
    history: Door, node: str, fault: str, gap: str | None
) -> None:
    told = (await history.get(f"/drains/{node}")).json()
    assert told["fault"] == fault
    assert told["sentence"].endswith(".")
    assert [one for one in told["gaps"] if gap and gap in one] == told["gaps"]


async def test_a_drain_whose_events_are_no_longer_kept_still_has_its_end(own_history: Door) -> None:
    await own_history.estate.rows("DELETE FROM lifecycle_events")
    told = (await own_history.get("/drains/n1")).json()
    assert (told["outcome"], told["fault"], told["lines"]) == ("drained", "nobody", [])
    assert told["gaps"] == ["Its events are no longer kept."]


async def test_a_node_without_a_drain_has_none_to_explain(history: Door) -> None:
    for path in ("/drains/n5", "/drains/nobody", f"/drains/n1?drainId={notice(9)}"):
        document = problem(await history.get(path), 404, "unknown_drain")
        assert "GET /drains" in document["whatToDo"]


async def test_live_nodes_have_their_bundle_their_last_event_and_their_drain(own_history: Door) -> None:
    estate = own_history.estate
    await estate.rows(
        "INSERT INTO bundles (tenant_id, instance_id, version, content_digest, key_id, letter, issued_at)"
        " VALUES ('platform', 'n4', 7, 'd', 'k', '', :at), ('platform', 'n4', 6, 'd', 'k', '', :at)",
        at=estate.clock() - timedelta(seconds=90),
    )
    found = {one["instanceId"]: one for one in (await own_history.get("/nodes")).json()["items"]}
    assert list(found) == ["n1", "n2", "n3", "n4", "n5"]
    assert (found["n4"]["bundleVersion"], found["n4"]["bundleAgeSeconds"]) == (7, 90)
    assert found["n4"]["drain"]["outcome"] == "open"
    assert found["n4"]["lastEvent"]["type"] == "signalled"
    assert (found["n5"]["bundleVersion"], found["n5"]["drain"]) == (None, None)
    assert found["n1"]["drain"]["drainId"] == str(notice(1))


async def test_nodes_are_filtered_and_paged(own_history: Door) -> None:
    assert await listed(own_history, "/nodes", draining="true") == ["n4"]
    assert await listed(own_history, "/nodes", draining="false", workloadId="orders") == [
        "n1",
        "n2",
        "n3",
        "n5",
    ]
    assert await listed(own_history, "/nodes", hall="eu-north-h2") == []
    first = (await own_history.get("/nodes", pageSize=2)).json()
    assert await listed(own_history, "/nodes", pageToken=first["nextPageToken"]) == ["n3", "n4", "n5"]
    await own_history.estate.rows("UPDATE instances SET state = 'lost' WHERE server_id = 'n4'")
    assert await listed(own_history, "/nodes", draining="true") == []


async def test_another_tenant_finds_none_of_it(history: Door) -> None:
    async with history.as_(tenant_id="umbra") as other:
        for path in ("/drains", "/nodes"):
            assert (await other.get(path)).json()["items"] == []
        problem(await other.get("/drains/n1"), 404, "unknown_drain")


async def test_the_screens_show_the_same(history: Door) -> None:
    every = await shown(history, "/ui/drains")
    assert [one.attributes["href"] for one in every.all("a") if "?drain=" in (one.attributes["href"] or "")]
    for word in ("n1", "n2", "n3", "n4", "overrun", "no notice", "83.1 s", "0.12 s"):
        assert word in every.text
    one = await shown(history, "/ui/drains/n1")
    for word in (
        "Nobody's fault",
        "T+0.12",
        "The work was told to end by slurm",
        "83.1 s",
        "Other drains of this node",
    ):
        assert word in one.text
    assert "What is not known" not in one.text
    assert "What is not known" in (await shown(history, "/ui/drains/n4")).text
    assert "No drain fits these filters" in (await shown(history, "/ui/drains?outcome=withdrawn")).text
    await shown(history, "/ui/drains/nobody", 404)


async def test_the_screen_of_nodes_shows_the_same_too(own_history: Door) -> None:
    estate = own_history.estate
    await estate.rows(
        "INSERT INTO bundles (tenant_id, instance_id, version, content_digest, key_id, letter, issued_at)"
        " VALUES ('platform', 'n4', 7, 'd', 'k', '', :at)",
        at=estate.clock() - timedelta(seconds=90),
    )
    every = await shown(own_history, "/ui/nodes")
    for word in ("n1", "n2", "n3", "n4", "n5", "signalled", "open", "overrun", "at launch", "7"):
        assert word in every.text
    links = {one.attributes["href"] for one in every.all("a")}
    assert f"/ui/drains/n1?drain={notice(1)}" in links
    assert not any("/n5" in (one or "") for one in links)
    draining = await shown(own_history, "/ui/nodes?draining=yes&hall=&workloadId=orders")
    assert [one.text.strip() for one in draining.all("th") if one.attributes.get("scope") == "row"] == ["n4"]
    resting = await shown(own_history, "/ui/nodes?draining=no")
    assert "n5" in resting.text
    assert "n4" not in resting.text
    assert "No node fits these filters" in (await shown(own_history, "/ui/nodes?hall=eu-north-h2")).text
    await shown(own_history, "/ui/nodes?draining=perhaps", 422)


async def test_without_a_node_or_a_drain_the_screens_say_so(door: Door) -> None:
    assert "No instance lives yet." in (await shown(door, "/ui/nodes")).text
    assert "No node was taken back yet." in (await shown(door, "/ui/drains")).text


async def test_what_a_node_says_is_text(own_history: Door) -> None:
    await keep(own_history.estate.engine, "n2", [happened(T.CHECKPOINTED, 30, 5, detail=HOSTILE)])
    page = await shown(own_history, "/ui/drains/n2")
    assert HOSTILE in page.text
    assert page.all("script") == page.all("img") == []
    assert AT.isoformat() in [one.attributes.get("datetime") for one in page.all("time")]
