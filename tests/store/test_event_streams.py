"""What is remembered of the stream of events, and when it counts as lost."""

from __future__ import annotations

from datetime import timedelta

import pytest

from store import event_streams
from store.event_streams import Known, Seen, is_lost
from tests.estates import START, Estate

STREAM = "SCO_EVENTS"
KNOWN = Known(Seen(START, 40), None)


@pytest.mark.parametrize(
    ("known", "seen", "lost"),
    [
        (None, Seen(START, 0), False),
        (None, Seen(START, 40), False),
        (KNOWN, Seen(START, 40), False),
        (KNOWN, Seen(START, 41), False),
        (KNOWN, Seen(START, 39), True),
        (KNOWN, Seen(START + timedelta(microseconds=1), 40), True),
        (KNOWN, Seen(START - timedelta(days=1), 400), True),
        (KNOWN._replace(resend_after=3), Seen(START, 0), True),
    ],
)
def test_a_stream_is_lost_when_it_is_another_one_or_shorter(
    known: Known | None, seen: Seen, lost: bool
) -> None:
    assert is_lost(known, seen) is lost


async def test_a_stream_is_remembered_as_it_was_seen_last(estate: Estate) -> None:
    async with estate.engine.begin() as connection:
        assert await event_streams.find(connection, STREAM) is None
        for known in (KNOWN, Known(Seen(START, 50), 7), Known(Seen(START + timedelta(hours=1), 0), None)):
            await event_streams.remember(connection, STREAM, known)
            assert await event_streams.find(connection, STREAM) == known
        await event_streams.remember(connection, "ANOTHER", KNOWN)
        assert await event_streams.find(connection, STREAM) == known
