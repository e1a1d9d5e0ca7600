"""A bundle is ours, for this instance, newer and whole, or the node keeps the one that it has."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.wire.letters import AT, BUNDLE, KEY, NEXT_KEY, NOTICE, OWN, RING, resaid, spoiled
from wire.bundle import Bundle, BundleRefusal, BundleRefusedAs, read_bundle, write_bundle
from wire.notices import write_notice
from wire.signing import KeyRing, LetterKind, seal

LETTER = write_bundle(BUNDLE, KEY)
PAYLOAD = json.loads(LETTER)["payload"]


def refused(raw: bytes, instance_id: str = OWN, newer_than: int = 0) -> BundleRefusal:
    read = read_bundle(raw, RING, instance_id, newer_than)
    assert isinstance(read, BundleRefusal), read
    return read


def said(**changed: Any) -> bytes:
    payload = PAYLOAD | changed
    return seal(LetterKind.BUNDLE, {name: value for name, value in payload.items() if value != "-"}, KEY)


def test_a_bundle_is_read_as_it_was_written() -> None:
    assert read_bundle(LETTER, RING, OWN) == BUNDLE
    assert PAYLOAD["drain"]["budgetSeconds"] == 115


def test_no_byte_of_a_bundle_can_change_what_it_says() -> None:
    for one in spoiled(LETTER):
        read = read_bundle(one, RING, OWN)
        assert isinstance(read, BundleRefusal) or read == BUNDLE


def test_versions_only_rise() -> None:
    assert read_bundle(LETTER, RING, OWN, newer_than=6) == BUNDLE
    for held in (7, 8, 2**53 - 1):
        told = refused(LETTER, newer_than=held)
        assert told == (BundleRefusedAs.OLDER, f"version 7, version {held} is already held")


def test_a_bundle_of_another_instance_is_foreign_whatever_its_version() -> None:
    assert refused(LETTER, "server-2").reason is BundleRefusedAs.FOREIGN
    assert refused(LETTER, "server-2", newer_than=99).reason is BundleRefusedAs.FOREIGN


@pytest.mark.parametrize(
    "raw",
    [
        write_bundle(BUNDLE, NEXT_KEY),
        resaid(write_bundle(BUNDLE, NEXT_KEY), keyId=KEY.key_id),
        resaid(LETTER, payload=PAYLOAD | {"version": 8}),
        resaid(LETTER, payload=PAYLOAD | {"trust": {"noticeKeys": {}, "bundleKeys": {}}}),
        write_notice(NOTICE, KEY),
        resaid(write_notice(NOTICE, KEY), kind="bundle.v1"),
    ],
    ids=["another key", "another key by a known name", "another version", "other keys", "a notice", "posing"],
)
def test_what_we_did_not_sign_as_a_bundle_is_forged(raw: bytes) -> None:
    assert refused(raw).reason is BundleRefusedAs.FORGED


def test_one_key_follows_another_through_what_bundles_announce() -> None:
    """The second key is believed by who has read of it, and by nobody else."""
    followed = write_bundle(BUNDLE.model_copy(update={"version": 8}), NEXT_KEY)
    assert refused(followed).reason is BundleRefusedAs.FORGED
    held = read_bundle(LETTER, RING, OWN)
    assert isinstance(held, Bundle)
    newer = read_bundle(followed, KeyRing(held.trust.bundle_keys), OWN, held.version)
    assert isinstance(newer, Bundle)
    assert newer.version == 8


WRONG: tuple[dict[str, Any], ...] = (
    {"version": 0},
    {"version": -1},
    {"version": 1.5},
    {"version": "x"},
    {"version": "-"},
    {"version": 2**53 - 1 + 0.0, "hall": "*"},
    {"issuedAt": "2030-01-01T12:00:00"},
    {"issuedAt": 10**15},
    {"instanceId": "a.b"},
    {"hall": "H1"},
    {"hall": "h1.>"},
    {"tenantId": ""},
    {"poolId": "x" * 256},
    {"contractCommit": "x" * 65},
    {"drain": "-"},
    {"drain": {}},
    {"drain": PAYLOAD["drain"] | {"budgetSeconds": 0}},
    {"drain": PAYLOAD["drain"] | {"budgetSeconds": 116}},
    {"drain": PAYLOAD["drain"] | {"path": "shell"}},
    {"drain": PAYLOAD["drain"] | {"signal": "KILL"}},
    {"drain": PAYLOAD["drain"] | {"checkpoint": "always"}},
    {"drain": PAYLOAD["drain"] | {"restart": "maybe"}},
    {"trust": "-"},
    {"trust": PAYLOAD["trust"] | {"noticeKeys": {}}},
    {"trust": PAYLOAD["trust"] | {"bundleKeys": {}}},
    {"trust": PAYLOAD["trust"] | {"bundleKeys": {"k": "AAAA"}}},
    {"trust": PAYLOAD["trust"] | {"bundleKeys": {"": KEY.public_text}}},
    {"trust": PAYLOAD["trust"] | {"noticeKeys": dict.fromkeys(map(str, range(9)), KEY.public_text)}},
    {"nodeBus": ["nats://x"] * 17},
    {"nodeBus": "nats://x"},
)


@pytest.mark.parametrize("changed", WRONG, ids=lambda changed: str(changed)[:60])
def test_a_bundle_that_cannot_be_kept_is_malformed_and_says_where(changed: dict[str, Any]) -> None:
    told = refused(said(**changed))
    assert told.reason is BundleRefusedAs.MALFORMED
    assert told.detail.partition(":")[0]
    assert len(told.detail) <= 200


def test_fields_of_a_newer_control_plane_are_left_aside() -> None:
    assert read_bundle(said(priceEur="0.1", drainCommand="reboot"), RING, OWN) == BUNDLE


@pytest.mark.parametrize("raw", [b"", b"{}", b"[" * 20_000, b"x" * 70_000, b"null", b"\xff"], ids=len)
def test_what_is_no_letter_at_all_is_malformed(raw: bytes) -> None:
    assert refused(raw).reason is BundleRefusedAs.MALFORMED


NAMES = st.sampled_from([*PAYLOAD, "x"])
VALUES: st.SearchStrategy[Any] = (
    st.none() | st.booleans() | st.integers(-(2**40), 2**40) | st.text(max_size=9) | st.just({}) | st.just([])
)


@given(st.dictionaries(NAMES, VALUES, min_size=1, max_size=4))
def test_signed_nonsense_is_refused_or_read_and_never_raises(changed: dict[str, Any]) -> None:
    try:
        raw = seal(LetterKind.BUNDLE, PAYLOAD | changed, KEY)
    except ValueError:
        return  # Half characters have no text in UTF-8: nothing is sealed.
    assert isinstance(read_bundle(raw, RING, OWN), Bundle | BundleRefusal)


def test_a_bundle_says_nothing_of_prices_caps_and_secrets() -> None:
    for word in ("price", "cap", "floor", "secret", "seed", "private", "token"):
        assert word not in LETTER.decode().lower().replace("capacity", "")
    assert AT.isoformat()[:10] in LETTER.decode()
