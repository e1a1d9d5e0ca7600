"""The history of a pool over REST: every event of it has words for a person."""

from __future__ import annotations

import pytest

from api.pool_history import WORDS
from store.serving_history import POOL_TOPICS
from tests.api.door import Door, problem
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


async def test_a_pool_that_is_nowhere_has_no_history(read_door: Door) -> None:
    problem(await read_door.get("/factory/compute-pools/nobody/history"), 404, "unknown_pool")
    told = (await read_door.get("/factory/compute-pools/eu-north-h1-gp-m/history")).json()
    assert told == {"models": [], "loads": [], "requests": [], "events": [], "usage": []}
