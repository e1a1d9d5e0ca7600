"""Requests of a node to the control plane, signed with the key that never leaves the node's disk.

Four headers go with a request: whose it is, when it was made, a word that is used once, and the signature
over method, target, time, that word and the digest of the body. So a signature is good for one request alone,
for about a minute, and tells nothing of the key.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from hashlib import sha256
from typing import Annotated, NamedTuple

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from pydantic import Field

from wire.node import INSTANCE_ID, InstanceId, Letter, Moment

INSTANCE_HEADER = "sco-instance"
TIME_HEADER = "sco-time"
NONCE_HEADER = "sco-nonce"
SIGNATURE_HEADER = "sco-signature"
HEADERS = (INSTANCE_HEADER, TIME_HEADER, NONCE_HEADER, SIGNATURE_HEADER)
# How far the clocks of a node and the control plane may differ. A node follows the Date of our answers.
MAX_SKEW = timedelta(seconds=60)
MAX_BODY_BYTES = 16 * 1024
MAX_TARGET_CHARACTERS = 2048
SIGNATURE_BYTES = 64
_TIME = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,6})?Z")
_NONCE = re.compile(r"[A-Za-z0-9_-]{16,64}")
_METHOD = re.compile(r"[A-Z]{1,16}")
# As it stands in the request line: a line of visible characters that begins with a slash.
_TARGET = re.compile(r"/[\x21-\x7e]*")


class RequestRefusedAs(StrEnum):
    """Why a request is not believed to be the node's."""

    MISSING = "missing"
    MALFORMED = "malformed"
    FOREIGN = "foreign"
    STALE = "stale"
    BAD_SIGNATURE = "bad_signature"


class RequestRefusal(NamedTuple):
    """A request that is not believed; `detail` says what was found, in one line."""

    reason: RequestRefusedAs
    detail: str


class Asked(NamedTuple):
    """What is asked: `target` is path and query as they stand in the request line."""

    method: str
    target: str
    body: bytes = b""


class Head(NamedTuple):
    """What the four headers say, not yet believed."""

    instance_id: str
    said_at: datetime
    time_text: str
    nonce: str
    signature: bytes


class Registration(Letter):
    """A node's first request: the one-time token, and the public halves of its two keys.

    `public_key` is raw Ed25519 in base64, and signs requests; `bus_key` is a user key of the node bus.
    """

    instance_id: InstanceId
    token: Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,128}$")]
    # 32 bytes have one text only: the last sign before the padding carries four bits.
    public_key: Annotated[str, Field(pattern=r"^[A-Za-z0-9+/]{42}[AEIMQUYcgkosw048]=$")]
    bus_key: Annotated[str, Field(pattern=r"^U[A-Z2-7]{55}$")]


class BusAdmission(Letter):
    """What admits a node to the node bus until `expires_at`, together with its own key."""

    jwt: Annotated[str, Field(min_length=1, max_length=8192)]
    expires_at: Moment


class Registered(Letter):
    """The answer to a registration. `bundle` is a signed letter as text, `bus` None where there is no bus."""

    instance_id: InstanceId
    bundle: Annotated[str, Field(min_length=1, max_length=65_536)]
    bus: BusAdmission | None = None


def sign_request(
    asked: Asked, *, key: Ed25519PrivateKey, instance_id: str, at: datetime, nonce: str
) -> dict[str, str]:
    """The headers of a request. ValueError when what is asked could not be told from something else."""
    time_text = at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    if _NONCE.fullmatch(nonce) is None:
        raise ValueError("a nonce has 16 to 64 of A-Z, a-z, 0-9, - and _")
    signature = key.sign(canonical(asked, time_text, nonce))
    return {
        INSTANCE_HEADER: instance_id,
        TIME_HEADER: time_text,
        NONCE_HEADER: nonce,
        SIGNATURE_HEADER: base64.b64encode(signature).decode(),
    }


def canonical(asked: Asked, time_text: str, nonce: str) -> bytes:
    """The lines that are signed. ValueError when method or target have characters that make other lines."""
    if _METHOD.fullmatch(asked.method) is None:
        raise ValueError("a method has 1 to 16 of A-Z")
    if len(asked.target) > MAX_TARGET_CHARACTERS or _TARGET.fullmatch(asked.target) is None:
        raise ValueError("a target is a slash and visible ASCII characters, 2,048 in all at most")
    lines = (asked.method, asked.target, time_text, nonce, sha256(asked.body).hexdigest())
    return "\n".join(lines).encode()


def read_head(headers: Iterable[tuple[str, str]]) -> Head | RequestRefusal:
    """What the headers of a request say of its sender. Names are in lower case. Never raises."""
    given = [(name, value) for name, value in headers if name in HEADERS]
    found = dict(given)
    missing = [name for name in HEADERS if name not in found]
    if missing:
        return RequestRefusal(RequestRefusedAs.MISSING, f"no header {', '.join(missing)}")
    if len(given) != len(HEADERS):
        return RequestRefusal(RequestRefusedAs.MALFORMED, "a header comes twice")
    return _head_of(found)


def _head_of(found: Mapping[str, str]) -> Head | RequestRefusal:
    instance_id, nonce = found[INSTANCE_HEADER], found[NONCE_HEADER]
    if INSTANCE_ID.fullmatch(instance_id) is None:
        return RequestRefusal(RequestRefusedAs.MALFORMED, f"{INSTANCE_HEADER} is no id of an instance")
    if _NONCE.fullmatch(nonce) is None:
        return RequestRefusal(RequestRefusedAs.MALFORMED, f"{NONCE_HEADER} has not 16 to 64 plain characters")
    said_at = _moment(found[TIME_HEADER])
    if said_at is None:
        return RequestRefusal(RequestRefusedAs.MALFORMED, f"{TIME_HEADER} is no time in UTC")
    signature = _signature(found[SIGNATURE_HEADER])
    if signature is None:
        return RequestRefusal(RequestRefusedAs.MALFORMED, f"{SIGNATURE_HEADER} is no signature in base64")
    return Head(instance_id, said_at, found[TIME_HEADER], nonce, signature)


def stale(head: Head, now: datetime) -> RequestRefusal | None:
    """Why a request is too old, or from a future that no clock of ours allows; None when it is neither."""
    off = (head.said_at - now).total_seconds()
    if abs(off) <= MAX_SKEW.total_seconds():
        return None
    limit = int(MAX_SKEW.total_seconds())
    return RequestRefusal(
        RequestRefusedAs.STALE, f"made {off:+.0f} s from now, at most {limit} s are allowed"
    )


def verify_request(
    head: Head, asked: Asked, *, key: Ed25519PublicKey, instance_id: str, now: datetime
) -> RequestRefusal | None:
    """None when `instance_id` has asked this, about now. Whether it was asked before, the caller knows."""
    if head.instance_id != instance_id:
        return RequestRefusal(RequestRefusedAs.FOREIGN, f"of instance {head.instance_id}, not {instance_id}")
    too_old = stale(head, now)
    if too_old is not None:
        return too_old
    try:
        key.verify(head.signature, canonical(asked, head.time_text, head.nonce))
    except InvalidSignature:
        return RequestRefusal(RequestRefusedAs.BAD_SIGNATURE, "not signed by the instance's key")
    except ValueError as error:
        return RequestRefusal(RequestRefusedAs.MALFORMED, str(error))
    return None


def _moment(text: str) -> datetime | None:
    if _TIME.fullmatch(text) is None:
        return None
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return None


def _signature(text: str) -> bytes | None:
    try:
        raw = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None
    # Base64 has several texts for the same bytes; only the usual one is taken.
    usual = len(raw) == SIGNATURE_BYTES and base64.b64encode(raw).decode() == text
    return raw if usual else None
