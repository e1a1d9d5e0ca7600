"""More than 200,000 spoiled inputs at every door of the agent: each is read or refused, and none breaks it.

Every input is made from a number, which a failure names: `inputs(target, valid, [number])`.
"""

from __future__ import annotations

import base64
import json

from agent.api import is_api_url
from agent.socket_lines import read_request
from agent.spool_file import intact
from agent.spool_policy import Spooled, spooled
from tests.agent.fuzzing import (
    BUNDLES,
    COUNTS,
    ENOUGH,
    INSTANCE,
    LINES,
    NOTICES,
    NOW,
    Input,
    feed,
    inputs,
    sealed,
)
from tests.agent.rig import BUNDLE_KEY, NOTICE_KEY
from tests.agent.spooling import event
from wire.bundle import Bundle, BundleRefusal, read_bundle
from wire.bus_credentials import expiry_of, key_of
from wire.lifecycle import EventType, LifecycleEvent, envelope, read_event
from wire.node_requests import HEADERS, Asked, Head, RequestRefusal, read_head, sign_request, verify_request
from wire.notices import Notice, NoticeRefusal, read_notice
from wire.signing import KeyRing, LetterKind

EVENTS = tuple(
    json.dumps(envelope(event(kind, "said", 1))).encode() for kind in (EventType.READY, EventType.GAP)
)
NOTICE_RING = KeyRing({NOTICE_KEY.key_id: NOTICE_KEY.public_text})
BUNDLE_RING = KeyRing({BUNDLE_KEY.key_id: BUNDLE_KEY.public_text})


def test_it_is_enough() -> None:
    assert sum(COUNTS.values()) >= ENOUGH


def test_notices() -> None:
    def take(one: Input) -> None:
        assert isinstance(read_notice(one.raw, NOTICE_RING, INSTANCE), Notice | NoticeRefusal)

    feed(inputs("notice", NOTICES), take)
    feed(sealed("signed notice", LetterKind.NOTICE, NOTICES, NOTICE_KEY), take)


def test_bundles() -> None:
    def take(one: Input) -> None:
        assert isinstance(read_bundle(one.raw, BUNDLE_RING, INSTANCE), Bundle | BundleRefusal)

    feed(inputs("bundle", BUNDLES), take)
    feed(sealed("signed bundle", LetterKind.BUNDLE, BUNDLES, BUNDLE_KEY), take)


def test_lifecycle_events() -> None:
    def take(one: Input) -> None:
        read = read_event(one.raw)
        if isinstance(read, LifecycleEvent):
            json.dumps(envelope(read))
            assert spooled(read, 1).event() is not None

    feed(inputs("event", EVENTS), take)


def test_lines_of_workloads() -> None:
    feed(inputs("line", LINES), lambda one: read_request(one.raw))


def test_addresses() -> None:
    valid = (b'"https://api.example:8443/v1"', b'"http://[::1]:80/"')

    def take(one: Input) -> None:
        try:
            text = json.loads(one.raw)
        except (ValueError, RecursionError):
            text = one.raw.decode(errors="replace")
        assert is_api_url(text) in (True, False)

    feed(inputs("address", valid), take)


def test_headers_of_requests() -> None:
    asked = Asked("GET", "/v1/nodes/i-1/bundle?x=1", b"")
    key = NOTICE_KEY.private
    signed = sign_request(asked, key=key, instance_id=INSTANCE, at=NOW, nonce="n" * 22)
    valid = (json.dumps(list(signed.items())).encode(), json.dumps(dict(signed)).encode())

    def take(one: Input) -> None:
        head = read_head(_pairs(one.raw))
        if isinstance(head, Head):
            told = verify_request(head, asked, key=key.public_key(), instance_id=INSTANCE, now=NOW)
            assert told is None or isinstance(told, RequestRefusal)

    feed(inputs("headers", valid), take)


def _pairs(raw: bytes) -> list[tuple[str, str]]:
    """Headers as a server hands them over: pairs of text, whatever was in them."""
    try:
        found = json.loads(raw)
    except (ValueError, RecursionError):
        return [(name, raw.decode("latin-1")) for name in HEADERS]
    entries = list(found.items()) if isinstance(found, dict) else found
    if not isinstance(entries, list):
        return []
    pairs = [one for one in entries if isinstance(one, list | tuple) and len(one) == 2]
    return [(str(name), value if isinstance(value, str) else json.dumps(value)) for name, value in pairs]


def test_credentials() -> None:

    claims = base64.urlsafe_b64encode(b'{"exp":1893499200,"sub":"U"}').rstrip(b"=")
    seed = b"SUAGC3DPMVTGC3DPMVTGC3DPMVTGC3DPMVTGC3DPMVTGC3DPMVTGC3DPMU"

    def take(one: Input) -> None:
        text = one.raw.decode(errors="replace")
        inner = base64.urlsafe_b64encode(one.raw).decode()
        assert isinstance(expiry_of(text), float | None)
        assert isinstance(expiry_of(f"e.{inner}.s"), float | None)
        try:
            key_of(text)
        except ValueError:
            return

    valid = (b"e30." + claims + b".c2ln", b'{"exp":1893499200,"sub":"U"}', seed)
    feed(inputs("credentials", valid), take)


def test_rows_of_the_spool() -> None:
    whole = spooled(event(EventType.DRAINED, "done"), 7)
    row = {"sequence": 7, "event_id": "", "worth": 5, "body": "", "crc": 0}

    def take(one: Input) -> None:
        found = Spooled(one.seed, whole.event_id, whole.worth, one.raw).event()
        assert found is None or found.sequence == one.seed

    def take_row(one: Input) -> None:
        try:
            read = json.loads(one.raw)
        except (ValueError, RecursionError):
            read = {}
        fields = read if isinstance(read, dict) else {}
        event_id = fields.get("event_id") or whole.event_id.bytes
        body = fields.get("body") or whole.body
        values = (fields.get("sequence"), event_id, fields.get("worth"), body, fields.get("crc"))
        assert isinstance(intact(values), Spooled | None)

    feed(inputs("body", (whole.body,)), take)
    feed(inputs("row", (json.dumps(row).encode(),)), take_row)
