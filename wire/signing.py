"""Signed letters: Ed25519 over canonical JSON (RFC 8785), each bound to what it is and to its key."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, NamedTuple

import rfc8785
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

# Far more than any letter takes; what is larger is not even parsed.
MAX_BYTES = 64 * 1024
PUBLIC_KEY_BYTES = 32
FIELDS = frozenset({"kind", "keyId", "payload", "signature"})
# Letters are flatter; what is nested deeper is left to the slower way, whose depth is bounded by the parser.
MAX_PLAIN_DEPTH = 16
# JSON names an integer exactly up to here, whoever reads it.
MAX_INTEGER = 2**53 - 1
# Of what `_is_plain` admits, the standard encoder makes the same bytes as RFC 8785 in a fifth of the time.
PLAIN = json.JSONEncoder(ensure_ascii=False, sort_keys=True, separators=(",", ":"), check_circular=False)


class LetterKind(StrEnum):
    """What a signed letter is. A signature of one kind says nothing about another."""

    NOTICE = "notice.v1"
    BUNDLE = "bundle.v1"


class RefusedAs(StrEnum):
    """Why a letter is not believed."""

    TOO_LARGE = "too_large"
    MALFORMED = "malformed"
    WRONG_KIND = "wrong_kind"
    UNKNOWN_KEY = "unknown_key"
    BAD_SIGNATURE = "bad_signature"


class Refusal(NamedTuple):
    """A letter that is not believed; `detail` says what was found, in one line."""

    reason: RefusedAs
    detail: str


class Opened(NamedTuple):
    """What a believed letter says, and which key signed it."""

    key_id: str
    payload: dict[str, Any]


class SigningKey(NamedTuple):
    """A private key and the name by which its public half is known."""

    key_id: str
    private: Ed25519PrivateKey

    @property
    def public_text(self) -> str:
        return base64.b64encode(self.private.public_key().public_bytes_raw()).decode()


class KeyRing:
    """Public keys by name. Several at once let a key be replaced while letters of both are under way."""

    def __init__(self, keys: Mapping[str, str]) -> None:
        """Take raw public keys in base64. ValueError names the first that is none."""
        self._keys = {key_id: public_key(key_id, text) for key_id, text in keys.items()}

    def find(self, key_id: str) -> Ed25519PublicKey | None:
        return self._keys.get(key_id)

    def names(self) -> tuple[str, ...]:
        return tuple(sorted(self._keys))


def public_key(key_id: str, text: str) -> Ed25519PublicKey:
    """A raw Ed25519 public key from base64. ValueError when it is none."""
    try:
        raw = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise ValueError(f"key {key_id!r} is not base64: {error}") from error
    if len(raw) != PUBLIC_KEY_BYTES:
        raise ValueError(f"key {key_id!r} has {len(raw)} bytes, an Ed25519 public key has {PUBLIC_KEY_BYTES}")
    return Ed25519PublicKey.from_public_bytes(raw)


def canonical(value: Any) -> bytes:
    """The one text that RFC 8785 knows for a JSON value. ValueError when it has none."""
    return PLAIN.encode(value).encode() if _is_plain(value) else rfc8785.dumps(value)


def seal(kind: LetterKind, payload: Mapping[str, Any], key: SigningKey) -> bytes:
    """The letter as canonical JSON. `payload` holds JSON values with integers below 2^53 only."""
    to_sign = unsigned(kind, payload, key.key_id)
    return with_signature(to_sign, key.private.sign(to_sign))


def unsigned(kind: LetterKind, payload: Mapping[str, Any], key_id: str) -> bytes:
    """What is signed of a letter, for a private key that is elsewhere; `with_signature` completes it."""
    letter: dict[str, Any] = {"kind": str(kind), "keyId": key_id, "payload": dict(payload)}
    return canonical(letter)


def with_signature(signed: bytes, signature: bytes) -> bytes:
    """The whole letter, from what `unsigned` gave and its raw signature."""
    # The name of the signature comes last among the sorted ones.
    return b'%b,"signature":"%b"}' % (signed[:-1], base64.b64encode(signature))


def unseal(kind: LetterKind, raw: bytes, ring: KeyRing) -> Opened | Refusal:
    """What a letter of one kind says, when a known key has signed it. Never raises."""
    if len(raw) > MAX_BYTES:
        return Refusal(RefusedAs.TOO_LARGE, f"{len(raw)} bytes, at most {MAX_BYTES} are read")
    letter = _parse(raw)
    if isinstance(letter, Refusal):
        return letter
    if letter["kind"] != kind:
        return Refusal(RefusedAs.WRONG_KIND, f"kind {str(letter['kind'])[:40]!r}, expected {str(kind)!r}")
    key = ring.find(letter["keyId"])
    if key is None:
        return Refusal(RefusedAs.UNKNOWN_KEY, f"key {letter['keyId'][:80]!r} is not one of {ring.names()}")
    try:
        signed = canonical({name: letter[name] for name in ("kind", "keyId", "payload")})
        key.verify(base64.b64decode(letter["signature"], validate=True), signed)
    except (InvalidSignature, binascii.Error, ValueError, rfc8785.CanonicalizationError):
        return Refusal(RefusedAs.BAD_SIGNATURE, f"not signed by key {letter['keyId'][:80]!r}")
    return Opened(letter["keyId"], letter["payload"])


def _is_plain(value: Any, depth: int = MAX_PLAIN_DEPTH) -> bool:
    """Without numbers that have several texts, and names that UTF-16 sorts in another way than Python."""
    kind = type(value)
    if kind is str or kind is bool or value is None:
        return True
    if kind is int:
        return bool(-MAX_INTEGER <= value <= MAX_INTEGER)
    if kind not in (dict, list) or not depth:
        return False
    if kind is list:
        return all(_is_plain(one, depth - 1) for one in value)
    return all(type(name) is str and name.isascii() and _is_plain(value[name], depth - 1) for name in value)


def _parse(raw: bytes) -> dict[str, Any] | Refusal:
    try:
        letter = json.loads(raw)
    except (ValueError, RecursionError) as error:
        return Refusal(RefusedAs.MALFORMED, f"not JSON: {type(error).__name__}")
    if not isinstance(letter, dict) or letter.keys() != FIELDS:
        return Refusal(RefusedAs.MALFORMED, f"not an object with exactly {sorted(FIELDS)}")
    texts = all(isinstance(letter[name], str) for name in FIELDS - {"payload"})
    if not texts or not isinstance(letter["payload"], dict):
        return Refusal(RefusedAs.MALFORMED, "kind, keyId and signature must be text, payload an object")
    return letter
