"""A request of a node is believed as it was signed, and in no other way."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from wire.node_requests import (
    HEADERS,
    INSTANCE_HEADER,
    MAX_SKEW,
    NONCE_HEADER,
    SIGNATURE_HEADER,
    TIME_HEADER,
    Asked,
    Head,
    RequestRefusal,
    RequestRefusedAs,
    canonical,
    read_head,
    sign_request,
    verify_request,
)

KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
OTHER_KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(1, 33)))
NOW = datetime(2030, 1, 1, 12, 0, 0, 250_000, tzinfo=UTC)
OWN, OTHER = "6b1d7a1e-0f3c-4f0a-9a53-2d1b3f7c0001", "6b1d7a1e-0f3c-4f0a-9a53-2d1b3f7c0002"
PATH = f"/nodes/{OWN}/bus-credentials"
ASKED = Asked("POST", PATH, b'{"busKey":"U"}')
NONCE = "abcdefghijklmnop"
SECOND = timedelta(seconds=1)
Headers = list[tuple[str, str]]


def signed(asked: Asked = ASKED, **changed: object) -> dict[str, str]:
    said = {"key": KEY, "instance_id": OWN, "at": NOW, "nonce": NONCE} | changed
    return sign_request(asked, **said)  # type: ignore[arg-type]


def judged(
    headers: Headers | dict[str, str], asked: Asked = ASKED, *, now: datetime = NOW, instance_id: str = OWN
) -> RequestRefusedAs | None:
    """Why a request is refused, or None when it is believed."""
    head = read_head(headers.items() if isinstance(headers, dict) else headers)
    if isinstance(head, RequestRefusal):
        assert head.detail
        return head.reason
    refused = verify_request(head, asked, key=KEY.public_key(), instance_id=instance_id, now=now)
    return refused.reason if refused else None


def test_what_is_signed_is_this() -> None:
    assert canonical(Asked("GET", "/nodes/x/bundle?a=1"), "2030-01-01T12:00:00Z", NONCE) == (
        b"GET\n/nodes/x/bundle?a=1\n2030-01-01T12:00:00Z\nabcdefghijklmnop\n"
        b"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    )


@pytest.mark.parametrize(
    "at", [NOW, NOW - MAX_SKEW, NOW + MAX_SKEW, NOW.astimezone(timezone(5 * SECOND * 3600))]
)
def test_a_request_is_believed_for_a_minute_either_way(at: datetime) -> None:
    assert judged(signed(at=at)) is None


def test_a_request_without_a_body_and_with_a_query_is_believed() -> None:
    asked = Asked("GET", f"/nodes/{OWN}/bundle?x=%20&y=ä".replace("ä", "%C3%A4"))
    assert judged(signed(asked), asked) is None


OTHERWISE: dict[str, Asked] = {
    "another method": ASKED._replace(method="PUT"),
    "no body": ASKED._replace(body=b""),
    "a longer body": ASKED._replace(body=ASKED.body + b" "),
    "a shorter body": ASKED._replace(body=ASKED.body[:-1]),
    "a body with one bit changed": ASKED._replace(body=bytes([ASKED.body[0] ^ 1]) + ASKED.body[1:]),
    "a body that is the digest": ASKED._replace(body=b"e3b0c442"),
    "another path": ASKED._replace(target=f"/nodes/{OWN}/bundle"),
    "the path of another instance": ASKED._replace(target=PATH.replace(OWN, OTHER)),
    "a query more": ASKED._replace(target=PATH + "?x=1"),
    "an empty query": ASKED._replace(target=PATH + "?"),
    "a slash more": ASKED._replace(target=PATH + "/"),
    "a path written otherwise": ASKED._replace(target=PATH.replace("-", "%2d")),
    "a path in other letters": ASKED._replace(target=PATH.upper()),
    "a path with a prefix": ASKED._replace(target="/v1" + PATH),
    "a path with dots": ASKED._replace(target="/nodes/../nodes" + PATH.removeprefix("/nodes")),
}


@pytest.mark.parametrize("name", OTHERWISE)
def test_another_request_is_not_the_one_that_was_signed(name: str) -> None:
    assert judged(signed(), OTHERWISE[name]) is RequestRefusedAs.BAD_SIGNATURE


@pytest.mark.parametrize(
    "asked",
    [
        ASKED._replace(method="post"),
        ASKED._replace(method=""),
        ASKED._replace(method="POST\nGET"),
        ASKED._replace(method="P" * 17),
        ASKED._replace(target=""),
        ASKED._replace(target="nodes/x"),
        ASKED._replace(target="http://x/"),
        ASKED._replace(target=PATH + "\n"),
        ASKED._replace(target=PATH + " "),
        ASKED._replace(target=PATH + "\r\nx"),
        ASKED._replace(target=PATH + "ä"),
        ASKED._replace(target=PATH + "\x00"),
        ASKED._replace(target="/" + "x" * 2048),
    ],
    ids=repr,
)
def test_what_could_be_read_as_something_else_is_neither_signed_nor_believed(asked: Asked) -> None:
    with pytest.raises(ValueError, match=r"a method|a target"):
        signed(asked)
    assert judged(signed(), asked) is RequestRefusedAs.MALFORMED


@pytest.mark.parametrize(
    "late",
    [MAX_SKEW + SECOND, -MAX_SKEW - SECOND, timedelta(days=1), timedelta(days=-365), timedelta(days=9000)],
)
def test_a_request_of_another_time_is_stale(late: timedelta) -> None:
    assert judged(signed(), now=NOW + late) is RequestRefusedAs.STALE


def test_a_request_is_for_the_instance_that_signed_it() -> None:
    assert judged(signed(), instance_id=OTHER) is RequestRefusedAs.FOREIGN
    assert judged(signed(instance_id=OTHER)) is RequestRefusedAs.FOREIGN
    assert judged(signed(key=OTHER_KEY)) is RequestRefusedAs.BAD_SIGNATURE


def test_time_and_nonce_are_signed_too() -> None:
    assert judged(signed() | {NONCE_HEADER: "b" * 16}) is RequestRefusedAs.BAD_SIGNATURE
    later = signed(at=NOW + SECOND)[TIME_HEADER]
    assert judged(signed() | {TIME_HEADER: later}) is RequestRefusedAs.BAD_SIGNATURE
    same_moment = signed()[TIME_HEADER].replace("250000Z", "25Z")
    assert judged(signed() | {TIME_HEADER: same_moment}) is RequestRefusedAs.BAD_SIGNATURE


@pytest.mark.parametrize("name", HEADERS)
def test_no_header_may_be_missing_or_come_twice(name: str) -> None:
    headers = signed()
    assert judged([one for one in headers.items() if one[0] != name]) is RequestRefusedAs.MISSING
    assert judged([*headers.items(), (name, headers[name])]) is RequestRefusedAs.MALFORMED
    assert judged([(name, "x"), *headers.items()]) is RequestRefusedAs.MALFORMED


GOOD_SIGNATURE = signed()[SIGNATURE_HEADER]
BAD_VALUES: tuple[tuple[str, str], ...] = (
    (INSTANCE_HEADER, ""),
    (INSTANCE_HEADER, OWN + "\n"),
    (INSTANCE_HEADER, f" {OWN}"),
    (INSTANCE_HEADER, "a.b"),
    (INSTANCE_HEADER, "-a"),
    (INSTANCE_HEADER, "a" * 64),
    (INSTANCE_HEADER, "ä"),
    (INSTANCE_HEADER, ">"),
    (TIME_HEADER, ""),
    (TIME_HEADER, "now"),
    (TIME_HEADER, "2030-01-01"),
    (TIME_HEADER, "2030-01-01T12:00:00"),
    (TIME_HEADER, "2030-01-01T12:00:00+00:00"),
    (TIME_HEADER, "2030-01-01T12:00:00z"),
    (TIME_HEADER, "2030-01-01 12:00:00Z"),
    (TIME_HEADER, "2030-13-01T12:00:00Z"),
    (TIME_HEADER, "2030-02-30T12:00:00Z"),
    (TIME_HEADER, "2030-01-01T25:00:00Z"),
    (TIME_HEADER, "2030-01-01T12:00:00.0000001Z"),
    (TIME_HEADER, "0000-01-01T12:00:00Z"),
    (TIME_HEADER, "1893499200"),
    (TIME_HEADER, "٢٠٣٠-01-01T12:00:00Z"),
    (TIME_HEADER, "2030-01-01T12:00:00Z\n"),
    (NONCE_HEADER, ""),
    (NONCE_HEADER, "short"),
    (NONCE_HEADER, "a" * 65),
    (NONCE_HEADER, "a" * 15 + "\n"),
    (NONCE_HEADER, "a" * 16 + "\n"),
    (NONCE_HEADER, "a b" * 6),
    (NONCE_HEADER, "ä" * 16),
    (SIGNATURE_HEADER, ""),
    (SIGNATURE_HEADER, "!!!!"),
    (SIGNATURE_HEADER, "AAAA"),
    (SIGNATURE_HEADER, GOOD_SIGNATURE[:-4]),
    (SIGNATURE_HEADER, GOOD_SIGNATURE + "AAAA"),
    (SIGNATURE_HEADER, GOOD_SIGNATURE + "\n"),
    (SIGNATURE_HEADER, " " + GOOD_SIGNATURE),
    (SIGNATURE_HEADER, GOOD_SIGNATURE.rstrip("=")),
    (SIGNATURE_HEADER, base64.urlsafe_b64encode(bytes([251]) * 64).decode()),
    (SIGNATURE_HEADER, base64.b16encode(bytes(64)).decode()),
)


@pytest.mark.parametrize(("name", "value"), BAD_VALUES, ids=ascii)
def test_a_header_with_another_form_is_refused(name: str, value: str) -> None:
    assert judged(signed() | {name: value}) is RequestRefusedAs.MALFORMED


def test_one_signature_has_one_text() -> None:
    """The bits that base64 leaves over are no second way to write it."""
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
    last = GOOD_SIGNATURE[-3]
    for other in alphabet:
        if other != last:
            text = f"{GOOD_SIGNATURE[:-3]}{other}=="
            assert judged(signed() | {SIGNATURE_HEADER: text}) is not None


def flipped(raw: bytes) -> Iterator[bytes]:
    for place in range(len(raw)):
        for bit in range(8):
            yield raw[:place] + bytes([raw[place] ^ (1 << bit)]) + raw[place + 1 :]


def test_no_bit_of_the_signature_or_the_body_can_change() -> None:
    headers = signed()
    for other in flipped(base64.b64decode(GOOD_SIGNATURE)):
        text = base64.b64encode(other).decode()
        assert judged(headers | {SIGNATURE_HEADER: text}) is RequestRefusedAs.BAD_SIGNATURE
    for body in flipped(ASKED.body):
        assert judged(headers, ASKED._replace(body=body)) is RequestRefusedAs.BAD_SIGNATURE


@given(st.dictionaries(st.sampled_from(HEADERS), st.text(max_size=100)), st.lists(st.text(max_size=20)))
def test_headers_of_anything_are_refused_and_never_raise(values: dict[str, str], names: list[str]) -> None:
    assert judged([*values.items(), *((name, "x") for name in names)]) is not None


@given(st.binary(max_size=200), st.from_regex(r"\A/[\x21-\x7e]{0,60}\Z"))
def test_whatever_is_signed_is_believed(body: bytes, target: str) -> None:
    asked = Asked("POST", target, body)
    head = read_head(signed(asked).items())
    assert isinstance(head, Head)
    assert verify_request(head, asked, key=KEY.public_key(), instance_id=OWN, now=NOW) is None


@pytest.mark.parametrize("nonce", ["", "a" * 15, "a" * 65, "a" * 15 + "\n", "ä" * 16])
def test_a_nonce_that_nobody_would_believe_is_not_signed(nonce: str) -> None:
    with pytest.raises(ValueError, match="a nonce"):
        signed(nonce=nonce)
