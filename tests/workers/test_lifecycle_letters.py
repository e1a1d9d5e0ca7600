"""Whatever lies on the bus is read or refused in words, and what is read fits into the database."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from domain.drain_history import fold
from store.lifecycle import month_of
from tests.domain.drains import honest
from tests.workers.node_post import HALL, letter
from wire.node import lifecycle_subject
from workers.lifecycle_letters import MOST_LOST, Letter, Refusal, RefusedAs, read_letter

SUBJECT = lifecycle_subject(HALL, "n1")
WHOLE: dict[str, Any] = json.loads(letter("n1", honest()[4]))
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)
times = st.sampled_from(
    ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-12:00", "1970-01-01T00:00:00Z", "8999-12-31T00:00:00Z"]
)


def said(**changed: Any) -> bytes:
    return json.dumps(WHOLE | {"data": WHOLE["data"] | changed}).encode()


def accepted(read: Letter | Refusal) -> None:
    """What is read can be kept and folded."""
    if isinstance(read, Letter):
        event = read.arrival.event
        assert month_of(event.occurred_at).day == 1
        assert "\x00" not in event.detail + (event.path or "")
        assert event.lost_events is None or event.lost_events <= MOST_LOST
        assert fold(read.arrival.instance_id, [event]).causes.keys() == {event.event_id}
    else:
        assert read.reason in RefusedAs
        assert read.detail.isprintable()


@given(st.binary(max_size=300))
def test_any_bytes_are_read_or_refused(body: bytes) -> None:
    accepted(read_letter(SUBJECT, body))


@given(st.sampled_from(sorted(WHOLE["data"])), json_values | times)
def test_any_value_in_any_field_is_read_or_refused(field: str, value: object) -> None:
    accepted(read_letter(SUBJECT, said(**{field: value})))


@given(st.text())
def test_any_subject_but_its_own_is_refused(subject: str) -> None:
    read = read_letter(subject, said())
    assert isinstance(read, Letter) == (subject == SUBJECT)
    accepted(read)


@pytest.mark.parametrize("field", ["occurredAt", "deadline"])
@pytest.mark.parametrize("at", ["1969-12-31T23:59:59Z", "9000-01-01T00:00:00Z"])
def test_a_time_that_no_clock_shows_is_refused_by_name(field: str, at: str) -> None:
    read = read_letter(SUBJECT, said(**{field: at}))
    assert isinstance(read, Refusal)
    assert read.reason is RefusedAs.BODY
    assert field in read.detail


def test_what_cannot_be_shown_is_written_as_an_escape() -> None:
    read = read_letter(SUBJECT, said(detail="a\x00b\x1b[2J", lostEvents=2**80))
    assert isinstance(read, Letter)
    assert read.arrival.event.detail == "a\\u0000b\\u001b[2J"
    assert read.arrival.event.lost_events == MOST_LOST


def test_a_node_does_not_speak_for_the_control_plane() -> None:
    read = read_letter(SUBJECT, said(source="controller"))
    assert isinstance(read, Letter)
    assert read.arrival.event.source == "node"
