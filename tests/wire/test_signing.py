"""A signed letter says what its signer said, or nothing."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
import rfc8785
from hypothesis import example, given
from hypothesis import strategies as st

from tests.wire.letters import KEY, NEXT_KEY, RING, resaid, spoiled
from wire.signing import (
    MAX_BYTES,
    KeyRing,
    LetterKind,
    Opened,
    Refusal,
    RefusedAs,
    SigningKey,
    canonical,
    public_key,
    seal,
    unseal,
)

PAYLOAD = {"b": [1, 2.5, None, True], "a": {"ü": "Größe\n", "": ""}, "n": -(2**53) + 1}
LETTER = seal(LetterKind.NOTICE, PAYLOAD, KEY)


def reason_of(raw: bytes, ring: KeyRing = RING, kind: LetterKind = LetterKind.NOTICE) -> RefusedAs:
    read = unseal(kind, raw, ring)
    assert isinstance(read, Refusal), read
    assert read.detail
    assert "\n" not in read.detail
    return read.reason


def test_a_letter_is_read_as_it_was_written() -> None:
    assert unseal(LetterKind.NOTICE, LETTER, RING) == Opened("first", PAYLOAD)
    # The same content has one text, so that its digest can be compared.
    assert seal(LetterKind.NOTICE, dict(reversed(PAYLOAD.items())), KEY) == LETTER


def test_no_byte_can_be_changed_taken_away_or_added() -> None:
    """Except where JSON or base64 have another text for the same: what is read then is what was signed."""
    read = [unseal(LetterKind.NOTICE, raw, RING) for raw in spoiled(LETTER)]
    believed = [one for one in read if isinstance(one, Opened)]
    assert all(one == Opened("first", PAYLOAD) for one in believed)
    assert len(believed) < len(LETTER) / 10 < len(read)


def test_a_letter_of_one_kind_is_none_of_another() -> None:
    assert reason_of(LETTER, kind=LetterKind.BUNDLE) is RefusedAs.WRONG_KIND
    assert reason_of(resaid(LETTER, kind="bundle.v1"), kind=LetterKind.BUNDLE) is RefusedAs.BAD_SIGNATURE
    assert reason_of(resaid(LETTER, kind="other")) is RefusedAs.WRONG_KIND


def test_a_key_that_is_not_known_signs_nothing() -> None:
    assert reason_of(seal(LetterKind.NOTICE, PAYLOAD, NEXT_KEY)) is RefusedAs.UNKNOWN_KEY
    assert reason_of(LETTER, KeyRing({})) is RefusedAs.UNKNOWN_KEY
    posing = SigningKey("first", NEXT_KEY.private)
    assert reason_of(seal(LetterKind.NOTICE, PAYLOAD, posing)) is RefusedAs.BAD_SIGNATURE


def test_several_keys_are_believed_side_by_side() -> None:
    both = KeyRing({one.key_id: one.public_text for one in (KEY, NEXT_KEY)})
    assert both.names() == ("first", "second")
    for key in (KEY, NEXT_KEY):
        read = unseal(LetterKind.NOTICE, seal(LetterKind.NOTICE, PAYLOAD, key), both)
        assert read == Opened(key.key_id, PAYLOAD)
    # The name of the key is signed, too.
    assert reason_of(resaid(LETTER, keyId="second"), both) is RefusedAs.BAD_SIGNATURE


@pytest.mark.parametrize(
    "changed",
    [
        {"payload": {}},
        {"payload": PAYLOAD | {"n": 1}},
        {"payload": PAYLOAD | {"more": 1}},
        {"payload": {"n": 9007199254740993}},
        {"payload": {"n": 10**400}},
        {"payload": {"n": float("nan")}},
        {"payload": {"n": float("inf")}},
        {"payload": {"n": "\ud800"}},
        {"payload": {"\ud800": 1}},
        {"signature": ""},
        {"signature": "AAAA"},
        {"signature": "not base64"},
        {"signature": "ä"},
        {"signature": "\ud800"},
        {"signature": base64.b64encode(bytes(64)).decode()},
        {"signature": base64.b64encode(bytes(6400)).decode()},
    ],
    ids=lambda changed: ascii(changed)[:60],
)
def test_other_content_or_another_signature_is_refused(changed: dict[str, object]) -> None:
    assert reason_of(resaid(LETTER, **changed)) is RefusedAs.BAD_SIGNATURE


SIGNED = json.loads(LETTER)
NO_LETTERS: dict[str, bytes] = {
    "nothing": b"",
    "a list": b"[]",
    "a number": b"1",
    "null": b"null",
    "text": b'"letter"',
    "half a letter": LETTER[: len(LETTER) // 2],
    "two letters": LETTER + LETTER,
    "no utf-8": b"\xff" + LETTER,
    "a field less": json.dumps({name: SIGNED[name] for name in ("kind", "keyId", "payload")}).encode(),
    "a field more": resaid(LETTER, more=1),
    "a payload of another type": resaid(LETTER, payload=[]),
    "a key of another type": resaid(LETTER, keyId=1),
    "a kind of another type": resaid(LETTER, kind=None),
    "a signature of another type": resaid(LETTER, signature=["x"]),
    "deep lists": b"[" * 20_000,
    "deep objects": b'{"a":' * 10_000,
    "a number without end": b'{"kind":' + b"1" * 5000 + b"}",
}


@pytest.mark.parametrize("name", NO_LETTERS)
def test_what_is_no_letter_is_refused(name: str) -> None:
    assert reason_of(NO_LETTERS[name]) is RefusedAs.MALFORMED


@pytest.mark.parametrize("depth", [50, 400, 900, 960, 980, 990, 1000, 1500])
def test_a_payload_of_any_depth_is_refused_and_never_raises(depth: int) -> None:
    for opening, inner, closing in (("[", "", "]"), ('{"a":', "1", "}")):
        deep = opening * depth + inner + closing * depth
        raw = LETTER.replace(b'"payload":{', b'"payload":{"deep":' + deep.encode() + b",")
        assert reason_of(raw) in (RefusedAs.BAD_SIGNATURE, RefusedAs.MALFORMED)


def test_of_a_name_that_comes_twice_the_last_counts_and_is_what_was_signed() -> None:
    twice = LETTER.replace(b'"payload":', b'"payload":{"forged":true},"payload":')
    assert unseal(LetterKind.NOTICE, twice, RING) == Opened("first", PAYLOAD)
    forged = LETTER[:-1] + b',"payload":{"forged":true}}'
    assert reason_of(forged) is RefusedAs.BAD_SIGNATURE


def test_what_is_larger_than_any_letter_is_not_parsed() -> None:
    assert reason_of(LETTER + b" " * (MAX_BYTES - len(LETTER) + 1)) is RefusedAs.TOO_LARGE
    assert isinstance(unseal(LetterKind.NOTICE, LETTER + b" " * (MAX_BYTES - len(LETTER)), RING), Opened)


@given(st.binary(max_size=300))
def test_bytes_of_anything_are_refused_and_never_raise(raw: bytes) -> None:
    assert reason_of(raw) is RefusedAs.MALFORMED


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53) + 1, 2**53 - 1) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=10), inner, max_size=3),
    max_leaves=10,
)


NUMBERS = st.integers(-(2**53) - 1, 2**53 + 1) | st.floats()
NAMES = st.text(max_size=5) | st.sampled_from(["\ue000", "\U00010000", "\x7f", "\x1f", '"', "kind", "Kind"])
ANY = st.recursive(
    st.none() | st.booleans() | NUMBERS | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=12,
)


@given(ANY)
@example("".join(map(chr, range(0x100))) + "\u2028\u2029\ufeff\U0001f600")
@example({"\ue000": 1, "\U00010000": 2})
@example([2**53, "\ud800"])
def test_the_canonical_text_is_that_of_rfc_8785_byte_for_byte(value: Any) -> None:
    try:
        expected = rfc8785.dumps(value)
    except ValueError:
        with pytest.raises(ValueError, match=r"domain|representable|surrogates|codepoints"):
            canonical(value)
    else:
        assert canonical(value) == expected


@given(st.dictionaries(st.text(max_size=10), JSON, max_size=4))
def test_the_letter_is_canonical_as_a_whole(payload: dict[str, object]) -> None:
    try:
        letter = seal(LetterKind.NOTICE, payload, KEY)
    except ValueError:
        return  # As below.
    assert letter == rfc8785.dumps(json.loads(letter))


@given(st.dictionaries(st.text(max_size=10), JSON, max_size=4))
def test_whatever_is_sealed_is_read_again(payload: dict[str, object]) -> None:
    try:
        letter = seal(LetterKind.BUNDLE, payload, KEY)
    except ValueError:
        return  # Half characters have no text in UTF-8: nothing is sealed.
    assert unseal(LetterKind.BUNDLE, letter, RING) == Opened("first", payload)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "has 0 bytes"),
        ("AAAA", "has 3 bytes"),
        ("!", "not base64"),
        (base64.b64encode(bytes(33)).decode(), "has 33 bytes"),
        ("ä" * 44, "not base64"),
        (KEY.public_text + "\n", "not base64"),
    ],
)
def test_what_is_no_key_is_named(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=f"'k'.*{said}"):
        public_key("k", text)
    with pytest.raises(ValueError, match="'k'"):
        KeyRing({"good": KEY.public_text, "k": text})
