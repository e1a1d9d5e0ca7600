"""A notice is the provider's, for this instance, and consistent in itself, or it is none."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from tests.wire.letters import AT, BUNDLE, KEY, NEXT_KEY, NOTICE, OWN, RING, WITHDRAWAL, resaid, spoiled
from wire.bundle import write_bundle
from wire.notices import (
    MAX_WARNING_SECONDS,
    Notice,
    NoticeKind,
    NoticeRefusal,
    NoticeRefusedAs,
    read_notice,
    write_notice,
)
from wire.signing import LetterKind, seal


def refused(raw: bytes, instance_id: str = OWN) -> NoticeRefusal:
    read = read_notice(raw, RING, instance_id)
    assert isinstance(read, NoticeRefusal), read
    return read


def said(**changed: Any) -> bytes:
    """A signed letter with another content, as a provider with a mistake would send it."""
    payload = NOTICE.model_dump(mode="json", by_alias=True, exclude_none=True) | changed
    return seal(LetterKind.NOTICE, {name: value for name, value in payload.items() if value != "-"}, KEY)


@pytest.mark.parametrize(
    "notice", [NOTICE, WITHDRAWAL, NOTICE.model_copy(update={"kind": NoticeKind.ADVISORY})]
)
def test_a_notice_is_read_as_it_was_written(notice: Notice) -> None:
    assert read_notice(write_notice(notice, KEY), RING, OWN) == notice


def test_no_byte_of_a_notice_can_change_what_it_says() -> None:
    raw = write_notice(NOTICE, KEY)
    for one in spoiled(raw):
        read = read_notice(one, RING, OWN)
        assert isinstance(read, NoticeRefusal) or read == NOTICE


def test_a_deadline_that_was_moved_on_the_way_is_forged() -> None:
    raw = write_notice(NOTICE, KEY)
    payload = json.loads(raw)["payload"] | {"deadline": "2030-01-01T13:00:00Z"}
    assert refused(resaid(raw, payload=payload)).reason is NoticeRefusedAs.FORGED


@pytest.mark.parametrize(
    "raw",
    [
        write_notice(NOTICE, NEXT_KEY),
        write_bundle(BUNDLE, KEY),
        resaid(write_notice(NOTICE, NEXT_KEY), keyId=KEY.key_id),
        resaid(write_bundle(BUNDLE, KEY), kind="notice.v1"),
    ],
    ids=["another key", "a bundle", "another key by a known name", "a bundle by another name"],
)
def test_what_the_provider_did_not_sign_as_a_notice_is_forged(raw: bytes) -> None:
    assert refused(raw).reason is NoticeRefusedAs.FORGED


def test_a_notice_for_another_instance_is_foreign() -> None:
    told = refused(write_notice(NOTICE, KEY), "server-2")
    assert told == (NoticeRefusedAs.FOREIGN, "for instance server-1, not server-2")


@pytest.mark.parametrize(
    ("changed", "field"),
    [
        ({"noticeId": "-"}, "noticeId"),
        ({"noticeId": "x"}, "noticeId"),
        ({"instanceId": "a.b"}, "instanceId"),
        ({"instanceId": ">"}, "instanceId"),
        ({"instanceId": ""}, "instanceId"),
        ({"hall": "Hall"}, "hall"),
        ({"hall": "a.b"}, "hall"),
        ({"hall": "*"}, "hall"),
        ({"kind": "soft"}, "kind"),
        ({"cause": "command"}, "cause"),
        ({"issuedAt": "2030-01-01T12:00:00"}, "issuedAt"),
        ({"issuedAt": "yesterday"}, "issuedAt"),
        ({"issuedAt": None}, "issuedAt"),
        ({"deadline": "2030-01-01T12:02:00"}, "deadline"),
        ({"deadline": [1]}, "deadline"),
        ({"reason": "x" * 201}, "reason"),
        ({"reason": 5}, "reason"),
    ],
)
def test_a_wrong_field_is_named(changed: dict[str, Any], field: str) -> None:
    told = refused(said(**changed))
    assert told.reason is NoticeRefusedAs.MALFORMED
    assert told.detail.startswith(field)
    assert len(told.detail) <= 200


@pytest.mark.parametrize(
    "changed",
    [
        {"deadline": "-"},
        {"withdraws": str(NOTICE.notice_id)},
        {"kind": "withdrawal"},
        {"kind": "withdrawal", "deadline": "-"},
        {"deadline": "2030-01-01T11:59:59Z"},
        {"deadline": "2030-01-01T13:00:01Z"},
        {"issuedAt": "1970-01-01T00:00:00Z"},
    ],
    ids=str,
)
def test_a_notice_that_contradicts_itself_is_malformed(changed: dict[str, Any]) -> None:
    assert refused(said(**changed)).reason is NoticeRefusedAs.MALFORMED


def test_the_longest_and_the_shortest_warning_are_believed() -> None:
    for seconds in (0, MAX_WARNING_SECONDS):
        notice = NOTICE.model_copy(update={"deadline": AT + timedelta(seconds=seconds)})
        assert read_notice(write_notice(notice, KEY), RING, OWN) == notice


def test_fields_of_a_newer_provider_are_left_aside_and_carry_no_command() -> None:
    assert read_notice(said(command="rm -rf /", priority=9), RING, OWN) == NOTICE


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (b"", NoticeRefusedAs.MALFORMED),
        (b"[" * 20_000, NoticeRefusedAs.MALFORMED),
        (b"{}", NoticeRefusedAs.MALFORMED),
        (b"x" * 70_000, NoticeRefusedAs.TOO_LARGE),
    ],
    ids=["nothing", "deep", "empty", "large"],
)
def test_what_is_no_letter_at_all(raw: bytes, reason: NoticeRefusedAs) -> None:
    assert refused(raw).reason is reason


NAMES = st.sampled_from([*json.loads(said())["payload"], "x"])


@given(st.dictionaries(NAMES, st.none() | st.integers(-9, 9) | st.text("abc-:TZ0", max_size=9), max_size=6))
def test_signed_nonsense_is_refused_and_never_raises(payload: dict[str, Any]) -> None:
    assert refused(seal(LetterKind.NOTICE, payload, KEY)).reason is NoticeRefusedAs.MALFORMED


def test_a_notice_cannot_be_made_inconsistent() -> None:
    with pytest.raises(ValidationError, match="has a deadline"):
        Notice(**NOTICE.model_dump(exclude={"deadline"}))
