"""The history of a pool over REST: every event of it has words for a person."""

from __future__ import annotations

import pytest

from api.pool_history import WORDS
from store.serving_history import POOL_TOPICS
from tests.api.door import Door, problem
from tests.api.test_pools import FACTS
from wire.examples import EXAMPLES
from wire.payloads import Payload

OF_POOLS = [one for one in EXAMPLES if one.topic in POOL_TOPICS]


def test_every_event_of_a_pool_has_words() -> None:
    assert set(WORDS) == set(POOL_TOPICS) == {one.topic for one in OF_POOLS}


@pytest.mark.parametrize("event", OF_POOLS, ids=lambda event: type(event).__name__)
def test_words_are_for_people(event: Payload) -> None:
    text = WORDS[event.topic](event.document())
    assert text
    assert "_" not in text
    assert "None" not in text


def test_who_did_it_is_said_where_it_is_known() -> None:
    for event in OF_POOLS:
        told = event.document()
        named = {name: told.pop(name) for name in ("registeredBy", "changedBy") if name in told}
        words = WORDS[event.topic]
        assert words(told | named) == words(told) + "".join(f", by {name}" for name in named.values())


async def test_everybody_who_changes_a_pool_is_named(door: Door) -> None:
    where = "/factory/compute-pools/gpu-1"
    async with door.as_(sub="ada") as ada, door.as_(sub="grace") as grace:
        await ada.post("/factory/compute-pools", json=FACTS | {"poolId": "gpu-1"})
        await grace.post(f"{where}/activate", headers={"If-Match": "*"})
        await ada.patch(where, json={"coldStartSeconds": 90}, headers={"If-Match": "*"})
        await grace.post(f"{where}/drain", headers={"If-Match": "*"})
        told = (await ada.get(f"{where}/history")).json()["events"]
    assert [one["text"] for one in told] == [
        "active → draining, by grace",
        "changed: seconds of a cold start 0 → 90, by ada",
        "draft → active, by grace",
        "registered as draft, by ada",
    ]


async def test_a_pool_that_is_nowhere_has_no_history(read_door: Door) -> None:
    problem(await read_door.get("/factory/compute-pools/nobody/history"), 404, "unknown_pool")
    told = (await read_door.get("/factory/compute-pools/eu-north-h1-gp-m/history")).json()
    assert told == {"models": [], "loads": [], "requests": [], "events": [], "usage": []}
