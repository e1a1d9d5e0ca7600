"""Long lists: every server once, in pages, at a cost that follows the page and not the fleet."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from lab.cloud.cloud import Cloud
from lab.cloud.identity import PROJECT_ID
from lab.cloud.server import CloudHandle
from lab.cloud.table import ServerQuery
from tests.lab.cloud_support import BUILT, LATEST, REGION, create, manual_cloud

FLEET = {"eu-north": 6_700, "eu-west": 6_700, "eu-south": 6_600}
TAG = "sco:partition=k8s-eu-north"


@pytest.fixture(scope="module")
def cloud() -> Iterator[CloudHandle]:
    """A cloud that holds 20,000 instances."""
    with manual_cloud() as handle:
        for region, count in FLEET.items():
            assert handle.admin.load(region, count, tags=(TAG,), metadata={"sco_workload": "w1"}) == count
        yield handle


def page(connection: Any, query: str, kind: str = "/servers/detail") -> dict[str, Any]:
    answer = connection.compute.get(f"{kind}?{query}", microversion=LATEST)
    assert answer.status_code == 200
    return dict(answer.json())


def test_the_sdk_pages_through_more_than_a_thousand(cloud: CloudHandle) -> None:
    listed = [server.id for server in cloud.connect().compute.servers(details=False)]

    assert len(listed) == len(set(listed)) == FLEET[REGION]
    assert set(listed) == {server["id"] for server in cloud.admin.servers(region=REGION)}


def test_a_page_is_at_most_a_thousand_and_links_to_the_next(cloud: CloudHandle) -> None:
    connection = cloud.connect()
    first = page(connection, "limit=5000", "/servers")
    short = page(connection, f"limit=3&tags={TAG}&status=ACTIVE", "/servers")
    link = short["servers_links"][0]

    assert len(first["servers"]) == 1_000
    assert link["rel"] == "next"
    assert link["href"].endswith(f"marker={short['servers'][-1]['id']}")
    following = connection.session.get(link["href"]).json()["servers"]
    assert [server["id"] for server in following] == [server["id"] for server in first["servers"][3:6]]


def test_newest_comes_first_and_asc_turns_it_round(cloud: CloudHandle) -> None:
    connection = cloud.connect()
    forward = page(connection, "limit=2&sort_key=created_at&sort_dir=asc", "/servers")["servers"]
    marker = forward[-1]["id"]
    onward = page(connection, f"limit=2&sort_dir=asc&sort_key=created_at&marker={marker}", "/servers")[
        "servers"
    ]

    assert forward[0]["name"].startswith("load-eu-north-h1-gp-s")
    assert not {server["id"] for server in forward} & {server["id"] for server in onward}


def test_a_marker_that_was_deleted_meanwhile_still_continues(cloud: CloudHandle) -> None:
    connection = cloud.connect("eu-south")
    ids = [server["id"] for server in page(connection, "limit=4", "/servers")["servers"]]
    cloud.admin.terminate(ids[1])

    rest = page(connection, f"limit=2&marker={ids[1]}", "/servers")["servers"]
    assert [server["id"] for server in rest] == ids[2:]


def test_finding_a_few_among_twenty_thousand_looks_at_a_few(cloud: CloudHandle) -> None:
    connection = cloud.connect()
    rare = [create(connection, "gp.m", name=f"rare-{number}", tags=["rare"]).id for number in range(3)]
    cloud.admin.advance(BUILT)

    def look(inside: Cloud) -> tuple[list[str], int]:
        query = ServerQuery(every=frozenset({("project", PROJECT_ID), ("tag", "rare"), ("status", "ACTIVE")}))
        found = inside.regions[REGION].servers.page(query, 1_000)
        return [server.id for server in found.servers], found.visited

    assert cloud.call(look) == (rare[::-1], 3)
    assert len(cloud.admin.servers(metadata={"sco_workload": "w1"})) == sum(FLEET.values())


def test_a_page_of_a_thousand_costs_a_small_multiple_of_a_hundred(cloud: CloudHandle) -> None:
    connection = cloud.connect()

    def fastest(limit: int) -> float:
        times = []
        for _ in range(7):
            started = time.perf_counter()
            connection.compute.get(f"/servers/detail?limit={limit}&tags={TAG}", microversion=LATEST)
            times.append(time.perf_counter() - started)
        return min(times)

    thousand = hundred = float("inf")
    for _ in range(5):
        thousand, hundred = min(thousand, fastest(1_000)), min(hundred, fastest(100))
        if thousand < 10 * hundred:
            return
    raise AssertionError(f"{thousand} s for ten times what takes {hundred} s")
